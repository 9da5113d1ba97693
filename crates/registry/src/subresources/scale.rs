//! The `scale` subresource of workloads and custom resources.

use api::{
    Value,
    apply::{self},
    decode, meta,
    schema::schema,
    status::Status,
    validate::FieldError,
};
use apiserver_core::{body::RequestBody, request::ResourceRequest};

use super::decode_subresource_body;
use crate::{
    Registry, RequestOutcome, WriteOptions,
    apply::ApplyConfiguration,
    scale_object::{ScalePaths, scale_of, set_replicas},
    update::{APPLY_PATCH_TYPE, UpdateContext, UpdateScope, check_identity, decode_patch_body, patch_error_status},
};

impl Registry {
    pub(super) async fn handle_scale(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let scale = match request.verb {
            "get" => {
                let (object, _) = self.read_object(&request.resource, &request.namespace, &request.name).await?;
                ScalePaths::for_resource(&request.resource).check_spec_replicas(&object)?;
                scale_of(&request.resource, &object)
            }
            "update" => {
                let options = WriteOptions::from_request(request, body)?;
                let mut given = decode_subresource_body(request, body, options.validation)?;
                check_identity(request, &mut given)?;
                self.update_scale(request, &options, |shown, writer| track_scale_update(given.clone(), shown, writer))
                    .await?
            }
            _ if body.content_type == APPLY_PATCH_TYPE => {
                let options = WriteOptions::from_apply_request(request)?;
                let config = ApplyConfiguration::parse(&body.body)?.value;
                self.update_scale(request, &options, |scale, writer| {
                    apply::apply_config(writer, Some(scale), &config, options.force.unwrap_or_default())
                        .map_err(|error| error.to_status())
                })
                .await?
            }
            _ => {
                let (kind, patch) = decode_patch_body(&request.resource, body)?;
                let options = WriteOptions::from_request(request, body)?;
                self.update_scale(request, &options, |scale, writer| {
                    let patched = kind.apply_patch(writer.target.ty, scale, &patch).map_err(patch_error_status)?;
                    track_scale_update(patched, scale, writer)
                })
                .await?
            }
        };
        Ok(RequestOutcome::Object { object: scale, stored: None, code: 200 })
    }

    /// Lets `edit` build the new scale with managed fields and updates the object's replicas.
    async fn update_scale(
        &self,
        request: &ResourceRequest,
        options: &WriteOptions,
        mut edit: impl FnMut(&Value, &apply::ApplyRequest) -> Result<Value, Status>,
    ) -> Result<Value, Status> {
        let writer =
            options.apply_request(apply::ApplyTarget::for_kind("autoscaling/v1", "Scale", scale_type()?, "scale"));
        let (version, paths) = (request.resource.api_version(), ScalePaths::for_resource(&request.resource));
        let changed = self
            .update_object(request, UpdateContext::for_client(UpdateScope::Scale, options), |current| {
                let mut shown = canonical_scale(scale_of(&request.resource, current))?;
                apply::scale_ownership::copy_to_scale(current, &mut shown, &paths.spec)
                    .map_err(Status::internal_error)?;
                let scale = edit(&shown, &writer)?;
                if request.resource.custom_schema.is_none() {
                    validate_scale(&scale, &request.name)?;
                }
                let owners = apply::scale_ownership::merge_from_scale(current, &scale, &version, &paths.spec)
                    .map_err(Status::internal_error)?;
                let mut object = current.clone();
                owners.write_to(&mut object);
                for precondition in ["resourceVersion", "uid"] {
                    let named = meta::string_at(&scale, &["metadata", precondition]);
                    meta::metadata_mut(&mut object).insert(precondition.into(), named.into());
                }
                set_replicas(&request.resource, &mut object, &scale);
                Ok(object)
            })
            .await?;
        Ok(scale_of(&request.resource, &changed.object))
    }
}

fn scale_type() -> Result<api::schema::TypeId, Status> {
    schema().type_named("autoscaling/v1.Scale").ok_or_else(|| Status::internal_error("the schema lacks Scale"))
}

fn canonical_scale(scale: Value) -> Result<Value, Status> {
    let decoded = decode::canonicalize(scale_type()?, scale).map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(decoded.object)
}

/// Canonicalizes a client's scale and updates its managed fields.
fn track_scale_update(given: Value, shown: &Value, writer: &apply::ApplyRequest) -> Result<Value, Status> {
    let mut scale = canonical_scale(given)?;
    apply::track_update(writer, Some(shown), &mut scale);
    Ok(scale)
}

fn validate_scale(scale: &Value, name: &str) -> Result<(), Status> {
    let replicas = meta::integer_at(scale, &["spec", "replicas"]);
    if replicas >= 0 {
        return Ok(());
    }
    let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
    Err(Status::invalid_kind("autoscaling", "Scale", name, &[error]))
}
