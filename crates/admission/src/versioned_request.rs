//! The request as a webhook or policy receives it: objects in the matched version, and the `AdmissionRequest` fields.

use std::borrow::Cow;

use api::{
    Value, decode, defaults,
    schema::{Resource, TypeId, schema},
    status::Status,
};
use serde_json::{Map, json};

use super::{
    AdmissionAttributes,
    matching::{Invocation, request_namespace},
    request_options,
};

/// A request together with the version that it is matched as.
pub struct VersionedRequest<'a, 'b> {
    /// The admission attributes.
    pub attributes: &'b AdmissionAttributes<'a>,
    /// The matched resource and version.
    pub invocation: Invocation,
}

impl VersionedRequest<'_, '_> {
    /// Whether the written object is of the resource's own kind; a subresource of another kind has a single version.
    pub fn is_own_kind(&self) -> bool {
        self.attributes.group_version_kind().2 == self.attributes.resource().kind
    }

    /// Whether the matched version differs from the request's.
    pub fn is_converted(&self) -> bool {
        let (own, matched) = (self.attributes.resource(), &self.invocation.resource);
        (own.group, own.version) != (matched.group, matched.version) && self.is_own_kind()
    }

    /// Converts an object, new or old, to the matched version.
    pub async fn convert_object<'v>(&self, object: &'v Value) -> Result<Cow<'v, Value>, Status> {
        if object.is_null() || !self.is_converted() {
            return Ok(Cow::Borrowed(object));
        }
        let converted = self.attributes.registry.convert_to_version(&self.invocation.resource, object.clone()).await;
        // Upstream wraps the internal error twice.
        let converted = converted.map_err(|why| Status::internal_error(Status::internal_error(why.message).message))?;
        Ok(Cow::Owned(converted))
    }

    /// The schema type of the object in the matched version.
    pub fn object_type(&self) -> Result<TypeId, Status> {
        if self.is_own_kind() {
            return Ok(self.invocation.resource.ty);
        }
        let (group, version, kind) = self.attributes.group_version_kind();
        let object_type = schema().type_of_kind(group, version, kind);
        object_type.ok_or_else(|| Status::internal_error(format!("unknown kind {kind}")))
    }

    /// Converts a mutated object back to the request's version, with unknown fields dropped and defaults applied.
    pub async fn restore_request_version(&self, before: &Value, changed: Value) -> Result<Value, Status> {
        let completed = if self.is_own_kind() && self.invocation.resource.custom_schema.is_some() {
            api::request_body::decode_custom_value(&self.invocation.resource, changed, decode::FieldValidation::Ignore)?
                .0
        } else {
            let ty = self.object_type()?;
            let mut completed = decode::canonicalize(ty, changed).map_err(Status::internal_error)?.object;
            defaults::apply_defaults(ty, &mut completed);
            completed
        };
        let mut object = match self.is_converted() {
            true => self.attributes.registry.convert_to_version(self.attributes.resource(), completed).await?,
            false => completed,
        };
        for field in ["apiVersion", "kind"] {
            object[field] = before[field].clone();
        }
        Ok(object)
    }

    /// Builds the `AdmissionRequest` fields other than the objects.
    pub fn admission_request(&self, object: &Value) -> Map<String, Value> {
        let attributes = self.attributes;
        let (own, matched) = (attributes.resource(), &self.invocation.resource);
        let (group, version, kind) = attributes.group_version_kind();
        let matched_kind =
            if self.is_own_kind() { (matched.group, matched.version, matched.kind) } else { (group, version, kind) };
        let kind_of =
            |(group, version, kind): (&str, &str, &str)| json!({"group": group, "version": version, "kind": kind});
        let resource_of = |descriptor: &Resource| json!({"group": descriptor.group, "version": descriptor.version, "resource": descriptor.name});
        let mut request = Map::from_iter([
            ("kind".to_owned(), kind_of(matched_kind)),
            ("resource".to_owned(), resource_of(matched)),
            ("requestKind".to_owned(), kind_of((group, version, kind))),
            ("requestResource".to_owned(), resource_of(own)),
            ("operation".to_owned(), attributes.operation.name().into()),
            ("userInfo".to_owned(), self.user_info()),
            ("dryRun".to_owned(), attributes.dry_run.into()),
        ]);
        let texts = [
            ("subResource", attributes.subresource()),
            ("requestSubResource", attributes.subresource()),
            ("name", attributes.object_name(object)),
            ("namespace", request_namespace(attributes, object)),
        ];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            request.insert(field.to_owned(), text.into());
        }
        let options = request_options::request_options(attributes);
        if !options.is_null() {
            request.insert("options".to_owned(), options);
        }
        request
    }

    fn user_info(&self) -> Value {
        let user = self.attributes.user();
        let mut info = json!({"username": user.name, "groups": user.groups});
        if !user.uid.is_empty() {
            info["uid"] = user.uid.as_str().into();
        }
        if !user.extra.is_empty() {
            info["extra"] = json!(user.extra);
        }
        info
    }
}
