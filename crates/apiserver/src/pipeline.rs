//! The request pipeline: the stages that every request goes through, in order.
//!
//! authenticate → audit → impersonate → count → flow control → authorize → dispatch → (decode → default → admit → prepare →
//! validate → store) → encode. The registry runs the stages in parentheses. Requests of components in this process enter
//! authenticated. Built-in, custom, unknown and aggregated paths share one prologue ([`serve_request`]).

use std::{fmt, net::SocketAddr, panic::AssertUnwindSafe, sync::Arc};

use aggregator::ApiService;
use api::status::Status;
use apiserver_core::{
    Body, Caller, User,
    attributes::RequestAttributes,
    body::{RequestBody, text_response, user_agent},
    clock,
    negotiation::MediaTypeOptions,
    query::Query,
    request::{self, RequestInfo, ResourceRequest, is_streaming},
};
use audit::{AuditContext, Auditor};
use authn::{ANONYMOUS_USER, AuthenticationNotes, AuthenticationRequest};
use flowcontrol::{RejectedRequest, RequestDigest};
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use panics::PanicError;
use registry::RequestOutcome;
use tracing::Instrument;

use crate::{
    RequestOrigin, Server, connect, deadline, encode, headers, impersonate, metrics::InFlightRequest, paths, watch,
};

/// Response extension: the request was anonymous or unauthenticated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnonymousResponse;

/// Handles one request. A panic in a later stage is logged and answered with 500; it ends no other request.
pub(crate) fn handle_request(
    server: Server,
    origin: RequestOrigin,
    request: Request<Body>,
) -> BoxFuture<'static, Response<Body>> {
    let span = tracing::debug_span!("request", method = %request.method(), path = request.uri().path(), audit_id = tracing::field::Empty);
    Box::pin(handle_in_span(server, origin, request).instrument(span))
}

async fn handle_in_span(server: Server, origin: RequestOrigin, mut request: Request<Body>) -> Response<Body> {
    let started = std::time::Instant::now();
    let error_options = MediaTypeOptions::for_error(request.headers());
    let audit_id = headers::audit_id(request.headers());
    let span = tracing::Span::current();
    if !span.is_disabled() {
        span.record("audit_id", audit_id.to_str().unwrap_or_default());
    }
    let routed = RoutedRequest::parse(&server, &request);
    if matches!(routed.route, RequestRoute::Aggregated { .. }) {
        // The aggregated server audits the request under the same ID.
        request.headers_mut().insert(headers::AUDIT_ID, audit_id.clone());
    }
    let peer = origin.peer_address();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let authentication = tracing::debug_span!(target: "stage", "authentication");
    let (caller, notes) = authenticate_request(&server, origin, &mut request).instrument(authentication).await;
    let anonymous = caller.as_ref().is_none_or(|caller| caller.user().name == ANONYMOUS_USER);
    // Boxed, because a future of this size costs more to move than to allocate.
    let work: BoxFuture<'_, _> = match &server.shared.auditor {
        Some(auditor) => {
            let call = AuditedCall { caller, error_options, notes: &notes, peer, id: &audit_id };
            Box::pin(audit_request(&server, auditor, call, routed, request))
        }
        None => Box::pin(handle_authenticated(&server, caller, error_options, routed, request)),
    };
    let key = PanickedRequest { method: &method, path: &path, audit_id: &audit_id };
    let handled = panics::contain_future("apiserver", key, work).await;
    let mut response = handled.unwrap_or_else(|PanicError| panic_response());
    if anonymous {
        response.extensions_mut().insert(AnonymousResponse);
    }
    response = encode::add_warnings(response, &notes.warnings);
    headers::set_response_headers(&mut response, audit_id);
    let status = response.status().as_u16();
    tracing::debug!(target: "httplog", %method, path, status, duration = ?started.elapsed(), "request handled");
    response
}

/// A request in the log line of its panic.
struct PanickedRequest<'a> {
    method: &'a Method,
    path: &'a str,
    audit_id: &'a HeaderValue,
}

impl fmt::Display for PanickedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (audit ID {})", self.method, self.path, self.audit_id.to_str().unwrap_or_default())
    }
}

