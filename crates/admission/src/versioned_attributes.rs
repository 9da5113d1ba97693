//! Admission attributes as CEL variables, in the version that the matching rules name.

use std::{borrow::Cow, sync::Arc};

use api::{Value, status::Status};
use apiserver_core::loopback;
use expressions::admission::AdmissionInput;
use serde_json::json;

use super::{
    AdmissionAttributes,
    deferred_authorizer::DeferredAuthorizer,
    matching::{Invocation, request_namespace},
    versioned_request::VersionedRequest,
};

/// The variables of CEL expressions for one request: `object`, `oldObject`, `request` and `namespaceObject`.
pub struct VersionedAttributes<'v> {
    /// The new object in the matched version.
    pub object: Cow<'v, Value>,
    old: Cow<'v, Value>,
    request: Value,
    /// The `request` variable of match conditions, if it differs.
    own_request: Option<Value>,
    namespace: &'v Value,
    resource: cel::ResourceAttributes,
}

impl<'v> VersionedAttributes<'v> {
    /// Converts a request; `in_namespace` is the result of [`namespace_object`].
    pub async fn new(
        attributes: &'v AdmissionAttributes<'_>,
        invocation: Invocation,
        object: &'v Value,
        in_namespace: &'v Value,
    ) -> Result<Self, Status> {
        let versioned_request = VersionedRequest { attributes, invocation };
        let mut request = Value::Object(versioned_request.admission_request(object));
        request["uid"] = "".into();
        // Match conditions receive the object in the matched version, but the `resource` of the original request.
        let own_request = (request["resource"] != request["requestResource"]).then(|| {
            let mut own = request.clone();
            own["resource"] = own["requestResource"].clone();
            own
        });
        let own = attributes.resource();
        let resource = cel::ResourceAttributes {
            group: own.group.to_owned(),
            resource: own.name.to_owned(),
            subresource: attributes.subresource().to_owned(),
            namespace: request_namespace(attributes, object).to_owned(),
            name: attributes.object_name(object).to_owned(),
            ..cel::ResourceAttributes::default()
        };
        Ok(Self {
            object: versioned_request.convert_object(object).await?,
            old: versioned_request.convert_object(attributes.old.unwrap_or(&Value::Null)).await?,
            request,
            own_request,
            namespace: in_namespace,
            resource,
        })
    }

    /// Builds the evaluation input with parameters and the authorizer of `authorizer.…check()`.
    pub fn evaluation_input<'a>(
        &'a self,
        params: &'a Value,
        authorizer: &Arc<DeferredAuthorizer>,
    ) -> AdmissionInput<'a> {
        AdmissionInput {
            object: &self.object,
            old_object: &self.old,
            request: &self.request,
            own_request: self.own_request.as_ref().unwrap_or(&self.request),
            namespace: self.namespace,
            params,
            authorizer: authorizer.clone(),
            resource: self.resource.clone(),
        }
    }
}

/// Reads the request's namespace for the `namespaceObject` variable; null for cluster-scoped requests.
pub async fn namespace_object(attributes: &AdmissionAttributes<'_>) -> Result<Value, Status> {
    let name = attributes.namespace();
    if name.is_empty() || attributes.group_version_kind() == ("", "v1", "Namespace") {
        return Ok(Value::Null);
    }
    let namespaces = loopback::find_resource("", "v1", "namespaces")?;
    let (found, _) = attributes.registry.read_object(namespaces, "", name).await?;
    let mut metadata = found["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences" | "selfLink"));
    }
    Ok(json!({"metadata": metadata, "spec": found["spec"], "status": found["status"]}))
}
