//! Whether somebody may: `SubjectAccessReview`, `LocalSubjectAccessReview`, `SelfSubjectAccessReview` and
//! `SelfSubjectRulesReview`.

use std::collections::BTreeMap;

use api::{Value, meta, status::Status};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    request::ResourceRequest,
    selectors::Selectors,
};
use authz::{Authorizers, Decision, ResolvedRules, Rule, aggregate};
use serde_json::json;

/// A review of this group with its answer.
pub async fn answer(authorizers: &Authorizers, target: &ResourceRequest, mut review: Value) -> Result<Value, Status> {
    review["status"] = match target.resource.kind {
        // Of the question nothing is left in the answer.
        "SelfSubjectRulesReview" => {
            let status = rules(authorizers, &target.user, &review)?;
            (review["metadata"], review["spec"]) = (json!({}), json!({}));
            status
        }
        "SelfSubjectAccessReview" => decided(authorizers, &target.user, &review).await,
        _ => decided(authorizers, &subject(&review), &review).await,
    };
    Ok(review)
}

/// What somebody may do in a namespace.
fn rules(authorizers: &Authorizers, user: &User, review: &Value) -> Result<Value, Status> {
    let namespace = meta::string_at(review, &["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let ResolvedRules { rules, incomplete, errors } = authorizers.rules_for(user, namespace);
    let resource = |rule: &Rule| {
        let mut value = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
        if !rule.names.is_empty() {
            value["resourceNames"] = json!(rule.names);
        }
        value
    };
    let resources: Vec<Value> = rules.iter().filter(|rule| !rule.resources.is_empty()).map(resource).collect();
    let path = |rule: &Rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths});
    let paths: Vec<Value> = rules.iter().filter(|rule| !rule.paths.is_empty()).map(path).collect();
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete});
    if let Some(error) = aggregate(errors) {
        status["evaluationError"] = error.into();
    }
    Ok(status)
}

/// What the chain says of a question.
async fn decided(authorizers: &Authorizers, user: &User, review: &Value) -> Value {
    let path = meta::value_at(review, &["spec", "nonResourceAttributes"]).filter(|path| path.is_object());
    let about = meta::value_at(review, &["spec", "resourceAttributes"]).unwrap_or(&Value::Null);
    let selectors = Selectors::of_review(about);
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
        verdict.reason().error().map(str::to_owned).into_iter().chain(ignored(&selectors)).collect();
    if !errors.is_empty() {
        status["evaluationError"] = errors.join("; ").into();
    }
    status
}

/// What of the selectors was not understood.
fn ignored(selectors: &Selectors) -> impl Iterator<Item = String> {
    let both = [("fieldSelector", &selectors.fields), ("labelSelector", &selectors.labels)];
    both.into_iter().filter(|(_, requirements)| requirements.error.is_some()).map(|(name, requirements)| {
        let how = if requirements.all.is_empty() { "ignored" } else { "partially ignored" };
        format!("spec.resourceAttributes.{name} {how} due to parse error")
    })
}

/// Whom a review asks about.
fn subject(review: &Value) -> User {
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