/// 500 in upstream's words.
fn panic_response() -> Response<Body> {
    let mut response = text_response("This request caused apiserver to panic. Look in the logs for details.\n");
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A request whose method, path and query are parsed.
struct RoutedRequest {
    method: Method,
    path: String,
    query: Query,
    route: RequestRoute,
}

/// The handler of a request.
enum RequestRoute {
    /// A resource of this server, built-in or custom.
    Resource(Box<ResourceRequest>),
    /// An aggregated API server; with the request info of a resource path.
    Aggregated { api: Arc<ApiService>, info: Option<RequestInfo> },
    /// Any other path. `status` is the response to a path below a group-version that names no resource.
    Path { info: Option<RequestInfo>, status: Option<Status> },
}

impl RoutedRequest {
    fn parse(server: &Server, request: &Request<Body>) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let query = Query::parse(request.uri().query().unwrap_or_default());
        if let Some(api) = server.aggregator().remote_for_path(&path) {
            let info = request::parse_request_info(&method, &path, &query);
            return Self { method, path, query, route: RequestRoute::Aggregated { api, info } };
        }
        let route = match request::parse_resource_request(&method, &path, query.clone(), server.resource_resolver()) {
            Some(Ok(target)) => RequestRoute::Resource(Box::new(target)),
            other => {
                let info = request::parse_request_info(&method, &path, &query);
                RequestRoute::Path { info, status: other.and_then(Result::err) }
            }
        };
        Self { method, path, query, route }
    }

    /// Builds authorizer attributes.
    fn authorizer_attributes(&self) -> RequestAttributes<'_> {
        match &self.route {
            RequestRoute::Resource(target) => RequestAttributes::from_resource_request(target),
            RequestRoute::Aggregated { info: Some(info), .. } | RequestRoute::Path { info: Some(info), .. } => {
                RequestAttributes::from_request_info(info, &self.query)
            }
            RequestRoute::Aggregated { info: None, .. } | RequestRoute::Path { info: None, .. } => {
                RequestAttributes::from_path(&self.method, &self.path)
            }
        }
    }

    /// The request as flow control classifies it.
    fn flow_digest(&self) -> RequestDigest<'_> {
        match &self.route {
            RequestRoute::Resource(target) => RequestDigest::Resource(target),
            RequestRoute::Aggregated { info: Some(info), .. } => RequestDigest::Aggregated(info),
            RequestRoute::Aggregated { info: None, .. } | RequestRoute::Path { .. } => {
                RequestDigest::NonResource(non_resource_verb(&self.method), &self.path)
            }
        }
    }

    /// Verb and subresource, as far as the path names a resource.
    fn verb_and_subresource(&self) -> (&str, &str) {
        match &self.route {
            RequestRoute::Resource(target) => (target.verb, &target.subresource),
            RequestRoute::Aggregated { info: Some(info), .. } | RequestRoute::Path { info: Some(info), .. } => {
                (info.verb, &info.subresource)
            }
            _ => ("get", ""),
        }
    }

    /// Whether the response is a stream: a watch, or a streaming subresource.
    fn is_long_running(&self) -> bool {
        let (verb, subresource) = self.verb_and_subresource();
        verb == "watch" || is_streaming(subresource)
    }

    fn start_counting(&self, server: &Server) -> InFlightRequest {
        match &self.route {
            RequestRoute::Resource(target) => InFlightRequest::for_resource(server, target),
            RequestRoute::Aggregated { .. } => {
                InFlightRequest::for_aggregated(server, &self.method, &self.path, self.verb_and_subresource().0)
            }
            RequestRoute::Path { .. } => InFlightRequest::for_path(server, &self.method, &self.path),
        }
    }
}

/// Authenticates the request and strips its credentials. Failures are logged, not returned.
async fn authenticate_request(
    server: &Server,
    origin: RequestOrigin,
    request: &mut Request<Body>,
) -> (Option<Caller>, AuthenticationNotes) {
    let peer = match origin {
        RequestOrigin::Component(user) => return (Some(Caller::Component(user)), AuthenticationNotes::default()),
        RequestOrigin::Peer(peer) => peer,
    };
    let authenticator = server.authenticator();
    let (path, mut headers) = (request.uri().path().to_owned(), std::mem::take(request.headers_mut()));
    let (audiences, notes) = (authenticator.audiences(), AuthenticationNotes::default());
    let mut shown = AuthenticationRequest { headers: &mut headers, peer: Some(&peer), path: &path, audiences, notes };
    let found = authenticator.authenticate_request(&mut shown).await;
    let notes = shown.notes;
    *request.headers_mut() = headers;
    let found = found
        .inspect_err(|error| tracing::info!(path, %error, "apiserver: authentication failed, responding with 401"));
    (found.ok().map(Caller::Client), notes)
}

/// Audit data of a request besides its attributes.
struct AuditedCall<'a> {
    caller: Option<Caller>,
    error_options: MediaTypeOptions,
    notes: &'a AuthenticationNotes,
    peer: Option<SocketAddr>,
    id: &'a HeaderValue,
}

