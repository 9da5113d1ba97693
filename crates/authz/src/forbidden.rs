//! What somebody who may not is told.

use api::status::Status;
use apiserver_core::attributes::{Attributes, AttributesTarget};
use serde_json::json;

use super::Reason;

/// 403 with upstream's sentence; 500 where an authorizer failed.
pub fn status(attributes: &Attributes<'_>, reason: &Reason) -> Status {
    if let Some(error) = reason.error() {
        tracing::warn!(error, "an authorizer failed");
        return Status::internal_error(error);
    }
    let mut why = sanitized(&sentence(attributes));
    let reason = reason.to_string();
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let (message, details) = match &attributes.target {
        AttributesTarget::NonResource(_) => (format!("forbidden: {why}"), json!({})),
        AttributesTarget::Resource(asked) => {
            let mut details = json!({"kind": asked.resource});
            let mut about = asked.resource.to_owned();
            if !asked.group.is_empty() {
                details["group"] = asked.group.into();
                about = format!("{about}.{}", asked.group);
            }
            if !asked.name.is_empty() {
                details["name"] = asked.name.into();
                about = format!("{about} {:?}", asked.name);
            }
            (format!("{about} is forbidden: {why}"), details)
        }
    };
    Status { code: 403, reason: "Forbidden", message, details: Some(details), continue_token: None }
}

/// Who cannot do what, where.
fn sentence(attributes: &Attributes<'_>) -> String {
    let (user, verb) = (&attributes.user.name, attributes.verb);
    let asked = match &attributes.target {
        AttributesTarget::NonResource(path) => return format!("User {user:?} cannot {verb} path {path:?}"),
        AttributesTarget::Resource(asked) => asked,
    };
    let resource = match asked.subresource {
        "" => asked.resource.to_owned(),
        subresource => format!("{}/{subresource}", asked.resource),
    };
    let scope = match asked.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}", asked.group)
}

/// Some clients show messages as HTML.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use apiserver_core::{User, attributes::ResourceAttributes};

    use super::*;

    fn check(verb: &str, asked: AttributesTarget<'_>, reason: Reason, want: &str) {
        let user = User { name: "al<ice".into(), ..User::default() };
        let status = status(&Attributes { user: &user, verb, target: asked }, &reason);
        assert_eq!((status.code, status.message.as_str()), (if reason.error().is_some() { 500 } else { 403 }, want));
    }

    #[test]
    fn the_sentence_is_upstreams() {
        let pods = ResourceAttributes {
            version: "v1",
            resource: "pods",
            namespace: "n",
            name: "p",
            ..ResourceAttributes::default()
        };
        check(
            "get",
            AttributesTarget::Resource(ResourceAttributes { subresource: "log", ..pods }),
            Reason::none(),
            "pods \"p\" is forbidden: User \"al&lt;ice\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"n\"",
        );
        let roles = ResourceAttributes {
            group: "rbac.authorization.k8s.io",
            resource: "clusterroles",
            ..ResourceAttributes::default()
        };
        check(
            "list",
            AttributesTarget::Resource(roles),
            "because <I> say so".into(),
            "clusterroles.rbac.authorization.k8s.io is forbidden: User \"al&lt;ice\" cannot list resource \"clusterroles\" in API \
             group \"rbac.authorization.k8s.io\" at the cluster scope: because <I> say so",
        );
        check(
            "post",
            AttributesTarget::NonResource("/x"),
            Reason::none(),
            "forbidden: User \"al&lt;ice\" cannot post path \"/x\"",
        );
        check(
            "post",
            AttributesTarget::NonResource("/x"),
            Reason::failed("no answer"),
            "Internal error occurred: no answer",
        );
    }
}
