//! Access reviews: `SubjectAccessReview`, `LocalSubjectAccessReview`, `SelfSubjectAccessReview` and
//! `SelfSubjectRulesReview`.

use std::collections::BTreeMap;

use api::{Value, meta, status::Status};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    request::ResourceRequest,
    selectors::RequestSelectors,
};
use authz::{Authorizers, Decision, PolicyRule, ResolvedRules, aggregate_errors};
use serde_json::json;

/// Sets the status of a review of this group.
pub async fn review_access(
    authorizers: &Authorizers,
    request: &ResourceRequest,
    mut review: Value,
) -> Result<Value, Status> {
    review["status"] = match request.resource.kind {
        // The response omits the spec of the request.
        "SelfSubjectRulesReview" => {
            let status = resolve_rules(authorizers, &request.user, &review)?;
            (review["metadata"], review["spec"]) = (json!({}), json!({}));
            status
        }
        "SelfSubjectAccessReview" => authorize_review(authorizers, &request.user, &review).await,
        _ => authorize_review(authorizers, &review_subject(&review), &review).await,
    };
    Ok(review)
}

/// Resolves the rules of a user in a namespace.
fn resolve_rules(authorizers: &Authorizers, user: &User, review: &Value) -> Result<Value, Status> {
    let namespace = meta::string_at(review, &["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let ResolvedRules { rules, incomplete, errors } = authorizers.rules_for(user, namespace);
    let resource = |rule: &PolicyRule| {
        let mut value = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
        if !rule.names.is_empty() {
            value["resourceNames"] = json!(rule.names);
        }
        value
    };
    let resources: Vec<Value> = rules.iter().filter(|rule| !rule.resources.is_empty()).map(resource).collect();
    let path = |rule: &PolicyRule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths});
    let paths: Vec<Value> = rules.iter().filter(|rule| !rule.paths.is_empty()).map(path).collect();
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete});
    if let Some(error) = aggregate_errors(errors) {
        status["evaluationError"] = error.into();
    }
    Ok(status)
}

/// Authorizes the attributes of a review.
async fn authorize_review(authorizers: &Authorizers, user: &User, review: &Value) -> Value {
    let path = meta::value_at(review, &["spec", "nonResourceAttributes"]).filter(|path| path.is_object());
    let about = meta::value_at(review, &["spec", "resourceAttributes"]).unwrap_or(&Value::Null);
    let selectors = RequestSelectors::from_review(about);
    let (verb, asked) = match path {
        Some(path) => {
            (meta::string_at(path, &["verb"]), AttributesTarget::NonResource(meta::string_at(path, &["path"])))
        }
        None => {
            let field = |name| meta::string_at(about, &[name]);
            let asked = ResourceAttributes {
                group: field("group"),
                version: if field("version").is_empty() { "*" } else { field("version") },
                resource: field("resource"),
                subresource: field("subresource"),
                namespace: field("namespace"),
                name: field("name"),
                selectors: &selectors,
            };
            (field("verb"), AttributesTarget::Resource(asked))
        }
    };
    let verdict = authorizers.authorize(&Attributes { user, verb, target: asked }).await;
    let mut status = json!({"allowed": verdict.is_allowed()});
    if let Decision::Denied(_) = verdict {
        status["denied"] = true.into();
    }
    let reason = verdict.reason().to_string();
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    let errors: Vec<String> =
        verdict.reason().error().map(str::to_owned).into_iter().chain(selector_errors(&selectors)).collect();
    if !errors.is_empty() {
        status["evaluationError"] = errors.join("; ").into();
    }
    status
}

/// Evaluation errors of selectors that do not parse.
fn selector_errors(selectors: &RequestSelectors) -> impl Iterator<Item = String> {
    let both = [("fieldSelector", &selectors.fields), ("labelSelector", &selectors.labels)];
    both.into_iter().filter(|(_, requirements)| requirements.error.is_some()).map(|(name, requirements)| {
        let how = if requirements.all.is_empty() { "ignored" } else { "partially ignored" };
        format!("spec.resourceAttributes.{name} {how} due to parse error")
    })
}

/// The user of a `SubjectAccessReview`.
fn review_subject(review: &Value) -> User {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = meta::value_at(review, &["spec", "extra"]).and_then(Value::as_object).into_iter().flatten();
    let extra: BTreeMap<_, _> = extra.map(|(name, values)| (name.clone(), texts(values))).collect();
    User {
        name: meta::string_at(review, &["spec", "user"]).to_owned(),
        groups: meta::value_at(review, &["spec", "groups"]).map(texts).unwrap_or_default(),
        uid: meta::string_at(review, &["spec", "uid"]).to_owned(),
        extra,
    }
}
