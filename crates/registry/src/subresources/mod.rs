//! What is under an object's path and is an object itself. Parts of the object (`status`, `approval`, `resize`, …) are
//! changed by the same update and patch as the whole; kinds of their own have a file each.

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
pub use scale::{scale_of, set_replicas};
use serde_json::json;

use super::{FieldValidation, Outcome, Registry, create, update::UpdateScope};

impl Registry {
    pub(super) async fn subresource(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        match (target.subresource.as_str(), target.verb) {
            ("scale", _) => self.scale(target, input).await,
            ("binding" | "", "create") => self.bind(target, input).await,
            ("eviction", "create") => self.evict(target, input).await,
            (_, "get") => self.shown(target).await,
            (_, "update") => self.update_part(target, input, UpdateScope::Subresource).await,
            (_, "patch") => self.patch_part(target, input, UpdateScope::Subresource).await,
            (other, _) => Err(Status::not_implemented(format!("{}/{other}", target.resource.qualified_name()))),
        }
    }
}

/// The body of a request to a subresource of another kind than the object's.
pub fn posted(target: &ResourceRequest, input: &RequestBody, validation: FieldValidation) -> Result<Value, Status> {
    let kind = kind_of(target)?;
    let mut value = input.decode_object(kind.kind)?;
    // An eviction of the version before is the same.
    if value["apiVersion"] == "policy/v1beta1" && kind.group == "policy" {
        value["apiVersion"] = kind.api_version().into();
        let (object, warnings) = create::decoded(&kind, value, validation)?;
        target.notes.warn_all(warnings);
        return Ok(object);
    }
    create::body(target, &kind, input, validation)
}

/// The row of the kind that a subresource takes, as if it were a resource.
pub fn kind_of(target: &ResourceRequest) -> Result<Resource, Status> {
    let mut row: Resource = Resource::clone(&target.resource);
    let Some(sub) = target.resource.subresource(&target.subresource) else { return Ok(row) };
    (row.group, row.version) = sub.group_version.unwrap_or((row.group, row.version));
    row.kind = sub.kind;
    row.custom_schema = None;
    let ty = schema().type_of_kind(row.group, row.version, row.kind);
    row.ty = ty.ok_or_else(|| Status::internal_error(format!("the schema lacks {}", row.kind)))?;
    Ok(row)
}

/// A request of the server itself about an object in the namespace of another request.
fn own_request(
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
        notes: of.notes.clone(),
        words: RawExtensions::default(),
    }
}

/// 201, and nothing more to say.
fn done() -> Outcome {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Outcome::Object { object: status, stored: None, code: 201 }
}
