//! Reviews: questions that are asked by creating an object, answered and not stored.

mod access;
mod authentication;

use std::sync::Arc;

use admission::AdmissionAttributes;
use api::{Value, apply, meta, schema::Resource, status::Status, validate};
use apiserver_core::{body::RequestBody, request::ResourceRequest};
use async_trait::async_trait;
use authn::ReloadableAuthenticator;

use crate::{Outcome, Registry, VirtualResource, WriteOptions, body};

/// Answers reviews of access and of identity.
pub struct Reviews {
    /// Reviews tokens.
    pub authenticator: Arc<ReloadableAuthenticator>,
}

#[async_trait]
impl VirtualResource for Reviews {
    async fn handle(
        &self,
        registry: &Registry,
        target: &ResourceRequest,
        input: &RequestBody,
    ) -> Result<Outcome, Status> {
        let options = WriteOptions::of(target, input)?;
        let mut review = body(target, &target.resource, input, options.validation)?;
        in_namespace(target, &mut review)?;
        apply::track_update(&options.writer(apply::ApplyTarget::for_resource(&target.resource, "")), None, &mut review);
        let attributes = AdmissionAttributes::create(registry, target, options.dry_run);
        registry.admission().admit(&attributes, &mut review).await?;
        is_valid(&target.resource, &review)?;
        registry.admission().validate(&attributes, &review).await?;
        let object = match target.resource.group {
            "authentication.k8s.io" => authentication::answer(&self.authenticator.get(), target, review).await?,
            _ => access::answer(registry.authorizers(), target, review).await?,
        };
        Ok(Outcome::Object { object, stored: None, code: 201 })
    }
}

/// To upstream what is wrong has no kind by then.
fn is_valid(resource: &Resource, review: &Value) -> Result<(), Status> {
    let errors = validate::validate_create(resource, review);
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid_kind(resource.group, "", "", &errors)) }
}

/// A question is about the namespace that it is asked in.
fn in_namespace(target: &ResourceRequest, review: &mut Value) -> Result<(), Status> {
    let metadata = meta::metadata_mut(review);
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        given if given == target.namespace => {}
        _ if target.namespace.is_empty() => {
            metadata.remove("namespace");
        }
        "" => {
            metadata.insert("namespace".into(), target.namespace.clone().into());
        }
        _ => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
    }
    Ok(())
}
