//! What expressions see of a request, as documents: in the version that the rules of who asks name.

use std::{borrow::Cow, sync::Arc};

use api::{Value, status::Status};
use apiserver_core::loopback;
use expressions::admission::Input;
use serde_json::json;

use super::{
    AdmissionAttributes,
    deferred_authorizer::DeferredAuthorizer,
    matching::{Invocation, namespace},
    subject::Subject,
};

/// What expressions are shown of a request.
pub struct VersionedAttributes<'v> {
    /// The object as it would be.
    pub object: Cow<'v, Value>,
    old: Cow<'v, Value>,
    request: Value,
    /// As conditions see it, where that differs.
    own_request: Option<Value>,
    namespace: &'v Value,
    resource: cel::Resource,
}

impl<'v> VersionedAttributes<'v> {
    /// Of a request, in a namespace as [`namespace_object`] finds it.
    pub async fn new(
        attributes: &'v AdmissionAttributes<'_>,
        invocation: Invocation,
        object: &'v Value,
        in_namespace: &'v Value,
    ) -> Result<Self, Status> {
        let subject = Subject { attributes, invocation };
        let mut request = Value::Object(subject.request(object));
        request["uid"] = "".into();
        // Conditions see the version of the object that the rules name, but the resource of the request.
        let own_request = (request["resource"] != request["requestResource"]).then(|| {
            let mut own = request.clone();
            own["resource"] = own["requestResource"].clone();
            own
        });
        let own = attributes.resource();
        let resource = cel::Resource {
            group: own.group.to_owned(),
            resource: own.name.to_owned(),
            subresource: attributes.subresource().to_owned(),
            namespace: namespace(attributes, object).to_owned(),
            name: attributes.name(object).to_owned(),
            ..cel::Resource::default()
        };
        Ok(Self {
            object: subject.shown(object).await?,
            old: subject.shown(attributes.old.unwrap_or(&Value::Null)).await?,
            request,
            own_request,
            namespace: in_namespace,
            resource,
        })
    }

    /// With parameters, for an evaluation whose questions are answered.
    pub fn input<'a>(&'a self, params: &'a Value, asking: &Arc<DeferredAuthorizer>) -> Input<'a> {
        Input {
            object: &self.object,
            old_object: &self.old,
            request: &self.request,
            own_request: self.own_request.as_ref().unwrap_or(&self.request),
            namespace: self.namespace,
            params,
            authorizer: asking.clone(),
            resource: self.resource.clone(),
        }
    }
}

/// The namespace that a request is in, as expressions see it; null if it is in none.
pub async fn namespace_object(attributes: &AdmissionAttributes<'_>) -> Result<Value, Status> {
    let name = attributes.namespace();
    if name.is_empty() || attributes.kind() == ("", "v1", "Namespace") {
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
