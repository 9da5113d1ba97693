//! The form of an answer, negotiated as upstream does: what `Accept` asks for, in the order of its wishes.
//!
//! Two refusals, in upstream's words: no type that the path offers at all, or none in the shape that was asked for.

use api::{status::Status, table::IncludeObject};
use http::{HeaderMap, header};
use serde_json::json;

use crate::{body::PROTOBUF, request::ResourceRequest};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const OFFERED: &[(&str, Encoding)] = &[(JSON, Encoding::Json), (YAML, Encoding::Yaml), (PROTOBUF, Encoding::Protobuf)];
const STREAMED: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Text for programs.
    Json,
    /// Text for people.
    Yaml,
    /// Bytes for programs.
    Protobuf,
}

impl Encoding {
    /// Its content type.
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => PROTOBUF,
        }
    }
}

/// What is shown of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseTransform {
    /// All of it.
    Object,
    /// A row of a table.
    Table(IncludeObject),
    /// Its metadata.
    Metadata,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTypeOptions {
    /// How it is written.
    pub encoding: Encoding,
    /// What it shows.
    pub shape: ResponseTransform,
    /// The version of tables and metadata: `v1`, or `v1beta1` for clients of older days.
    pub version: &'static str,
    /// Whether JSON is laid out for people.
    pub pretty: bool,
    /// Whether a large answer is compressed.
    pub gzip: bool,
}

impl Default for MediaTypeOptions {
    fn default() -> Self {
        Self { encoding: Encoding::Json, shape: ResponseTransform::Object, version: "v1", pretty: false, gzip: false }
    }
}

impl MediaTypeOptions {
    /// The first form in `Accept` that can be served.
    pub fn negotiate(headers: &HeaderMap, target: &ResourceRequest) -> Result<Self, Status> {
        let accept = accept(headers);
        let lists = target.name.is_empty() && matches!(target.verb, "list" | "watch");
        offered(accept, lists)?;
        let clauses = clauses(accept);
        let found = clauses.iter().find_map(|clause| Self::of(clause, target));
        let mut form = found.ok_or_else(|| Status::not_acceptable(&types().join(", ")))?;
        if target.verb == "watch" && form.encoding == Encoding::Yaml {
            return Err(Status::not_acceptable(STREAMED));
        }
        // A line of a watch is one line.
        form.pretty = target.verb != "watch" && (form.pretty || is_read_by_people(headers, target));
        form.gzip = matches!(target.verb, "get" | "list") && takes_gzip(headers);
        Ok(form)
    }

    /// The form in which an error is told: whatever `Accept` asks for, but JSON rather than nothing.
    pub fn for_error(headers: &HeaderMap) -> Self {
        let clauses = clauses(accept(headers));
        let encoding = clauses.iter().find_map(|clause| encodings(clause).next()).unwrap_or(Encoding::Json);
        Self { encoding, pretty: is_for_people(headers), ..Self::default() }
    }

    fn of(clause: &Clause, target: &ResourceRequest) -> Option<Self> {
        encodings(clause).find_map(|encoding| {
            let (shape, version) = shape(clause, encoding, target)?;
            if !fits(encoding, shape, target) {
                return None;
            }
            Some(Self { encoding, shape, version, pretty: clause.get("pretty") == Some("1"), gzip: false })
        })
    }

    /// Whether stored documents can be sent as they are.
    pub fn is_plain(&self) -> bool {
        self.encoding == Encoding::Json && self.shape == ResponseTransform::Object && !self.pretty
    }
}

fn accept(headers: &HeaderMap) -> &str {
    let text = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text.trim().is_empty() { "*/*" } else { text }
}

/// The media types of responses, in the order of preference.
pub fn types() -> Vec<&'static str> {
    OFFERED.iter().map(|(media, _)| *media).collect()
}

/// Whether a path offers any of the types at all: upstream's router looks at them before anything else.
fn offered(accept: &str, lists: bool) -> Result<(), Status> {
    let mut types = types();
    let known = |choice: &str| {
        let media = choice.split(';').next().unwrap_or_default().trim();
        media == "*/*" || types.contains(&media)
    };
    if accept.split(',').any(known) {
        return Ok(());
    }
    if lists {
        types.push(STREAMED);
    }
    Err(not_offered(&types))
}

/// 406: a path has only these types.
pub fn not_offered(types: &[&str]) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", types.join(", "));
    Status { code: 406, reason: "NotAcceptable", message, details: Some(json!({})), continue_token: None }
}

/// One wish of a client.
struct Clause<'a> {
    media: (&'a str, &'a str),
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }
}

/// The wishes, the dearest first; among equals, the more particular first.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause> = accept.split(',').filter_map(clause).collect();
    let vague = |clause: &Clause| u8::from(clause.media.0 == "*") + u8::from(clause.media.1 == "*");
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(vague(a).cmp(&vague(b))));
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next()?.split_once('/')?;
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let quality = parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, value)| value.parse().ok());
    Some(Clause { media, parameters, quality: quality.unwrap_or(1.0) })
}

