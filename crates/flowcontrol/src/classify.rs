//! Classifies requests: the flow schema and the flow within it.

use std::hash::{DefaultHasher, Hash, Hasher};

use apiserver_core::{
    Caller, User,
    request::{RequestInfo, ResourceRequest},
};
use http::HeaderValue;

use super::config::{
    FlowControlConfig, FlowDistinguisherMethod, FlowSchema, PolicyRule, ResourcePolicyRule, RuleSubject,
};

/// The digest of a request that is classified.
pub enum RequestDigest<'a> {
    /// A resource request.
    Resource(&'a ResourceRequest),
    /// A non-resource request: verb and path.
    NonResource(&'static str, &'a str),
    /// A resource request for an aggregated API server.
    Aggregated(&'a RequestInfo),
}

/// The classification of a request.
pub struct Classification<'a> {
    /// The flow schema.
    pub schema: &'a FlowSchema,
    /// UID of the priority level.
    pub level_uid: HeaderValue,
    /// The flow.
    pub hash: u64,
}

impl RequestDigest<'_> {
    /// The verb.
    pub fn verb(&self) -> &'static str {
        match self {
            RequestDigest::Resource(target) => target.verb,
            RequestDigest::NonResource(verb, _) => verb,
            RequestDigest::Aggregated(info) => info.verb,
        }
    }

    /// Streams are long-running and exempt.
    pub fn is_stream_but_watch(&self) -> bool {
        match self {
            RequestDigest::Resource(target) => apiserver_core::request::is_streaming(&target.subresource),
            RequestDigest::Aggregated(info) => apiserver_core::request::is_streaming(&info.subresource),
            RequestDigest::NonResource(..) => false,
        }
    }

    fn namespace(&self) -> &str {
        match self {
            RequestDigest::Resource(target) => &target.namespace,
            RequestDigest::NonResource(..) => "",
            RequestDigest::Aggregated(info) => &info.namespace,
        }
    }
}

impl FlowControlConfig {
    /// Returns the first matching schema; a cluster has a catch-all.
    pub fn classify_request(&self, caller: &Caller, digest: &RequestDigest<'_>) -> Option<Classification<'_>> {
        let user = caller.user();
        let schema =
            self.schemas.iter().find(|schema| schema.rules.iter().any(|rule| rule_matches(rule, user, digest)))?;
        let mut hasher = DefaultHasher::new();
        schema.name.hash(&mut hasher);
        match schema.distinguisher {
            FlowDistinguisherMethod::None => {}
            FlowDistinguisherMethod::User => user.name.hash(&mut hasher),
            FlowDistinguisherMethod::Namespace => digest.namespace().hash(&mut hasher),
        }
        let level_uid = self.levels.get(&schema.level).map(|level| level.uid.clone());
        let level_uid = level_uid.unwrap_or_else(|| HeaderValue::from_static(""));
        Some(Classification { schema, level_uid, hash: hasher.finish() })
    }
}

fn rule_matches(rule: &PolicyRule, user: &User, digest: &RequestDigest<'_>) -> bool {
    rule.subjects.iter().any(|subject| subject_matches(subject, user))
        && match digest {
            RequestDigest::Resource(target) => rule
                .resources
                .iter()
                .any(|rule| resource_rule_matches(rule, &ResourceTarget::from_resource_request(target))),
            RequestDigest::Aggregated(info) => {
                rule.resources.iter().any(|rule| resource_rule_matches(rule, &ResourceTarget::from_request_info(info)))
            }
            RequestDigest::NonResource(verb, path) => rule.paths.iter().any(|rule| {
                matches_any(&rule.verbs, verb) && rule.paths.iter().any(|wanted| path_matches(wanted, path))
            }),
        }
}

fn subject_matches(subject: &RuleSubject, user: &User) -> bool {
    match subject {
        RuleSubject::User(name) => name == "*" || *name == user.name,
        RuleSubject::Group(name) => name == "*" || user.groups.contains(name),
        RuleSubject::Account(namespace, name) => {
            let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            account.is_some_and(|(n, a)| n == namespace && (name == "*" || name == a))
        }
    }
}

/// The resource attributes of a request.
struct ResourceTarget<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
}

