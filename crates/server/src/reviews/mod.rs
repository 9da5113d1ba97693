//! Reviews: questions that are asked by creating an object, answered and not stored.

mod access;
mod authentication;

use api::{Value, meta, schema::Resource, status::Status, validate};

use crate::{
    Server, User,
    pipeline::Input,
    registry::{WriteOptions, body},
    request::Target,
};

/// Whether a resource is a question.
pub fn is_review(resource: &Resource) -> bool {
    matches!(resource.group, "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a review that `user` asks for: the question, with a status.
pub async fn answer(server: &Server, user: &User, target: &Target, input: &Input) -> Result<Value, Status> {
    let resource = &target.resource;
    let options = WriteOptions::of(target, input)?;
    let (mut review, _) = body(resource, input, options.validation)?;
    in_namespace(target, &mut review)?;
    let errors = validate::create(resource, &review);
    if !errors.is_empty() {
        return Err(Status::invalid(resource, meta::name(&review), &errors));
    }
    review["status"] = match resource.group {
        "authentication.k8s.io" => authentication::status(server, user, resource, &review).await?,
        _ => access::status(server, user, target, &review).await?,
    };
    Ok(review)
}

/// A question is about the namespace that it is asked in.
fn in_namespace(target: &Target, review: &mut Value) -> Result<(), Status> {
    match meta::namespace(review) {
        given if given == target.namespace => Ok(()),
        "" => {
            meta::metadata_mut(review).insert("namespace".into(), target.namespace.clone().into());
            Ok(())
        }
        _ => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}
