//! Subresources. Those of the object's own kind (`status`, `approval`, `resize`, …) use the generic update and patch;
//! subresources of other kinds have a file each.

mod binding;
mod budget;
mod eviction;
mod scale;

use api::{
    Value,
    schema::{Resource, ResourceRef, schema},
    status::Status,
};
use apiserver_core::{body::RequestBody, document::RawExtensions, query::Query, request::ResourceRequest};
use serde_json::json;

use super::{FieldValidation, Registry, RequestOutcome, object_decoder, update::UpdateScope};

impl Registry {
    pub(super) async fn handle_subresource(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        match (request.subresource.as_str(), request.verb) {
            ("scale", _) => self.handle_scale(request, body).await,
            ("binding" | "", "create") => self.bind_pod(request, body).await,
            ("eviction", "create") => self.evict_pod(request, body).await,
            (_, "get") => self.get_object(request).await,
            (_, "update") => self.update_in_scope(request, body, UpdateScope::Subresource).await,
            (_, "patch") => self.patch_in_scope(request, body, UpdateScope::Subresource).await,
            (other, _) => Err(Status::not_implemented(format!("{}/{other}", request.resource.qualified_name()))),
        }
    }
}

/// Decodes the body of a subresource request.
pub fn decode_subresource_body(
    request: &ResourceRequest,
    body: &RequestBody,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let kind = subresource_kind(request)?;
    let mut value = body.decode_object(kind.kind)?;
    // `policy/v1beta1` evictions have the same fields.
    if value["apiVersion"] == "policy/v1beta1" && kind.group == "policy" {
        value["apiVersion"] = kind.api_version().into();
        let (object, warnings) = object_decoder::decode_value(&kind, value, validation)?;
        request.warnings.add_warnings(warnings);
        return Ok(object);
    }
    object_decoder::decode_request_body(request, &kind, body, validation)
}

/// The kind of a subresource as a resource.
pub fn subresource_kind(request: &ResourceRequest) -> Result<Resource, Status> {
    let mut row: Resource = Resource::clone(&request.resource);
    let Some(sub) = request.resource.subresource(&request.subresource) else { return Ok(row) };
    (row.group, row.version) = sub.group_version.unwrap_or((row.group, row.version));
    row.kind = sub.kind;
    row.custom_schema = None;
    let ty = schema().type_of_kind(row.group, row.version, row.kind);
    row.ty = ty.ok_or_else(|| Status::internal_error(format!("the schema lacks {}", row.kind)))?;
    Ok(row)
}

/// A request of the server itself in the namespace and with the user of another request.
fn server_request(
    resource: impl Into<ResourceRef>,
    verb: &'static str,
    of: &ResourceRequest,
    name: &str,
) -> ResourceRequest {
    ResourceRequest {
        resource: resource.into(),
        verb,
        namespace: of.namespace.clone(),
        name: name.to_owned(),
        subresource: String::new(),
        query: Query::default(),
        user: of.user.clone(),
        warnings: of.warnings.clone(),
        raw_extensions: RawExtensions::default(),
    }
}

/// 201 with a `Status` of success.
fn created_status() -> RequestOutcome {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    RequestOutcome::Object { object: status, stored: None, code: 201 }
}
