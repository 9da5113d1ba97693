//! Content negotiation of responses from the `Accept` header, as upstream does it.
//!
//! Two 406 responses exist, in upstream's words: the path offers no accepted media type, or none in the requested
//! transform.

use api::{status::Status, table::IncludeObject};
use http::{HeaderMap, header};
use serde_json::json;

use crate::{body::PROTOBUF, request::ResourceRequest};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const OFFERED_ENCODINGS: &[(&str, ResponseEncoding)] =
    &[(JSON, ResponseEncoding::Json), (YAML, ResponseEncoding::Yaml), (PROTOBUF, ResponseEncoding::Protobuf)];
const STREAM_MEDIA_TYPES: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseEncoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Protobuf.
    Protobuf,
}

impl ResponseEncoding {
    /// The media type of the encoding.
    pub fn media_type(self) -> &'static str {
        match self {
            ResponseEncoding::Json => JSON,
            ResponseEncoding::Yaml => YAML,
            ResponseEncoding::Protobuf => PROTOBUF,
        }
    }
}

/// The representation of an object in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseTransform {
    /// The object itself.
    Object,
    /// A Table.
    Table(IncludeObject),
    /// PartialObjectMetadata.
    Metadata,
}

/// The negotiated media type and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTypeOptions {
    /// Encoding.
    pub encoding: ResponseEncoding,
    /// Representation of the objects.
    pub transform: ResponseTransform,
    /// API version of Table and PartialObjectMetadata: `v1` or `v1beta1`.
    pub version: &'static str,
    /// Whether JSON is indented.
    pub pretty: bool,
    /// Whether a large response is compressed.
    pub gzip: bool,
}

impl Default for MediaTypeOptions {
    fn default() -> Self {
        Self {
            encoding: ResponseEncoding::Json,
            transform: ResponseTransform::Object,
            version: "v1",
            pretty: false,
            gzip: false,
        }
    }
}

impl MediaTypeOptions {
    /// Returns the first media type in `Accept` that this server can produce for the request.
    pub fn negotiate(headers: &HeaderMap, request: &ResourceRequest) -> Result<Self, Status> {
        let accept = accept_header(headers);
        let is_collection = request.name.is_empty() && matches!(request.verb, "list" | "watch");
        check_offered(accept, is_collection)?;
        let clauses = parse_accept(accept);
        let options = clauses.iter().find_map(|clause| Self::from_clause(clause, request));
        let mut options = options.ok_or_else(|| Status::not_acceptable(&media_types().join(", ")))?;
        if request.verb == "watch" && options.encoding == ResponseEncoding::Yaml {
            return Err(Status::not_acceptable(STREAM_MEDIA_TYPES));
        }
        // Each watch event is one line.
        options.pretty = request.verb != "watch" && (options.pretty || wants_pretty(headers, request));
        options.gzip = matches!(request.verb, "get" | "list") && accepts_gzip(headers);
        Ok(options)
    }

    /// The media type of an error response: as `Accept` asks, with JSON as the fallback.
    pub fn for_error(headers: &HeaderMap) -> Self {
        let clauses = parse_accept(accept_header(headers));
        let encoding =
            clauses.iter().find_map(|clause| matching_encodings(clause).next()).unwrap_or(ResponseEncoding::Json);
        Self { encoding, pretty: is_interactive_client(headers), ..Self::default() }
    }

    fn from_clause(clause: &AcceptClause, request: &ResourceRequest) -> Option<Self> {
        matching_encodings(clause).find_map(|encoding| {
            let (transform, version) = parse_transform(clause, encoding, request)?;
            if !is_supported(encoding, transform, request) {
                return None;
            }
            Some(Self { encoding, transform, version, pretty: clause.parameter("pretty") == Some("1"), gzip: false })
        })
    }

    /// Whether stored documents can be sent without re-encoding.
    pub fn is_plain(&self) -> bool {
        self.encoding == ResponseEncoding::Json && self.transform == ResponseTransform::Object && !self.pretty
    }
}

fn accept_header(headers: &HeaderMap) -> &str {
    let text = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text.trim().is_empty() { "*/*" } else { text }
}

/// The media types of responses, in order of preference.
pub fn media_types() -> Vec<&'static str> {
    OFFERED_ENCODINGS.iter().map(|(media, _)| *media).collect()
}

/// Rejects requests that accept none of the path's media types, as upstream's router does before anything else.
fn check_offered(accept: &str, is_collection: bool) -> Result<(), Status> {
    let mut types = media_types();
    let is_offered = |media_range: &str| {
        let media = media_range.split(';').next().unwrap_or_default().trim();
        media == "*/*" || types.contains(&media)
    };
    if accept.split(',').any(is_offered) {
        return Ok(());
    }
    if is_collection {
        types.push(STREAM_MEDIA_TYPES);
    }
    Err(not_acceptable_status(&types))
}

/// The 406 status of a path that offers only `types`.
pub fn not_acceptable_status(types: &[&str]) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", types.join(", "));
    Status::new(406, "NotAcceptable", message).with_details(json!({}))
}

/// A media range of the `Accept` header.
struct AcceptClause<'a> {
    media: (&'a str, &'a str),
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl AcceptClause<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// Parses `Accept`, ordered by quality, then by specificity.
fn parse_accept(accept: &str) -> Vec<AcceptClause<'_>> {
    let mut clauses: Vec<AcceptClause> = accept.split(',').filter_map(parse_clause).collect();
    let wildcards = |clause: &AcceptClause| u8::from(clause.media.0 == "*") + u8::from(clause.media.1 == "*");
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(wildcards(a).cmp(&wildcards(b))));
    clauses
}

