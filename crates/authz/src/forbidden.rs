//! Formats 403 Forbidden responses.

use api::status::Status;
use apiserver_core::attributes::{Attributes, AttributesTarget};
use serde_json::json;

use super::Reason;

/// Returns a 403 status with upstream's text; 500 if the authorizer failed.
pub fn forbidden_status(attributes: &Attributes<'_>, reason: &Reason) -> Status {
    if let Some(error) = reason.error() {
        tracing::warn!(error, "authorizer: failed, responding with 500");
        return Status::internal_error(error);
    }
    let mut text = escape_html(&describe_request(attributes));
    let reason = reason.to_string();
    if !reason.is_empty() {
        text = format!("{text}: {reason}");
    }
    let (message, details) = match &attributes.target {
        AttributesTarget::NonResource(_) => (format!("forbidden: {text}"), json!({})),
        AttributesTarget::Resource(resource) => {
            let mut details = json!({"kind": resource.resource});
            let mut subject = resource.resource.to_owned();
            if !resource.group.is_empty() {
                details["group"] = resource.group.into();
                subject = format!("{subject}.{}", resource.group);
            }
            if !resource.name.is_empty() {
                details["name"] = resource.name.into();
                subject = format!("{subject} {:?}", resource.name);
            }
            (format!("{subject} is forbidden: {text}"), details)
        }
    };
    Status { code: 403, reason: "Forbidden", message, details: Some(details), continue_token: None }
}

/// Describes the user, the verb and the resource of a request.
fn describe_request(attributes: &Attributes<'_>) -> String {
    let (user, verb) = (&attributes.user.name, attributes.verb);
    let target = match &attributes.target {
        AttributesTarget::NonResource(path) => return format!("User {user:?} cannot {verb} path {path:?}"),
        AttributesTarget::Resource(target) => target,
    };
    let resource = match target.subresource {
        "" => target.resource.to_owned(),
        subresource => format!("{}/{subresource}", target.resource),
    };
    let scope = match target.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}", target.group)
}

/// Escapes HTML, because browsers may show the message.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use apiserver_core::{User, attributes::ResourceAttributes};

    use super::*;

    fn assert_message(verb: &str, target: AttributesTarget<'_>, reason: Reason, want: &str) {
        let user = User { name: "al<ice".into(), ..User::default() };
        let status = forbidden_status(&Attributes { user: &user, verb, target }, &reason);
        assert_eq!((status.code, status.message.as_str()), (if reason.error().is_some() { 500 } else { 403 }, want));
    }

    #[test]
    fn forbidden_message_matches_upstream() {
        let pods = ResourceAttributes {
            version: "v1",
            resource: "pods",
            namespace: "n",
            name: "p",
            ..ResourceAttributes::default()
        };
        assert_message(
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
        assert_message(
            "list",
            AttributesTarget::Resource(roles),
            "because <I> say so".into(),
            "clusterroles.rbac.authorization.k8s.io is forbidden: User \"al&lt;ice\" cannot list resource \"clusterroles\" in API \
             group \"rbac.authorization.k8s.io\" at the cluster scope: because <I> say so",
        );
        assert_message(
            "post",
            AttributesTarget::NonResource("/x"),
            Reason::none(),
            "forbidden: User \"al&lt;ice\" cannot post path \"/x\"",
        );
        assert_message(
            "post",
            AttributesTarget::NonResource("/x"),
            Reason::from_error("no answer"),
            "Internal error occurred: no answer",
        );
    }
}
