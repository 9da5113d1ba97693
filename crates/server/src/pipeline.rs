//! The one chain that every request goes through:
//! authenticate → count → flow control → authorize → route → (decode → default → admit → prepare → validate → store) → encode.
//!
//! The in-process service has authenticated; the registry does what is in parentheses.

use api::{
    Map, Value, apply,
    decode::{self, Format},
    json, protobuf,
    schema::TypeId,
    status::Status,
    yaml,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};

use crate::{
    Body, Caller, Origin, Server,
    authenticate::{ANONYMOUS, Notes, Shown},
    deadline, encode,
    flow::{self, Asked},
    form::Form,
    headers,
    metrics::InFlight,
    paths,
    query::Query,
    registry::{Outcome, WriteOptions},
    request::{self, Target},
    reviews, streams, tokens, watch,
};

/// The content type of protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The content types that objects may be sent in.
const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The largest body of a request.
pub const MAX_BODY: usize = 3 << 20;

/// The answer is to somebody who is not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unknown;

/// Answers one request.
pub(crate) fn answer(server: Server, origin: Origin, mut request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
    Box::pin(async move {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let form = Form::of_error(request.headers());
        let audit_id = headers::audit_id(request.headers());
        let (caller, notes) = identify(&server, origin, &mut request).await;
        let (result, unknown) = match caller {
            Some(caller) => (route(&server, &caller, form, request).await, caller.user().name == ANONYMOUS),
            None => (Err(Status::unauthorized()), true),
        };
        let mut response = result.unwrap_or_else(|status| encode::error(form, &status));
        if unknown {
            response.extensions_mut().insert(Unknown);
        }
        response = encode::warned(response, &notes.warnings);
        headers::finish(&mut response, audit_id);
        tracing::debug!(%method, %path, status = response.status().as_u16(), "answered");
        response
    })
}

/// Finds out who asks, and takes away what shows it. Why it is nobody is for the log only.
async fn identify(server: &Server, origin: Origin, request: &mut Request<Body>) -> (Option<Caller>, Notes) {
    let peer = match origin {
        Origin::Component(user) => return (Some(Caller::Component(user)), Notes::default()),
        Origin::Peer(peer) => peer,
    };
    let authenticator = &server.shared.authenticator;
    let (path, mut headers) = (request.uri().path().to_owned(), std::mem::take(request.headers_mut()));
    let (audiences, notes) = (authenticator.audiences(), Notes::default());
    let mut shown = Shown { headers: &mut headers, peer: Some(&peer), path: &path, audiences, notes };
    let found = authenticator.authenticate(&mut shown).await;
    let notes = shown.notes;
    *request.headers_mut() = headers;
    let found = found.inspect_err(|why| tracing::info!(path, %why, "unable to authenticate the request"));
    (found.ok().map(Caller::Client), notes)
}

async fn route(server: &Server, caller: &Caller, form: Form, request: Request<Body>) -> Result<Response<Body>, Status> {
    let path = request.uri().path().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    match request::parse(request.method(), &path, query, &server.shared.settings.served) {
        unknown @ (None | Some(Err(_))) => {
            let counted = InFlight::of_path(server, request.method(), &path);
            let asked = Asked::Path(verb_of(request.method()), &path);
            let place = match flow::admit(server, caller, &asked).await {
                Ok(place) => place,
                Err(turned_away) => return Ok(counted.answered(turned_away)),
            };
            let head = request.into_parts().0;
            let result = match (known_path(server, caller, &head.method, &head.uri).await, unknown) {
                (Ok(()), Some(Err(status))) | (Err(status), _) => Err(status),
                (Ok(()), _) => paths::answer(server, &head).await,
            };
            Ok(counted.answered(place.marked(form, result)))
        }
        Some(Ok(mut target)) => {
            target.user = caller.user().clone();
            let counted = InFlight::of(server, &target);
            let place = match flow::admit(server, caller, &Asked::Resource(&target)).await {
                Ok(place) => place,
                Err(turned_away) => return Ok(counted.answered(turned_away)),
            };
            let deadline = deadline::of(server, &target);
            let result = match deadline {
                Ok(deadline) => deadline.within(allowed(server, caller, form, target, request)).await,
                Err(status) => Err(status),
            };
            if result.as_ref().is_err_and(|status| status.code == 504) {
                server.shared.metrics.terminated(counted.key(), 504);
            }
            Ok(counted.answered(place.marked(form, result)))
        }
    }
}

/// Whether the caller may ask for something that is no resource, or none that is there.
async fn known_path(server: &Server, caller: &Caller, method: &Method, uri: &Uri) -> Result<(), Status> {
    let path = uri.path();
    let query = Query::parse(uri.query().unwrap_or_default());
    match request::info(method, path, &query) {
        Some(info) => server.authorizers().check_info(caller.identity(), &info).await,
        None => server.authorizers().check_path(caller.identity(), method, path).await,
    }
}