fn parse_clause(text: &str) -> Option<AcceptClause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next()?.split_once('/')?;
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let quality = parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, value)| value.parse().ok());
    Some(AcceptClause { media, parameters, quality: quality.unwrap_or(1.0) })
}

/// Whether a representation can be produced: custom resources have protobuf only as Table, metadata or Scale.
fn is_supported(encoding: ResponseEncoding, transform: ResponseTransform, request: &ResourceRequest) -> bool {
    let is_whole_object = matches!(transform, ResponseTransform::Object) && request.subresource != "scale";
    encoding != ResponseEncoding::Protobuf || request.resource.custom_schema.is_none() || !is_whole_object
}

fn matching_encodings<'a>(clause: &'a AcceptClause<'a>) -> impl Iterator<Item = ResponseEncoding> + 'a {
    let (kind, subtype) = clause.media;
    let matches = move |media: &str| {
        let Some((offered_kind, offered_subtype)) = media.split_once('/') else { return false };
        (kind == offered_kind || kind == "*") && (subtype == offered_subtype || subtype == "*")
    };
    OFFERED_ENCODINGS.iter().filter(move |(media, _)| matches(media)).map(|(_, encoding)| *encoding)
}

fn parse_transform(
    clause: &AcceptClause,
    encoding: ResponseEncoding,
    request: &ResourceRequest,
) -> Option<(ResponseTransform, &'static str)> {
    if clause.parameter("stream").is_some_and(|stream| stream != "watch" || encoding == ResponseEncoding::Yaml) {
        return None;
    }
    let (Some(kind), group, version) = (clause.parameter("as"), clause.parameter("g"), clause.parameter("v")) else {
        return clause.parameter("g").or(clause.parameter("v")).is_none().then_some((ResponseTransform::Object, "v1"));
    };
    let version = match (group, version) {
        (Some("meta.k8s.io"), Some("v1")) => "v1",
        (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
        _ => return None,
    };
    let transform = match kind {
        "Table" if encoding != ResponseEncoding::Protobuf && request.is_readable() => {
            ResponseTransform::Table(match request.query.get("includeObject") {
                Some("None") => IncludeObject::None,
                Some("Object") => IncludeObject::Object,
                _ => IncludeObject::Metadata,
            })
        }
        "PartialObjectMetadata" | "PartialObjectMetadataList" => ResponseTransform::Metadata,
        _ => return None,
    };
    Some((transform, version))
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|choice| choice.split(';').next().unwrap_or_default().trim() == "gzip")
}

/// Whether the response is indented: by the query parameter `pretty`, or else for interactive clients.
fn wants_pretty(headers: &HeaderMap, request: &ResourceRequest) -> bool {
    if let Some(pretty) = request.query.get("pretty") {
        return matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    is_interactive_client(headers)
}

/// Whether the user agent is a browser or a command-line HTTP client.
fn is_interactive_client(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{query::Query, resource_config::ApiResourceConfig};

    fn negotiate_pod(accept: &str, query: &str) -> Result<(ResponseEncoding, ResponseTransform), String> {
        negotiate_path(&Method::GET, "/api/v1/namespaces/a/pods/b", accept, query)
    }

    fn negotiate_path(
        method: &Method,
        path: &str,
        accept: &str,
        query: &str,
    ) -> Result<(ResponseEncoding, ResponseTransform), String> {
        let request =
            crate::request::parse_resource_request(method, path, Query::parse(query), &ApiResourceConfig::default());
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        let options = MediaTypeOptions::negotiate(&headers, &request.unwrap().unwrap());
        options.map(|options| (options.encoding, options.transform)).map_err(|status| status.message)
    }

    #[test]
    fn supported_clause_with_the_highest_quality_wins() {
        assert_eq!(negotiate_pod("", ""), Ok((ResponseEncoding::Json, ResponseTransform::Object)));
        assert_eq!(negotiate_pod("application/yaml", ""), Ok((ResponseEncoding::Yaml, ResponseTransform::Object)));
        let tables = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(
            negotiate_pod(tables, "includeObject=None"),
            Ok((ResponseEncoding::Json, ResponseTransform::Table(IncludeObject::None)))
        );
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(negotiate_pod(metadata, ""), Ok((ResponseEncoding::Protobuf, ResponseTransform::Metadata)));
        assert_eq!(
            negotiate_pod("application/json;q=0.1, application/yaml", ""),
            Ok((ResponseEncoding::Yaml, ResponseTransform::Object))
        );
        assert_eq!(
            negotiate_pod("*/*, application/vnd.kubernetes.protobuf", ""),
            Ok((ResponseEncoding::Protobuf, ResponseTransform::Object))
        );
    }

    #[test]
    fn unsupported_media_types_are_not_acceptable() {
        let all = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let router = format!("406: Not Acceptable\n\nAvailable representations: {all}");
        assert_eq!(negotiate_pod("text/html", ""), Err(router.clone()));
        assert_eq!(negotiate_pod("application/cbor", ""), Err(router));
        let handler = format!("only the following media types are accepted: {all}");
        assert_eq!(negotiate_pod("application/json;as=Nope;v=v1;g=meta.k8s.io", ""), Err(handler.clone()));
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        for path in [
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "/api/v1/namespaces/a/serviceaccounts/b/token",
            "/api/v1/namespaces/a/pods/b/eviction",
            "/api/v1/namespaces/a/bindings",
        ] {
            assert_eq!(negotiate_path(&Method::POST, path, table, ""), Err(handler.clone()), "{path} has no table");
            assert_eq!(
                negotiate_path(&Method::POST, path, metadata, ""),
                Ok((ResponseEncoding::Json, ResponseTransform::Metadata))
            );
        }
        assert!(negotiate_path(&Method::POST, "/api/v1/namespaces/a/pods", table, "").is_ok());
    }
}