impl AuditedCall<'_> {
    /// Begins the audit context of the request; `None` if the policy omits it.
    fn begin_audit(
        &self,
        auditor: &Arc<Auditor>,
        routed: &RoutedRequest,
        request: &Request<Body>,
    ) -> Option<Arc<AuditContext>> {
        let unauthenticated = User::default();
        let attributes = routed.authorizer_attributes();
        let attributes = attributes.attributes_for(self.caller.as_ref().map_or(&unauthenticated, Caller::user));
        let agent = user_agent(request);
        let about = audit::AuditedRequest {
            id: self.id.to_str().unwrap_or_default(),
            uri: request.uri().path_and_query().map_or(routed.path.as_str(), |uri| uri.as_str()),
            sources: audit::source_ips(request.headers(), self.peer),
            agent: &agent,
            received: clock::now(),
        };
        auditor.begin_audit(&about, &attributes)
    }
}

/// Handles a request and emits the audit events that the policy selects.
async fn audit_request(
    server: &Server,
    auditor: &Arc<Auditor>,
    call: AuditedCall<'_>,
    routed: RoutedRequest,
    request: Request<Body>,
) -> Response<Body> {
    let begun = call.begin_audit(auditor, &routed, &request);
    let AuditedCall { caller, error_options, notes, .. } = call;
    let Some(trail) = begun else {
        return handle_authenticated(server, caller, error_options, routed, request).await;
    };
    notes.annotations.iter().for_each(|(key, value)| trail.add_annotation(key, value.clone()));
    if caller.is_none() {
        // A request that fails authentication has only the stage of its response.
        return audit::record_rejection(&trail, encode::error_response(error_options, &Status::unauthorized())).await;
    }
    if let Err(status) = trail.process_stage(audit::Stage::RequestReceived).await {
        return encode::error_response(error_options, &status);
    }
    let stream = routed.is_long_running();
    let work = audit::run_with_audit_context(
        trail.clone(),
        Box::pin(handle_authenticated(server, caller, error_options, routed, request)),
    );
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(response) => audit::record_response(trail, stream, response).await,
        Err(panic) => {
            audit::record_panic(&trail).await;
            std::panic::resume_unwind(panic)
        }
    }
}

/// Serves an authenticated request; 401 without a caller.
async fn handle_authenticated(
    server: &Server,
    caller: Option<Caller>,
    error_options: MediaTypeOptions,
    routed: RoutedRequest,
    request: Request<Body>,
) -> Response<Body> {
    let result = match caller {
        Some(caller) => serve_request(server, caller, error_options, routed, request).await,
        None => Err(Status::unauthorized()),
    };
    result.unwrap_or_else(|status| encode::error_response(error_options, &status))
}

/// The prologue of every request: impersonation, counting, flow control, deadline, authorization; then dispatches it.
async fn serve_request(
    server: &Server,
    caller: Caller,
    error_options: MediaTypeOptions,
    mut routed: RoutedRequest,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let (attributes, span) = (routed.authorizer_attributes(), tracing::debug_span!(target: "stage", "impersonation"));
    let impersonated = impersonate_user(server, &caller, request.headers_mut(), &attributes).instrument(span).await?;
    let caller = impersonated.unwrap_or(caller);
    if let RequestRoute::Resource(target) = &mut routed.route {
        target.user = caller.user().clone();
    }
    let counted = routed.start_counting(server);
    let (digest, span) = (routed.flow_digest(), tracing::debug_span!(target: "stage", "flow control"));
    let permit = match server.shared.flow_controller.admit_request(&caller, &digest).instrument(span).await {
        Ok(permit) => permit,
        Err(rejected) => return Ok(counted.record_response(too_many_requests(&rejected))),
    };
    let (verb, subresource) = routed.verb_and_subresource();
    let result = match deadline::request_deadline(server, verb, subresource, &routed.query) {
        Ok(deadline) => {
            deadline.run_within(authorize_and_dispatch(server, &caller, error_options, routed, request)).await
        }
        Err(status) => Err(status),
    };
    if result.as_ref().is_err_and(|status| status.is_timeout()) {
        server.shared.metrics.count_terminated(counted.key(), 504);
    }
    let mut response = result.unwrap_or_else(|status| encode::error_response(error_options, &status));
    permit.add_headers(&mut response);
    Ok(counted.record_response(response))
}

