//! Reviews: virtual resources whose create returns a decision.

mod access_review;
mod authentication;

use std::sync::{Arc, Weak};

use admission::AdmissionAttributes;
use api::{Value, apply, meta, schema::Resource, status::Status, validate};
use apiserver_core::{body::RequestBody, request::ResourceRequest};
use async_trait::async_trait;
use authn::{Authenticator, ReloadableAuthenticator};

use crate::{Registry, RequestOutcome, VirtualResource, WriteOptions, decode_request_body};

/// Handles access and authentication reviews.
pub struct ReviewHandler {
    /// Reviews tokens. The server owns it: it holds the registry, which must not hold it in turn.
    pub authenticator: Weak<ReloadableAuthenticator>,
}

impl ReviewHandler {
    fn authenticator(&self) -> Result<Arc<Authenticator>, Status> {
        let current = self.authenticator.upgrade().map(|authenticator| authenticator.get());
        current.ok_or_else(|| Status::internal_error("the server is stopping"))
    }
}

#[async_trait]
impl VirtualResource for ReviewHandler {
    async fn handle(
        &self,
        registry: &Registry,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let options = WriteOptions::from_request(request, body)?;
        let mut review = decode_request_body(request, &request.resource, body, options.validation)?;
        set_review_namespace(request, &mut review)?;
        apply::track_update(
            &options.apply_request(apply::ApplyTarget::for_resource(&request.resource, "")),
            None,
            &mut review,
        );
        let attributes = AdmissionAttributes::for_create(registry, request, options.dry_run);
        registry.admission().admit(&attributes, &mut review).await?;
        validate_review(&request.resource, &review)?;
        registry.admission().validate(&attributes, &review).await?;
        let object = match request.resource.group {
            "authentication.k8s.io" => {
                authentication::review_authentication(&*self.authenticator()?, request, review).await?
            }
            _ => access_review::review_access(registry.authorizers(), request, review).await?,
        };
        Ok(RequestOutcome::Object { object, stored: None, code: 201 })
    }
}

/// Validates a review; upstream's error has no kind.
fn validate_review(resource: &Resource, review: &Value) -> Result<(), Status> {
    let errors = validate::validate_create(resource, review);
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid_kind(resource.group, "", "", &errors)) }
}

/// Sets the namespace of the request; 400 if the review names another one.
fn set_review_namespace(request: &ResourceRequest, review: &mut Value) -> Result<(), Status> {
    let metadata = meta::metadata_mut(review);
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        given if given == request.namespace => {}
        _ if request.namespace.is_empty() => {
            metadata.remove("namespace");
        }
        "" => {
            metadata.insert("namespace".into(), request.namespace.clone().into());
        }
        _ => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
    }
    Ok(())
}
