//! The one chain that every request goes through:
//! authenticate → count → flow control → authorize → route → (decode → default → admit → prepare → validate → store) → encode.
//!
//! The listener or the in-process service has authenticated; the registry does what is in parentheses.

use api::{Map, Value, apply, json, protobuf, schema::TypeId, status::Status, yaml};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};

use crate::{
    Body, Caller, Server, authorize, deadline,
    encode::{self, Form},
    flow::{self, Asked},
    headers, kubelet_proxy,
    metrics::InFlight,
    paths,
    query::Query,
    registry::{Outcome, WriteOptions},
    request::{self, Target},
    reviews, watch,
};

/// The content type of protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The content types that objects may be sent in.
const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The largest body of a request.
pub const MAX_BODY: usize = 3 << 20;

/// Answers one request of `caller`.
pub fn answer(server: Server, caller: Caller, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
    Box::pin(async move {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let audit_id = headers::audit_id(request.headers());
        let result = route(&server, &caller, request).await;
        let mut response = result.unwrap_or_else(|status| encode::error(&status));
        headers::finish(&mut response, audit_id);
        tracing::debug!(%method, %path, status = response.status().as_u16(), "answered");
        response
    })
}

async fn route(server: &Server, caller: &Caller, request: Request<Body>) -> Result<Response<Body>, Status> {
    if matches!(caller, Caller::Anonymous) && !server.shared.settings.serving.anonymous {
        return Err(Status::unauthorized());
    }
    let path = request.uri().path().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    match request::parse(request.method(), &path, query) {
        None => {
            let counted = InFlight::of_path(server, request.method(), &path);
            let asked = Asked::Path(verb_of(request.method()), &path);
            let place = match flow::admit(server, caller, &asked).await {
                Ok(place) => place,
                Err(turned_away) => return Ok(counted.answered(turned_away)),
            };
            let result = match authorize::path(caller.user(), verb_of(request.method()), &path) {
                Ok(()) => paths::answer(server, &request.into_parts().0).await,
                Err(status) => Err(status),
            };
            Ok(counted.answered(place.marked(result)))
        }
        Some(target) => {
            let target = target.inspect_err(|_| tracing::debug!(%path, "no such resource or verb"))?;
            let counted = InFlight::of(server, &target);
            let place = match flow::admit(server, caller, &Asked::Resource(&target)).await {
                Ok(place) => place,
                Err(turned_away) => return Ok(counted.answered(turned_away)),
            };
            let deadline = deadline::of(server, &target);
            let result = match deadline {
                Ok(deadline) => deadline.within(allowed(server, caller, target, request)).await,
                Err(status) => Err(status),
            };
            if result.as_ref().is_err_and(|status| status.code == 504) {
                server.shared.metrics.terminated(counted.key(), 504);
            }
            Ok(counted.answered(place.marked(result)))
        }
    }
}

async fn allowed(
    server: &Server,
    caller: &Caller,
    target: Target,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    authorize::target(caller.user(), &target)?;
    if !server.shared.settings.served.has(target.resource.group, target.resource.version) {
        return Ok(encode::no_page());
    }
    resource(server, caller, target, request).await
}

fn verb_of(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    }
}

async fn resource(
    server: &Server,
    caller: &Caller,
    target: Target,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    if kubelet_proxy::answers(&target.subresource) {
        return kubelet_proxy::answer(server, &target, request).await;
    }
    let form = Form::negotiate(request.headers(), &target)?;
    if target.verb == "watch" {
        return watch::answer(server, target, form).await;
    }
    let (content_type, user_agent) = (content_type(&request), user_agent(&request));
    let body = read(request).await?;
    let input = Input { content_type, user_agent, body };
    if reviews::is_review(target.resource) {
        let mut review = reviews::answer(caller.user(), &target, &input)?;
        own_review(&target, &input, &mut review)?;
        return Ok(encode::object(&target, form, review, 201));
    }
    let outcome = server.shared.registry.perform(&target, &input).await?;
    Ok(match outcome {
        Outcome::Document { value, revision } => encode::document(&target, form, &value, revision)?,
        Outcome::Object { object, code, warnings } => {
            encode::warned(encode::object(&target, form, object, code), &warnings)
        }
        Outcome::List(list) => encode::list(&target, form, list)?,
        Outcome::Success(status) => encode::json(200, &status),
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
    /// The body as an object; `kind` is what it should be, for messages.
    pub fn object(&self, kind: &str) -> Result<Value, Status> {
        self.strict_object(kind).map(|(object, _)| object)
    }

    /// The body as an object, and what a strict reader says of fields that are there twice.
    pub fn strict_object(&self, kind: &str) -> Result<(Value, Vec<String>), Status> {
        match self.content_type.as_str() {
            "" | "application/json" | "*/*" => match json::parse(&self.body) {
                Ok((object, twice)) => {
                    Ok((object, twice.iter().map(|path| format!("duplicate field {path:?}")).collect()))
                }
                Err(error) => Err(self.unreadable(kind, &format!("json parse error: {error}"))),
            },
            "application/yaml" => match yaml::parse(&self.body) {
                Ok(parsed) => {
                    let twice = parsed.violation().into_iter().collect();
                    Ok((parsed.value, twice))
                }
                Err(error) => Err(self.unreadable(kind, &format!("yaml parse error: {error}"))),
            },
            PROTOBUF => match protobuf::decode_object(&self.body) {
                Ok(object) => Ok((object, Vec::new())),
                Err(error) => Err(self.unreadable_protobuf(kind, &error)),
            },
            _ => Err(Status::unsupported_media_type(BODIES)),
        }
    }

    fn unreadable(&self, kind: &str, why: &str) -> Status {
        let start: String = String::from_utf8_lossy(&self.body).chars().take(200).collect();
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {why} ({start})"
        ))
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
        decoded.map_err(|error| self.unreadable_protobuf(kind, &error))
    }

    fn unreadable_protobuf(&self, kind: &str, error: &protobuf::Error) -> Status {
        Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {error}"))
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