impl<'a> ResourceTarget<'a> {
    fn from_resource_request(target: &'a ResourceRequest) -> Self {
        let (group, resource) = (target.resource.group, target.resource.name);
        let (subresource, namespace) = (&target.subresource, &target.namespace);
        Self { verb: target.verb, group, resource, subresource, namespace }
    }

    fn from_request_info(info: &'a RequestInfo) -> Self {
        let RequestInfo { verb, group, resource, subresource, namespace, .. } = info;
        Self { verb, group, resource, subresource, namespace }
    }
}

fn resource_rule_matches(rule: &ResourcePolicyRule, target: &ResourceTarget<'_>) -> bool {
    let named = |wanted: &String| match target.subresource {
        "" => wanted == target.resource,
        sub => wanted.split_once('/').is_some_and(|(name, wanted)| name == target.resource && wanted == sub),
    };
    matches_any(&rule.verbs, target.verb)
        && matches_any(&rule.groups, target.group)
        && rule.resources.iter().any(|wanted| wanted == "*" || named(wanted))
        && match target.namespace {
            "" => rule.cluster,
            namespace => matches_any(&rule.namespaces, namespace),
        }
}

fn matches_any(list: &[String], value: &str) -> bool {
    list.iter().any(|one| one == "*" || one == value)
}

fn path_matches(wanted: &str, path: &str) -> bool {
    wanted == "*" || wanted == path || wanted.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use apiserver_core::query::Query;
    use http::Method;

    use super::*;

    fn assert_classified(user: Option<(&str, &[&str])>, path: &str, want: &str) {
        let objects = crate::bootstrap::bootstrap_objects().unwrap().into_iter().map(|(_, object)| object);
        let (schemas, levels): (Vec<_>, Vec<_>) = objects.partition(|object| object["spec"].get("rules").is_some());
        let config = FlowControlConfig::from_objects(schemas.iter(), levels.iter());
        let (name, groups) = user.unwrap_or(("system:anonymous", &["system:unauthenticated"]));
        let groups = groups.iter().map(|group| (*group).into()).collect();
        let caller = Caller::Client(User { name: name.into(), groups, ..User::default() });
        let target =
            apiserver_core::request::parse_resource_request(&Method::GET, path, Query::default(), &Default::default())
                .and_then(Result::ok);
        let digest = target.as_ref().map_or(RequestDigest::NonResource("get", path), RequestDigest::Resource);
        assert_eq!(&*config.classify_request(&caller, &digest).unwrap().schema.name, want, "{user:?} {path}");
    }

    #[test]
    fn requests_match_their_flow_schema() {
        let all = "system:authenticated";
        assert_classified(Some(("admin", &["system:masters", all])), "/api/v1/pods", "exempt");
        assert_classified(None, "/livez", "probes");
        assert_classified(None, "/version", "global-default");
        assert_classified(
            Some(("system:node:a", &["system:nodes", all])),
            "/api/v1/nodes/a/status",
            "system-node-high",
        );
        assert_classified(Some(("system:node:a", &["system:nodes", all])), "/api/v1/pods", "system-nodes");
        assert_classified(Some(("system:kube-scheduler", &[all])), "/api/v1/pods", "kube-scheduler");
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x";
        assert_classified(Some(("system:kube-scheduler", &[all])), leases, "system-leader-election");
        let account = "system:serviceaccount:kube-system:a";
        assert_classified(
            Some((account, &["system:serviceaccounts", all])),
            "/api/v1/pods",
            "kube-system-service-accounts",
        );
        assert_classified(
            Some(("system:serviceaccount:x:a", &["system:serviceaccounts", all])),
            "/api/v1/pods",
            "service-accounts",
        );
        assert_classified(Some(("jane", &[all])), "/api/v1/pods", "global-default");
    }
}
