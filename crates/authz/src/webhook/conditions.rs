//! Match conditions of webhooks: CEL expressions over the SubjectAccessReview.

use api::{Value, validate::FieldError};
use apiserver_core::attributes::{Attributes, AttributesTarget};
use expressions::authorization::WebhookMatchConditions;
use serde::Deserialize;
use serde_json::json;

/// A match condition.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchCondition {
    /// A CEL expression that is true for matching requests.
    #[serde(default)]
    pub expression: String,
}

/// Compiles conditions and adds errors to `errors`.
pub fn compile_conditions(
    conditions: &[MatchCondition],
    field: &str,
    errors: &mut Vec<FieldError>,
) -> WebhookMatchConditions {
    WebhookMatchConditions::compile(conditions.iter().map(|condition| condition.expression.as_str()), field, errors)
}

/// Returns the request variable of conditions; all strings are present, empty or not.
pub fn request_variable(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut request = json!({"user": user.name, "groups": user.groups, "uid": user.uid, "extra": user.extra});
    match &attributes.target {
        AttributesTarget::NonResource(path) => {
            request["nonResourceAttributes"] = json!({"verb": attributes.verb, "path": path})
        }
        AttributesTarget::Resource(resource) => {
            let mut attributes_json = json!({"namespace": resource.namespace, "verb": attributes.verb, "group": resource.group,
                "version": resource.version, "resource": resource.resource, "subresource": resource.subresource, "name": resource.name});
            let selectors =
                [("fieldSelector", &resource.selectors.fields), ("labelSelector", &resource.selectors.labels)];
            for (name, requirements) in selectors {
                if let Some(requirements) = requirements.to_value() {
                    attributes_json[name] = requirements;
                }
            }
            request["resourceAttributes"] = attributes_json;
        }
    }
    request
}
