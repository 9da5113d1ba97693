//! The pipeline's way to another server: as any request up to authorization, by what its path says it is about.

use std::sync::Arc;

use api::status::Status;
use http::{Request, Response};

use super::{Api, pass};
use crate::{
    Body, Caller, Server,
    authorize::Question,
    deadline,
    flow::{self, Asked},
    form::Form,
    metrics::InFlight,
    pipeline,
    query::Query,
};

/// Answers a request that another server is to answer.
pub async fn answer(
    server: &Server,
    caller: &Caller,
    form: Form,
    api: Arc<Api>,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let path = request.uri().path().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let question = Question::of_path(request.method(), &path, &query);
    let other = pipeline::as_other(server, caller, request.headers_mut(), &question).await?;
    let caller = other.as_ref().unwrap_or(caller);
    let (asked, verb, subresource) = match &question {
        Question::Missing { info, .. } => (Asked::Elsewhere(info), info.verb, info.subresource.as_str()),
        _ => (Asked::Path(pipeline::verb_of(request.method()), &path), "get", ""),
    };
    let counted = InFlight::elsewhere(server, request.method(), &path, verb);
    let place = match flow::admit(server, caller, &asked).await {
        Ok(place) => place,
        Err(turned_away) => return Ok(counted.answered(turned_away)),
    };
    let work = async {
        server.authorizers().answer(caller.identity(), &question).await?;
        Ok(pass::pass(server, &api, caller.identity(), verb == "watch", request).await)
    };
    let result = match deadline::of_parts(server, verb, subresource, &query) {
        Ok(deadline) => deadline.within(work).await,
        Err(status) => Err(status),
    };
    Ok(counted.answered(place.marked(form, result)))
}