/// Resolves the `Impersonate-*` headers; `None` if there are none.
async fn impersonate_user(
    server: &Server,
    caller: &Caller,
    headers: &mut HeaderMap,
    attributes: &RequestAttributes<'_>,
) -> Result<Option<Caller>, Status> {
    let attributes = attributes.attributes_for(caller.user());
    let modes = &server.shared.impersonation_modes;
    let found = impersonate::resolve_impersonation(server.authorizers(), modes, headers, &attributes).await?;
    Ok(found.map(|other| {
        tracing::debug!(requestor = caller.user().name, impersonated = other.user.name, "impersonating");
        audit::with_audit_context(|trail| trail.log_impersonated_user(&other.user, other.constraint));
        Caller::Client(other.user)
    }))
}

/// 429 in upstream's words.
pub(crate) fn too_many_requests(rejected: &RejectedRequest) -> Response<Body> {
    let mut response = text_response("Too many requests, please try again later.\n");
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    rejected.add_headers(&mut response);
    response
}

async fn authorize_and_dispatch(
    server: &Server,
    caller: &Caller,
    error_options: MediaTypeOptions,
    routed: RoutedRequest,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let (attributes, span) = (routed.authorizer_attributes(), tracing::debug_span!(target: "stage", "authorization"));
    server.authorizers().authorize_request(caller.user(), &attributes).instrument(span).await?;
    let watch = routed.verb_and_subresource().0 == "watch";
    // A future is copied whenever it becomes a part of another: from here on it is a pointer.
    match routed.route {
        RequestRoute::Resource(target) => serve_resource(server, caller, error_options, target, request).await,
        RequestRoute::Aggregated { api, .. } => {
            Ok(Box::pin(server.aggregator().proxy_request(&api, caller.user(), watch, request)).await)
        }
        RequestRoute::Path { status: Some(status), .. } => Err(status),
        RequestRoute::Path { status: None, .. } => Box::pin(paths::handle_path(server, &request.into_parts().0)).await,
    }
}

/// The verb of a request whose path names no resource.
fn non_resource_verb(method: &Method) -> &'static str {
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

/// Handles a resource request and adds its warnings to the response, errors included.
async fn serve_resource(
    server: &Server,
    caller: &Caller,
    error_options: MediaTypeOptions,
    target: Box<ResourceRequest>,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let mut deprecation = target.resource.deprecation_warning();
    if target.resource.custom_schema.is_some()
        && let Some(text) = deprecation.take()
    {
        // The deprecation warning of a custom resource version comes with errors too.
        target.warnings.add_warning(text);
    }
    let notes = target.warnings.clone();
    let handled = Box::pin(handle_resource(server, caller, target, request)).await;
    let warnings = notes.take_warnings();
    let response = match handled {
        Err(status) if !warnings.is_empty() => encode::error_response(error_options, &status),
        handled => handled?,
    };
    let response = encode::add_warnings(response, &warnings);
    Ok(match deprecation {
        Some(text) => encode::add_warnings(response, &[text]),
        None => response,
    })
}

async fn handle_resource(
    server: &Server,
    caller: &Caller,
    mut target: Box<ResourceRequest>,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    // The futures of rare requests are boxed, so that the others stay small.
    if is_streaming(&target.subresource) {
        return Box::pin(connect::handle_connect(server, caller, *target, request)).await;
    }
    let form = MediaTypeOptions::negotiate(request.headers(), &target)?;
    if target.verb == "watch" && watch::websocket::is_requested(request.headers()) {
        return Box::pin(watch::websocket::handle_websocket_watch(server, *target, form, request)).await;
    }
    if target.verb == "watch" {
        return Box::pin(watch::handle_watch(server, *target, form)).await;
    }
    let input = RequestBody::read_from(request).await?;
    if matches!(target.verb, "create" | "update") {
        target.raw_extensions = registry::raw_extensions_in_body(&target.resource, &input);
    }
    audit::with_audit_context(|trail| trail.log_request_object(&input));
    let span = tracing::debug_span!(
        target: "stage", "registry", verb = target.verb, resource = target.resource.name, namespace = target.namespace,
        name = target.name
    );
    let outcome = server.registry().handle_request(&target, &input).instrument(span).await?;
    Ok(match outcome {
        RequestOutcome::Document { value, revision } => encode::document_response(&target, form, &value, revision)?,
        RequestOutcome::Object { object, stored, code } => {
            encode::written_object_response(&target, form, object, stored, code)
        }
        RequestOutcome::List(list) => encode::list_response(&target, form, list)?,
        RequestOutcome::Objects(objects) => encode::objects_response(&target, form, objects, serde_json::json!({})),
        RequestOutcome::Success(status) => encode::success_response(form, &status),
    })
}
