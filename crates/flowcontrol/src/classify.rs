//! Classifies requests: the flow schema and the flow within it.

use std::hash::{DefaultHasher, Hash, Hasher};

use apiserver_core::{
    Caller, User,
    request::{RequestInfo, ResourceRequest},
};
use http::HeaderValue;

use super::config::{Config, Distinguisher, ResourceRule, Rule, Schema, Subject};

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
    pub schema: &'a Schema,
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

impl Config {
    /// Returns the first matching schema; a cluster has a catch-all.
    pub fn classify(&self, caller: &Caller, asked: &RequestDigest<'_>) -> Option<Classification<'_>> {
        let user = caller.user();
        let schema = self.schemas.iter().find(|schema| schema.rules.iter().any(|rule| matches(rule, user, asked)))?;
        let mut hasher = DefaultHasher::new();
        schema.name.hash(&mut hasher);
        match schema.distinguisher {
            Distinguisher::None => {}
            Distinguisher::User => user.name.hash(&mut hasher),
            Distinguisher::Namespace => asked.namespace().hash(&mut hasher),
        }
        let level_uid = self.levels.get(&schema.level).map(|level| level.uid.clone());
        let level_uid = level_uid.unwrap_or_else(|| HeaderValue::from_static(""));
        Some(Classification { schema, level_uid, hash: hasher.finish() })
    }
}

fn matches(rule: &Rule, user: &User, asked: &RequestDigest<'_>) -> bool {
    rule.subjects.iter().any(|subject| is(subject, user))
        && match asked {
            RequestDigest::Resource(target) => rule.resources.iter().any(|rule| covers(rule, &Wanted::of(target))),
            RequestDigest::Aggregated(info) => rule.resources.iter().any(|rule| covers(rule, &Wanted::elsewhere(info))),
            RequestDigest::NonResource(verb, path) => rule
                .paths
                .iter()
                .any(|rule| any(&rule.verbs, verb) && rule.paths.iter().any(|wanted| path_matches(wanted, path))),
        }
}

fn is(subject: &Subject, user: &User) -> bool {
    match subject {
        Subject::User(name) => name == "*" || *name == user.name,
        Subject::Group(name) => name == "*" || user.groups.contains(name),
        Subject::Account(namespace, name) => {
            let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            account.is_some_and(|(n, a)| n == namespace && (name == "*" || name == a))
        }
    }
}

/// The resource attributes of a request.
struct Wanted<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
}

impl<'a> Wanted<'a> {
    fn of(target: &'a ResourceRequest) -> Self {
        let (group, resource) = (target.resource.group, target.resource.name);
        let (subresource, namespace) = (&target.subresource, &target.namespace);
        Self { verb: target.verb, group, resource, subresource, namespace }
    }

    fn elsewhere(info: &'a RequestInfo) -> Self {
        let RequestInfo { verb, group, resource, subresource, namespace, .. } = info;
        Self { verb, group, resource, subresource, namespace }
    }
}

fn covers(rule: &ResourceRule, asked: &Wanted<'_>) -> bool {
    let named = |wanted: &String| match asked.subresource {
        "" => wanted == asked.resource,
        sub => wanted.split_once('/').is_some_and(|(name, wanted)| name == asked.resource && wanted == sub),
    };
    any(&rule.verbs, asked.verb)
        && any(&rule.groups, asked.group)
        && rule.resources.iter().any(|wanted| wanted == "*" || named(wanted))
        && match asked.namespace {
            "" => rule.cluster,
            namespace => any(&rule.namespaces, namespace),
        }
}

fn any(list: &[String], value: &str) -> bool {
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

    fn check(user: Option<(&str, &[&str])>, path: &str, want: &str) {
        let objects = crate::bootstrap::objects().unwrap().into_iter().map(|(_, object)| object);
        let (schemas, levels): (Vec<_>, Vec<_>) = objects.partition(|object| object["spec"].get("rules").is_some());
        let config = Config::of(schemas.iter(), levels.iter());
        let (name, groups) = user.unwrap_or(("system:anonymous", &["system:unauthenticated"]));
        let groups = groups.iter().map(|group| (*group).into()).collect();
        let caller = Caller::Client(User { name: name.into(), groups, ..User::default() });
        let target =
            apiserver_core::request::parse_resource_request(&Method::GET, path, Query::default(), &Default::default())
                .and_then(Result::ok);
        let asked = target.as_ref().map_or(RequestDigest::NonResource("get", path), RequestDigest::Resource);
        assert_eq!(&*config.classify(&caller, &asked).unwrap().schema.name, want, "{user:?} {path}");
    }

    #[test]
    fn requests_match_their_flow_schema() {
        let all = "system:authenticated";
        check(Some(("admin", &["system:masters", all])), "/api/v1/pods", "exempt");
        check(None, "/livez", "probes");
        check(None, "/version", "global-default");
        check(Some(("system:node:a", &["system:nodes", all])), "/api/v1/nodes/a/status", "system-node-high");
        check(Some(("system:node:a", &["system:nodes", all])), "/api/v1/pods", "system-nodes");
        check(Some(("system:kube-scheduler", &[all])), "/api/v1/pods", "kube-scheduler");
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x";
        check(Some(("system:kube-scheduler", &[all])), leases, "system-leader-election");
        let account = "system:serviceaccount:kube-system:a";
        check(Some((account, &["system:serviceaccounts", all])), "/api/v1/pods", "kube-system-service-accounts");
        check(
            Some(("system:serviceaccount:x:a", &["system:serviceaccounts", all])),
            "/api/v1/pods",
            "service-accounts",
        );
        check(Some(("jane", &[all])), "/api/v1/pods", "global-default");
    }
}
