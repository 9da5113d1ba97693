//! Match conditions: which requests a webhook is asked about, in CEL over the review.

use api::{Value, validate::FieldError};
use apiserver_core::attributes::{Attributes, AttributesTarget};
use expressions::authorization::Conditions;
use serde::Deserialize;
use serde_json::json;

/// One condition.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// An expression that is true for requests that the webhook is asked about.
    #[serde(default)]
    pub expression: String,
}

/// Compiles conditions; what is wrong with them is added to `errors`.
pub fn compile(conditions: &[Condition], field: &str, errors: &mut Vec<FieldError>) -> Conditions {
    Conditions::compile(conditions.iter().map(|condition| condition.expression.as_str()), field, errors)
}

/// A question as conditions see it: every text is there, empty or not.
pub fn request(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut request = json!({"user": user.name, "groups": user.groups, "uid": user.uid, "extra": user.extra});
    match &attributes.target {
        AttributesTarget::NonResource(path) => {
            request["nonResourceAttributes"] = json!({"verb": attributes.verb, "path": path})
        }
        AttributesTarget::Resource(asked) => {
            let mut about = json!({"namespace": asked.namespace, "verb": attributes.verb, "group": asked.group,
                "version": asked.version, "resource": asked.resource, "subresource": asked.subresource, "name": asked.name});
            let selectors = [("fieldSelector", &asked.selectors.fields), ("labelSelector", &asked.selectors.labels)];
            for (name, requirements) in selectors {
                if let Some(requirements) = requirements.to_value() {
                    about[name] = requirements;
                }
            }
            request["resourceAttributes"] = about;
        }
    }
    request
}