async fn allowed(
    server: &Server,
    caller: &Caller,
    form: Form,
    target: Target,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    server.authorizers().check_target(caller.identity(), &target).await?;
    let deprecation = target.resource.deprecation();
    let notes = target.notes.clone();
    let answered = resource(server, caller, target, request).await;
    let warnings = notes.take_warnings();
    let response = match answered {
        // Who is refused is warned too.
        Err(status) if !warnings.is_empty() => encode::error(form, &status),
        answered => answered?,
    };
    let response = encode::warned(response, &warnings);
    Ok(match deprecation {
        Some(text) => encode::warned(response, &[text]),
        None => response,
    })
}

/// What a method is called where it is not about a resource.
fn verb_of(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "HEAD" => "head",
        "OPTIONS" => "options",
        _ => "get",
    }
}

async fn resource(
    server: &Server,
    caller: &Caller,
    target: Target,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    if streams::answers(&target.subresource) {
        return streams::answer(server, caller, target, request).await;
    }
    let form = Form::negotiate(request.headers(), &target)?;
    if target.verb == "watch" && watch::socket::is_asked_for(request.headers()) {
        return watch::socket::answer(server, target, form, request).await;
    }
    if target.verb == "watch" {
        return watch::answer(server, target, form).await;
    }
    let (content_type, user_agent) = (content_type(&request), user_agent(&request));
    let body = read(request).await?;
    let input = Input { content_type, user_agent, body };
    if reviews::is_review(target.resource) {
        let mut review = reviews::answer(server, caller.identity(), &target, &input).await?;
        own_review(&target, &input, &mut review)?;
        return Ok(encode::object(&target, form, review, 201));
    }
    if target.subresource == "token" {
        let (token, warnings) = tokens::answer(server, &target, &input).await?;
        return Ok(encode::warned(encode::object(&target, form, token, 201), &warnings));
    }
    let outcome = server.shared.registry.perform(&target, &input).await?;
    Ok(match outcome {
        Outcome::Document { value, revision } => encode::document(&target, form, &value, revision)?,
        Outcome::Object { object, code, warnings } => {
            encode::warned(encode::object(&target, form, object, code), &warnings)
        }
        Outcome::List(list) => encode::list(&target, form, list)?,
        Outcome::Success(status) => encode::success(form, &status),
    })
}

/// The body of a request, and what it says it is.
pub struct Input {
    /// Without parameters, in lower case; empty when absent.
    pub content_type: String,
    /// What the client says it is; empty when absent.
    pub user_agent: String,
    /// At most [`MAX_BODY`] bytes.
    pub body: Bytes,
}

impl Input {
    /// What the body is, as its content type says.
    pub fn format(&self) -> Result<Format, Status> {
        match self.content_type.as_str() {
            "" | "application/json" => Ok(Format::Json),
            "application/yaml" => Ok(Format::Yaml),
            PROTOBUF => Ok(Format::Protobuf),
            _ => Err(Status::unsupported_media_type(BODIES)),
        }
    }

    /// The body as an object; `kind` is what it should be, for messages.
    pub fn object(&self, kind: &str) -> Result<Value, Status> {
        let read = match self.format()? {
            Format::Json => json::parse(&self.body)
                .map(|(object, _)| object)
                .map_err(|error| format!("couldn't get version/kind; json parse error: {error}")),
            Format::Yaml => yaml::parse(&self.body).map(|parsed| parsed.value).map_err(|error| error.to_string()),
            Format::Protobuf => protobuf::decode_object(&self.body).map_err(|error| error.to_string()),
        };
        read.map_err(|why| decode::unrecognized(kind, &self.body, why))
    }

    /// The body as an object of a type that every group has, such as `DeleteOptions`, whatever group it says it is of.
    pub fn options(&self, ty: TypeId, kind: &str) -> Result<Value, Status> {
        if self.body.is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        if self.content_type != PROTOBUF {
            return self.object(kind);
        }
        let decoded = protobuf::open(&self.body).and_then(|unknown| protobuf::decode_as(ty, unknown.raw));
        decoded.map_err(|error| decode::unrecognized(kind, &self.body, error))
    }
}

fn content_type(request: &Request<Body>) -> String {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn user_agent(request: &Request<Body>) -> String {
    let value = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

/// The question is its client's, the answer is not.
fn own_review(target: &Target, input: &Input, review: &mut Value) -> Result<(), Status> {
    let options = WriteOptions::of(target, input)?;
    let writer = options.writer(apply::Kind::of(target.resource, ""));
    let mut question = review.clone();
    question["status"] = writer.kind.nothing()["status"].take();
    apply::update(&writer, None, &mut question);
    review["metadata"] = question["metadata"].take();
    Ok(())
}

async fn read(request: Request<Body>) -> Result<Bytes, Status> {
    match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Status::too_large(MAX_BODY)),
        Err(error) => Err(Status::bad_request(format!("cannot read the request's body: {error}"))),
    }
}

/// A body of bytes that are at hand.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