/// Whether a form can be served: custom resources have no protobuf, but what is shown of them may.
fn fits(encoding: Encoding, shape: ResponseTransform, target: &ResourceRequest) -> bool {
    let whole = matches!(shape, ResponseTransform::Object) && target.subresource != "scale";
    encoding != Encoding::Protobuf || target.resource.custom_schema.is_none() || !whole
}

fn encodings<'a>(clause: &'a Clause<'a>) -> impl Iterator<Item = Encoding> + 'a {
    let (kind, sub) = clause.media;
    let matches = move |media: &str| {
        let Some((k, s)) = media.split_once('/') else { return false };
        (kind == k || kind == "*") && (sub == s || sub == "*")
    };
    OFFERED.iter().filter(move |(media, _)| matches(media)).map(|(_, encoding)| *encoding)
}

fn shape(clause: &Clause, encoding: Encoding, target: &ResourceRequest) -> Option<(ResponseTransform, &'static str)> {
    if clause.get("stream").is_some_and(|stream| stream != "watch" || encoding == Encoding::Yaml) {
        return None;
    }
    let (Some(kind), group, version) = (clause.get("as"), clause.get("g"), clause.get("v")) else {
        return clause.get("g").or(clause.get("v")).is_none().then_some((ResponseTransform::Object, "v1"));
    };
    let version = match (group, version) {
        (Some("meta.k8s.io"), Some("v1")) => "v1",
        (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
        _ => return None,
    };
    let shape = match kind {
        "Table" if encoding != Encoding::Protobuf && target.is_kept() => {
            ResponseTransform::Table(match target.query.get("includeObject") {
                Some("None") => IncludeObject::None,
                Some("Object") => IncludeObject::Object,
                _ => IncludeObject::Metadata,
            })
        }
        "PartialObjectMetadata" | "PartialObjectMetadataList" => ResponseTransform::Metadata,
        _ => return None,
    };
    Some((shape, version))
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|choice| choice.split(';').next().unwrap_or_default().trim() == "gzip")
}

/// Whether somebody reads the answer on a screen: `pretty`, or the name of a program for people.
fn is_read_by_people(headers: &HeaderMap, target: &ResourceRequest) -> bool {
    if let Some(pretty) = target.query.get("pretty") {
        return matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    is_for_people(headers)
}

/// Whether the program that asks is one for people.
fn is_for_people(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{query::Query, request, resource_config::ApiResourceConfig};

    fn check(accept: &str, query: &str) -> Result<(Encoding, ResponseTransform), String> {
        of_path(&Method::GET, "/api/v1/namespaces/a/pods/b", accept, query)
    }

    fn of_path(
        method: &Method,
        path: &str,
        accept: &str,
        query: &str,
    ) -> Result<(Encoding, ResponseTransform), String> {
        let target = request::parse_resource_request(method, path, Query::parse(query), &ApiResourceConfig::default());
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        let form = MediaTypeOptions::negotiate(&headers, &target.unwrap().unwrap());
        form.map(|form| (form.encoding, form.shape)).map_err(|status| status.message)
    }

    #[test]
    fn the_dearest_wish_that_can_be_met_counts() {
        assert_eq!(check("", ""), Ok((Encoding::Json, ResponseTransform::Object)));
        assert_eq!(check("application/yaml", ""), Ok((Encoding::Yaml, ResponseTransform::Object)));
        let tables = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(
            check(tables, "includeObject=None"),
            Ok((Encoding::Json, ResponseTransform::Table(IncludeObject::None)))
        );
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(check(metadata, ""), Ok((Encoding::Protobuf, ResponseTransform::Metadata)));
        assert_eq!(
            check("application/json;q=0.1, application/yaml", ""),
            Ok((Encoding::Yaml, ResponseTransform::Object))
        );
        assert_eq!(
            check("*/*, application/vnd.kubernetes.protobuf", ""),
            Ok((Encoding::Protobuf, ResponseTransform::Object))
        );
    }

    #[test]
    fn what_is_not_offered_is_refused_in_upstreams_words() {
        let all = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let router = format!("406: Not Acceptable\n\nAvailable representations: {all}");
        assert_eq!(check("text/html", ""), Err(router.clone()));
        assert_eq!(check("application/cbor", ""), Err(router));
        let handler = format!("only the following media types are accepted: {all}");
        assert_eq!(check("application/json;as=Nope;v=v1;g=meta.k8s.io", ""), Err(handler.clone()));
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        for path in [
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "/api/v1/namespaces/a/serviceaccounts/b/token",
            "/api/v1/namespaces/a/pods/b/eviction",
            "/api/v1/namespaces/a/bindings",
        ] {
            assert_eq!(of_path(&Method::POST, path, table, ""), Err(handler.clone()), "{path} is not kept");
            assert_eq!(of_path(&Method::POST, path, metadata, ""), Ok((Encoding::Json, ResponseTransform::Metadata)));
        }
        assert!(of_path(&Method::POST, "/api/v1/namespaces/a/pods", table, "").is_ok());
    }
}
