//! Whether somebody may: `SubjectAccessReview`, `LocalSubjectAccessReview`, `SelfSubjectAccessReview` and
//! `SelfSubjectRulesReview`.

use std::collections::BTreeMap;

use api::{Value, meta, status::Status};
use serde_json::json;

use crate::{
    Server, User,
    authorize::{Asked, Attributes, Resource, Verdict},
    request::Target,
};

/// The answer to a review of this group.
pub async fn status(server: &Server, user: &User, target: &Target, review: &Value) -> Result<Value, Status> {
    match target.resource.kind {
        "SelfSubjectRulesReview" => Ok(json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        })),
        "SelfSubjectAccessReview" => Ok(decided(server, user, review).await),
        _ => Ok(decided(server, &subject(review), review).await),
    }
}

/// What the chain says of a question.
async fn decided(server: &Server, user: &User, review: &Value) -> Value {
    let text = |path: &[&str]| meta::text(review, path);
    let path = meta::at(review, &["spec", "nonResourceAttributes"]);
    let (verb, asked) = match path {
        Some(_) => (
            text(&["spec", "nonResourceAttributes", "verb"]),
            Asked::Path(text(&["spec", "nonResourceAttributes", "path"])),
        ),
        None => {
            let field = |name| text(&["spec", "resourceAttributes", name]);
            let asked = Resource {
                group: field("group"),
                version: field("version"),
                resource: field("resource"),
                subresource: field("subresource"),
                namespace: field("namespace"),
                name: field("name"),
                ..Resource::default()
            };
            (field("verb"), Asked::Resource(asked))
        }
    };
    let verdict = server.shared.authorizers.decide(&Attributes { user, verb, asked }).await;
    let mut status = json!({"allowed": verdict.is_allowed()});
    if let Verdict::Denied(_) = verdict {
        status["denied"] = true.into();
    }
    let reason = verdict.reason().to_string();
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    if let Some(error) = verdict.reason().error() {
        status["evaluationError"] = error.into();
    }
    status
}

/// Whom a review asks about.
fn subject(review: &Value) -> User {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = meta::at(review, &["spec", "extra"]).and_then(Value::as_object).into_iter().flatten();
    let extra: BTreeMap<_, _> = extra.map(|(name, values)| (name.to_lowercase(), texts(values))).collect();
    User {
        name: meta::text(review, &["spec", "user"]).to_owned(),
        groups: meta::at(review, &["spec", "groups"]).map(texts).unwrap_or_default(),
        uid: meta::text(review, &["spec", "uid"]).to_owned(),
        extra,
    }
}
