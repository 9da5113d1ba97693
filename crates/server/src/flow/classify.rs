//! Which flow schema a request is of, and which flow within it.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::HeaderValue;

use super::config::{Config, Distinguisher, ResourceRule, Rule, Schema, Subject};
use crate::{Caller, User, request::Target};

/// What is asked for.
pub enum Asked<'a> {
    /// Something of a resource.
    Resource(&'a Target),
    /// Something else: verb and path.
    Path(&'static str, &'a str),
}

/// Where a request belongs.
pub struct Found<'a> {
    /// The schema.
    pub schema: &'a Schema,
    /// Its level's identity.
    pub level_uid: HeaderValue,
    /// The flow.
    pub hash: u64,
}

impl Asked<'_> {
    /// What is to be done.
    pub fn verb(&self) -> &'static str {
        match self {
            Asked::Resource(target) => target.verb,
            Asked::Path(verb, _) => verb,
        }
    }

    /// Streams last long and cost little.
    pub fn is_stream_but_watch(&self) -> bool {
        matches!(self, Asked::Resource(target) if crate::streams::answers(&target.subresource))
    }

    fn namespace(&self) -> &str {
        match self {
            Asked::Resource(target) => &target.namespace,
            Asked::Path(..) => "",
        }
    }
}

impl Config {
    /// The first schema that matches; a cluster has one that matches everything.
    pub fn classify(&self, caller: &Caller, asked: &Asked<'_>) -> Option<Found<'_>> {
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
        Some(Found { schema, level_uid, hash: hasher.finish() })
    }
}

fn matches(rule: &Rule, user: &User, asked: &Asked<'_>) -> bool {
    rule.subjects.iter().any(|subject| is(subject, user))
        && match asked {
            Asked::Resource(target) => rule.resources.iter().any(|rule| covers(rule, target)),
            Asked::Path(verb, path) => rule
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

fn covers(rule: &ResourceRule, target: &Target) -> bool {
    let resource = &target.resource;
    let named = |wanted: &String| match target.subresource.as_str() {
        "" => wanted == resource.name,
        sub => wanted.split_once('/').is_some_and(|(name, wanted)| name == resource.name && wanted == sub),
    };
    any(&rule.verbs, target.verb)
        && any(&rule.groups, resource.group)
        && rule.resources.iter().any(|wanted| wanted == "*" || named(wanted))
        && match target.namespace.as_str() {
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
    use http::Method;

    use super::*;
    use crate::query::Query;

    fn check(user: Option<(&str, &[&str])>, path: &str, want: &str) {
        let (schemas, levels): (Vec<_>, Vec<_>) = crate::bootstrap::flow_objects()
            .unwrap()
            .into_iter()
            .partition(|object| object["spec"].get("rules").is_some());
        let config = Config::of(schemas.iter(), levels.iter());
        let (name, groups) = user.unwrap_or(("system:anonymous", &["system:unauthenticated"]));
        let groups = groups.iter().map(|group| (*group).into()).collect();
        let caller = Caller::Client(User { name: name.into(), groups, ..User::default() });
        let target =
            crate::request::parse(&Method::GET, path, Query::default(), &Default::default()).and_then(Result::ok);
        let asked = target.as_ref().map_or(Asked::Path("get", path), Asked::Resource);
        assert_eq!(&*config.classify(&caller, &asked).unwrap().schema.name, want, "{user:?} {path}");
    }

    #[test]
    fn requests_find_their_schema() {
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
