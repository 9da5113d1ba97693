//! The one chain that every request goes through:
//! authenticate → count → flow control → authorize → route → (decode → default → admit → prepare → validate → store) → encode.
//!
//! The in-process service has authenticated; the registry does what is in parentheses.

use std::{net::SocketAddr, panic::AssertUnwindSafe, sync::Arc};

use api::{
    Map, Value,
    decode::{self, Format},
    json, protobuf,
    schema::TypeId,
    status::Status,
    yaml,
};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};

use crate::{
    Body, Caller, Origin, Server, User, aggregate,
    audit::{self, Auditor, Trail},
    authenticate::{ANONYMOUS, Notes, Shown},
    authorize::Question,
    clock, deadline, encode,
    flow::{self, Asked},
    form::Form,
    headers, impersonate,
    metrics::InFlight,
    paths,
    query::Query,
    registry::{self, Outcome},
    request::{self, Target},
    strategies, streams, watch,
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
        if server.aggregator().elsewhere(&path).is_some() {
            // Whoever answers tells of it under the same name.
            request.headers_mut().insert(headers::AUDIT_ID, audit_id.clone());
        }
        let peer = origin.address();
        let (caller, notes) = identify(&server, origin, &mut request).await;
        let unknown = caller.as_ref().is_none_or(|caller| caller.user().name == ANONYMOUS);
        let mut response = match &server.shared.auditor {
            Some(auditor) => {
                let call = Call { server: &server, caller, form, notes: &notes, peer, id: &audit_id };
                Box::pin(audited(auditor, call, request)).await
            }
            None => routed(&server, caller, form, request).await,
        };
        if unknown {
            response.extensions_mut().insert(Unknown);
        }
        response = encode::warned(response, &notes.warnings);
        headers::finish(&mut response, audit_id);
        tracing::debug!(%method, %path, status = response.status().as_u16(), "answered");
        response
    })
}

/// The answer to a caller, if there is one.
async fn routed(server: &Server, caller: Option<Caller>, form: Form, request: Request<Body>) -> Response<Body> {
    let result = match caller {
        Some(caller) => route(server, &caller, form, request).await,
        None => Err(Status::unauthorized()),
    };
    result.unwrap_or_else(|status| encode::error(form, &status))
}

/// A request whose caller is known, or known to be unknown.
struct Call<'a> {
    server: &'a Server,
    caller: Option<Caller>,
    form: Form,
    notes: &'a Notes,
    peer: Option<SocketAddr>,
    id: &'a HeaderValue,
}

impl Call<'_> {
    /// The trail that the request leaves, if any, and whether its answer is a stream.
    fn begin(&self, auditor: &Arc<Auditor>, request: &Request<Body>) -> (Option<Arc<Trail>>, bool) {
        let path = request.uri().path();
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let target = request::parse(request.method(), path, query.clone(), self.server.table());
        let target = target.and_then(Result::ok);
        let question = match &target {
            Some(target) => Question::of_target(target),
            None => Question::of_path(request.method(), path, &query),
        };
        let nobody = User::default();
        let asked = question.about(self.caller.as_ref().map_or(&nobody, Caller::identity));
        let agent = user_agent(request);
        let about = audit::Request {
            id: self.id.to_str().unwrap_or_default(),
            uri: request.uri().path_and_query().map_or(path, |uri| uri.as_str()),
            sources: audit::sources(request.headers(), self.peer),
            agent: &agent,
            received: clock::now(),
        };
        let stream = match &question {
            Question::Target { target, .. } => target.verb == "watch" || streams::answers(&target.subresource),
            Question::Missing { info, .. } => info.verb == "watch" || streams::answers(&info.subresource),
            Question::Path { .. } => false,
        };
        (auditor.begin(&about, &asked), stream)
    }
}

/// The answer to a request, of which the audit log is told as the policy says.
async fn audited(auditor: &Arc<Auditor>, call: Call<'_>, request: Request<Body>) -> Response<Body> {
    let (begun, stream) = call.begin(auditor, &request);
    let Call { server, caller, form, notes, .. } = call;
    let Some(trail) = begun else { return routed(server, caller, form, request).await };
    notes.annotations.iter().for_each(|(key, value)| trail.annotate(key, value.clone()));
    if caller.is_none() {
        // Nothing was begun: all that is told is that it was refused.
        return audit::refuse(&trail, encode::error(form, &Status::unauthorized())).await;
    }
    if let Err(status) = trail.reach(audit::Stage::RequestReceived).await {
        return encode::error(form, &status);
    }
    let work = audit::within(trail.clone(), routed(server, caller, form, request));
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(response) => audit::complete(trail, stream, response).await,
        Err(panic) => {
            audit::panicked(&trail).await;
            std::panic::resume_unwind(panic)
        }
    }
}

