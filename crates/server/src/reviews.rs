//! Reviews: questions that are asked by creating an object, answered and not stored.

use api::{Value, meta, schema::Resource, status::Status, validate};
use serde_json::json;

use crate::{
    User,
    pipeline::Input,
    registry::{WriteOptions, body},
    request::Target,
};

/// Whether a resource is a question.
pub fn is_review(resource: &Resource) -> bool {
    matches!(resource.group, "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a review. Who has authenticated may do everything, so every access review of a known user says yes.
pub fn answer(user: &User, target: &Target, input: &Input) -> Result<Value, Status> {
    let resource = target.resource;
    let options = WriteOptions::of(target, input)?;
    let (mut review, _) = body(resource, input, options.validation)?;
    let errors = validate::create(resource, &review);
    if !errors.is_empty() {
        return Err(Status::invalid(resource, meta::name(&review), &errors));
    }
    review["status"] = match resource.kind {
        "SelfSubjectReview" => {
            let user = user.clone();
            let mut info = json!({"username": user.name, "groups": user.groups});
            if !user.uid.is_empty() {
                info["uid"] = user.uid.into();
            }
            if !user.extra.is_empty() {
                info["extra"] = json!(user.extra);
            }
            json!({"userInfo": info})
        }
        "TokenReview" => json!({"user": {}, "error": "invalid bearer token"}),
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        "SelfSubjectAccessReview" => json!({"allowed": true}),
        _ => json!({"allowed": known(&review)}),
    };
    Ok(review)
}

/// Whether the subject of a review could have authenticated.
fn known(review: &Value) -> bool {
    let user = meta::text(review, &["spec", "user"]);
    !matches!(user, "" | "system:anonymous")
}
