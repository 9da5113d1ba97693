//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: rules in CEL, bound to what they are about.
//!
//! Policies and bindings are compiled once per change and kept in a view. Expressions are evaluated without waiting for
//! anything: what they ask about rights is noted, answered, and then they are evaluated again with the answers (`asking`).
//! Evaluation has no effects and two questions exhaust what an expression may cost, so that this ends soon. No policy decides
//! over policies.

mod asking;
mod params;
mod source;
mod validating;

use std::sync::Arc;

use api::Value;
use expressions::admission::{Input, ValidatingPolicy};
use serde_json::json;

use self::{asking::Asking, source::Source};
use super::{
    About, Attributes, Operation, Row,
    matching::{Invocation, namespace},
    subject::Subject,
};
use crate::system;

const GROUP: &str = "admissionregistration.k8s.io";
const ALL: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

/// The row of policies that may only refuse.
pub const VALIDATING: Row = Row {
    name: "ValidatingAdmissionPolicy",
    on: true,
    about: &[About::everything(ALL)],
    make: |parts| {
        let resources = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        let policies = Source::new(parts, resources, ValidatingPolicy::compile)?;
        Ok(Box::new(validating::Validating { policies, authorizers: parts.authorizers.clone() }))
    },
};

/// Whether a request is about what no policy decides over: policies, and reviews that the cluster cannot do without.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let resource = attributes.resource();
    let policies = || resource.name.contains("admissionpolic");
    match resource.group {
        GROUP => policies(),
        "authentication.k8s.io" | "authorization.k8s.io" => resource.name.ends_with("reviews"),
        _ => false,
    }
}

/// What a policy is shown of a request.
struct Shown {
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
    resource: cel::Resource,
}

impl Shown {
    fn new(attributes: &Attributes<'_>, invocation: Invocation, object: &Value, in_namespace: &Value) -> Self {
        let subject = Subject { attributes, invocation };
        let mut request = subject.request(object);
        request.insert("uid".to_owned(), "".into());
        let own = attributes.resource();
        let resource = cel::Resource {
            group: own.group.to_owned(),
            resource: own.name.to_owned(),
            subresource: attributes.subresource().to_owned(),
            namespace: namespace(attributes, object).to_owned(),
            name: attributes.name(object).to_owned(),
            ..cel::Resource::default()
        };
        Self {
            object: subject.shown(object).into_owned(),
            old: subject.shown(attributes.old.unwrap_or(&Value::Null)).into_owned(),
            request: Value::Object(request),
            namespace: in_namespace.clone(),
            resource,
        }
    }

    fn input<'a>(&'a self, params: &'a Value, asking: &Arc<Asking>) -> Input<'a> {
        Input {
            object: &self.object,
            old_object: &self.old,
            request: &self.request,
            namespace: &self.namespace,
            params,
            authorizer: asking.clone(),
            resource: self.resource.clone(),
        }
    }
}

/// The namespace that a request is in, as policies see it; null if it is in none.
async fn namespace_object(attributes: &Attributes<'_>) -> Result<Value, api::status::Status> {
    let name = attributes.namespace();
    if name.is_empty() || attributes.kind() == ("", "v1", "Namespace") {
        return Ok(Value::Null);
    }
    let namespaces = system::resource("", "v1", "namespaces")?;
    let (found, _) = attributes.registry.read_object(namespaces, "", name).await?;
    let mut metadata = found["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences" | "selfLink"));
    }
    Ok(json!({"metadata": metadata, "spec": found["spec"], "status": found["status"]}))
}