/// Finds out who asks, and takes away what shows it. Why it is nobody is for the log only.
async fn identify(server: &Server, origin: Origin, request: &mut Request<Body>) -> (Option<Caller>, Notes) {
    let peer = match origin {
        Origin::Component(user) => return (Some(Caller::Component(user)), Notes::default()),
        Origin::Peer(peer) => peer,
    };
    let authenticator = server.authenticator();
    let (path, mut headers) = (request.uri().path().to_owned(), std::mem::take(request.headers_mut()));
    let (audiences, notes) = (authenticator.audiences(), Notes::default());
    let mut shown = Shown { headers: &mut headers, peer: Some(&peer), path: &path, audiences, notes };
    let found = authenticator.authenticate(&mut shown).await;
    let notes = shown.notes;
    *request.headers_mut() = headers;
    let found = found.inspect_err(|why| tracing::info!(path, %why, "unable to authenticate the request"));
    (found.ok().map(Caller::Client), notes)
}

/// Who is to be asked for, where somebody asks as somebody else.
pub(crate) async fn as_other(
    server: &Server,
    caller: &Caller,
    headers: &mut HeaderMap,
    question: &Question<'_>,
) -> Result<Option<Caller>, Status> {
    let asked = question.about(caller.identity());
    let found = impersonate::impersonated(server.authorizers(), &server.shared.impersonators, headers, &asked).await?;
    Ok(found.map(|other| {
        tracing::debug!(requestor = caller.identity().name, other = other.user.name, "impersonates");
        audit::with(|trail| trail.impersonates(&other));
        Caller::Client(other.user)
    }))
}

async fn route(
    server: &Server,
    caller: &Caller,
    form: Form,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let path = request.uri().path().to_owned();
    if let Some(api) = server.aggregator().elsewhere(&path) {
        return Box::pin(aggregate::answer(server, caller, form, api, request)).await;
    }
    let query = Query::parse(request.uri().query().unwrap_or_default());
    match request::parse(request.method(), &path, query, server.table()) {
        unknown @ (None | Some(Err(_))) => {
            let counted = InFlight::of_path(server, request.method(), &path);
            let query = Query::parse(request.uri().query().unwrap_or_default());
            let question = Question::of_path(request.method(), &path, &query);
            let other = as_other(server, caller, request.headers_mut(), &question).await?;
            let caller = other.as_ref().unwrap_or(caller);
            let asked = Asked::Path(verb_of(request.method()), &path);
            let place = match flow::admit(server, caller, &asked).await {
                Ok(place) => place,
                Err(turned_away) => return Ok(counted.answered(turned_away)),
            };
            let head = request.into_parts().0;
            let may = server.authorizers().answer(caller.identity(), &question).await;
            let result = match (may, unknown) {
                (Ok(()), Some(Err(status))) | (Err(status), _) => Err(status),
                (Ok(()), _) => Box::pin(paths::answer(server, &head)).await,
            };
            Ok(counted.answered(place.marked(form, result)))
        }
        Some(Ok(mut target)) => {
            let other = as_other(server, caller, request.headers_mut(), &Question::of_target(&target)).await?;
            let caller = other.as_ref().unwrap_or(caller);
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

async fn allowed(
    server: &Server,
    caller: &Caller,
    form: Form,
    target: Target,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    server.authorizers().answer(caller.identity(), &Question::of_target(&target)).await?;
    let mut deprecation = target.resource.deprecation();
    if target.resource.custom.is_some()
        && let Some(text) = deprecation.take()
    {
        // Who uses an old version of a custom resource is told so also when he is refused.
        target.notes.warn(text);
    }
    let notes = target.notes.clone();
    // A future is copied whenever it becomes a part of another: from here on it is a pointer.
    let answered = Box::pin(resource(server, caller, target, request)).await;
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
pub(crate) fn verb_of(method: &Method) -> &'static str {
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
    mut target: Target,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    // What few ask for is put elsewhere, so that the rest has little to carry.
    if streams::answers(&target.subresource) {
        return Box::pin(streams::answer(server, caller, target, request)).await;
    }
    let form = Form::negotiate(request.headers(), &target)?;
    if target.verb == "watch" && watch::socket::is_asked_for(request.headers()) {
        return Box::pin(watch::socket::answer(server, target, form, request)).await;
    }
    if target.verb == "watch" {
        return Box::pin(watch::answer(server, target, form)).await;
    }
    let (content_type, user_agent) = (content_type(&request), user_agent(&request));
    let body = read(request).await?;
    let input = Input { content_type, user_agent, body };
    if matches!(target.verb, "create" | "update") {
        target.words = registry::words(&target.resource, &input);
    }
    audit::with(|trail| trail.sent(&input));
    let outcome = match strategies::of(&target.resource).answers(&target.subresource) {
        Some(answers) => Box::pin(answers.answer(server, &target, &input)).await?,
        None => server.shared.registry.perform(&target, &input).await?,
    };
    Ok(match outcome {
        Outcome::Document { value, revision } => encode::document(&target, form, &value, revision)?,
        Outcome::Object { object, stored, code } => encode::changed(&target, form, object, stored, code),
        Outcome::List(list) => encode::list(&target, form, list)?,
        Outcome::Objects(objects) => encode::objects(&target, form, objects, serde_json::json!({})),
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

    /// The body as what it is, whatever that is: an object, or a patch. `None` if it cannot be read.
    pub fn any(&self) -> Option<Value> {
        match self.content_type.as_str() {
            PROTOBUF => protobuf::decode_object(&self.body).ok(),
            kind if kind.ends_with("yaml") => yaml::parse(&self.body).ok().map(|parsed| parsed.value),
            _ => serde_json::from_slice(&self.body).ok(),
        }
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
