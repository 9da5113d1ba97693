//! ABAC: a policy file with one policy per line, read at startup.

use std::{collections::BTreeMap, sync::Arc};

use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget},
};
use async_trait::async_trait;
use serde::Deserialize;

use super::{Authorizer, Decision, PolicyRule, Reason, ResolvedRules, rbac::path_matches};

const AUTHENTICATED: &str = "system:authenticated";
const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";

/// The policies of a file.
#[derive(Clone, Debug, Default)]
pub struct AbacPolicies(Arc<[AbacPolicy]>);

/// A malformed line of a policy file.
#[derive(Debug, thiserror::Error)]
#[error("error reading policy file line {line}: {text}: {error}")]
pub struct PolicyFileError {
    line: usize,
    text: String,
    #[source]
    error: PolicyError,
}

/// An invalid policy.
#[derive(Debug, thiserror::Error)]
enum PolicyError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind { kind: String, version: String },
}

/// The attributes that a policy matches. An empty value matches only itself; `*` matches everything.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
struct AbacPolicy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    non_resource_path: String,
}

/// A line: a versioned policy, or an unversioned policy of older releases.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyLine {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    spec: AbacPolicy,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

impl AbacPolicies {
    /// Parses a policy file; comments start with `#`.
    pub fn parse(text: &str) -> Result<Self, PolicyFileError> {
        let lines = text.lines().enumerate().map(|(at, text)| (at + 1, text.trim()));
        let policies = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
        let policies = policies.map(|(line, text)| {
            AbacPolicy::parse(text).map_err(|error| PolicyFileError { line, text: text.to_owned(), error })
        });
        Ok(Self(policies.collect::<Result<_, _>>()?))
    }
}

impl AbacPolicy {
    fn parse(text: &str) -> Result<Self, PolicyError> {
        let line: PolicyLine = serde_json::from_str(text)?;
        match (line.api_version.as_str(), line.kind.as_str()) {
            (VERSION, "Policy") => Ok(line.spec),
            ("", "") => {
                let rest = serde_json::Value::Object(line.rest.into_iter().collect());
                Ok(serde_json::from_value(rest).map(Self::convert_unversioned)?)
            }
            (version, kind) => Err(PolicyError::Kind { kind: kind.to_owned(), version: version.to_owned() }),
        }
    }

    /// Converts an unversioned policy, in which absent attributes match everything.
    fn convert_unversioned(mut self) -> Self {
        if self.user == "*" || self.group == "*" || self.user.is_empty() && self.group.is_empty() {
            self.user.clear();
            self.group = AUTHENTICATED.to_owned();
        }
        self.api_group = "*".to_owned();
        self.non_resource_path =
            if self.namespace.is_empty() && self.resource.is_empty() { "*".to_owned() } else { String::new() };
        for text in [&mut self.namespace, &mut self.resource] {
            if text.is_empty() {
                *text = "*".to_owned();
            }
        }
        self
    }

    fn allows_request(&self, attributes: &Attributes<'_>) -> bool {
        let reads = matches!(attributes.verb, "get" | "list" | "watch");
        let matches = |policy: &str, requested: &str| policy == "*" || policy == requested;
        self.matches_user(attributes.user)
            && (reads || !self.readonly)
            && match &attributes.target {
                AttributesTarget::NonResource(path) => path_matches(&self.non_resource_path, path),
                AttributesTarget::Resource(resource) => {
                    matches(&self.namespace, resource.namespace)
                        && matches(&self.resource, resource.resource)
                        && matches(&self.api_group, resource.group)
                }
            }
    }

    /// Whether the policy applies to a user: user and group must match where they are set, and one of them must be.
    fn matches_user(&self, user: &User) -> bool {
        let named = self.user.is_empty() || self.user == "*" || self.user == user.name;
        let grouped = self.group.is_empty() || self.group == "*" || user.groups.contains(&self.group);
        named && grouped && !(self.user.is_empty() && self.group.is_empty())
    }

    fn resolved_rules(&self) -> impl Iterator<Item = PolicyRule> {
        let verbs: &[&str] = if self.readonly { &["get", "list", "watch"] } else { &["*"] };
        let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        let one = |text: &String| vec![text.clone()];
        let resources = (!self.resource.is_empty()).then(|| PolicyRule {
            verbs: verbs.clone(),
            groups: one(&self.api_group),
            resources: one(&self.resource),
            ..PolicyRule::default()
        });
        let paths = (!self.non_resource_path.is_empty()).then(|| PolicyRule {
            verbs: verbs.clone(),
            paths: one(&self.non_resource_path),
            ..PolicyRule::default()
        });
        resources.into_iter().chain(paths)
    }
}

#[async_trait]
impl Authorizer for AbacPolicies {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match self.0.iter().any(|policy| policy.allows_request(attributes)) {
            true => Decision::Allowed(Reason::none()),
            false => Decision::NoOpinion("No policy matched.".into()),
        }
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let in_namespace = |policy: &&AbacPolicy| policy.namespace == "*" || policy.namespace == namespace;
        let policies = self.0.iter().filter(|policy| policy.matches_user(user)).filter(in_namespace);
        ResolvedRules { rules: policies.flat_map(AbacPolicy::resolved_rules).collect(), ..ResolvedRules::default() }
    }
}

#[cfg(test)]
mod tests {
    use apiserver_core::attributes::ResourceAttributes;

    use super::*;

    const FILE: &str = r##"
# who may do what
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "root", "namespace": "*", "resource": "*", "apiGroup": "*", "nonResourcePath": "*"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "alice", "namespace": "a", "resource": "pods", "readonly": true}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "devs", "namespace": "a", "resource": "deployments", "apiGroup": "apps"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "system:authenticated", "readonly": true, "nonResourcePath": "/version*"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "bob", "group": "ops", "namespace": "*", "resource": "nodes"}}
{"user": "old", "readonly": true}
{"user": "older", "namespace": "b"}
"##;

    async fn assert_decision(user: &str, group: &str, request: &str, want: bool) {
        let user = User { name: user.into(), groups: vec![group.into()], ..User::default() };
        let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let target = match words.as_slice() {
            [_, path] => AttributesTarget::NonResource(path),
            [_, group, resource, namespace] => AttributesTarget::Resource(ResourceAttributes {
                group,
                resource,
                namespace,
                ..ResourceAttributes::default()
            }),
            _ => panic!("{request}"),
        };
        let attributes = Attributes { user: &user, verb: words[0], target };
        let decision = AbacPolicies::parse(FILE).unwrap().authorize(&attributes).await;
        assert_eq!(decision.is_allowed(), want, "{user:?} {request}");
        assert_eq!(decision.reason().to_string(), if want { "" } else { "No policy matched." });
    }

    #[tokio::test]
    async fn policies_allow_matching_requests() {
        let all = AUTHENTICATED;
        assert_decision("root", all, "delete apps deployments x", true).await;
        assert_decision("root", all, "delete /x", true).await;
        assert_decision("alice", all, "get - pods a", true).await;
        assert_decision("alice", all, "delete - pods a", false).await;
        assert_decision("alice", all, "get - pods b", false).await;
        assert_decision("alice", all, "get - secrets a", false).await;
        assert_decision("alice", all, "get apps pods a", false).await;
        assert_decision("eve", "devs", "delete apps deployments a", true).await;
        assert_decision("eve", "users", "delete apps deployments a", false).await;
        assert_decision("eve", all, "get /version", true).await;
        assert_decision("eve", all, "get /version/x", true).await;
        assert_decision("eve", all, "post /version", false).await;
        assert_decision("eve", all, "get /healthz", false).await;
        assert_decision("bob", "ops", "delete - nodes -", true).await;
        assert_decision("bob", "devs", "delete - nodes -", false).await;
        assert_decision("old", all, "watch apps deployments x", true).await;
        assert_decision("old", all, "get /anything", true).await;
        assert_decision("old", all, "create apps deployments x", false).await;
        assert_decision("older", all, "create apps deployments b", true).await;
        assert_decision("older", all, "create apps deployments c", false).await;
        assert_decision("older", all, "get /anything", false).await;
    }

    #[test]
    fn malformed_lines_are_reported_with_their_number() {
        let parse = |text: &str| AbacPolicies::parse(text).unwrap_err().to_string();
        assert!(parse("\n{\"user\": 1}").starts_with("error reading policy file line 2: {\"user\": 1}: "));
        assert!(parse("x").starts_with("error reading policy file line 1: x: "));
        let other = parse("{\"apiVersion\": \"v9\", \"kind\": \"Policy\"}");
        assert!(other.ends_with("no kind \"Policy\" is registered for version \"v9\""), "{other}");
    }

    #[test]
    fn rules_of_a_user_are_resolved() {
        let policies = AbacPolicies::parse(FILE).unwrap();
        let user = User { name: "alice".into(), ..User::default() };
        let ResolvedRules { rules, incomplete, errors } = policies.rules_for(&user, "a");
        assert!(!incomplete && errors.is_empty());
        let verbs: Vec<String> = ["get", "list", "watch"].map(str::to_owned).to_vec();
        let (groups, resources) = (vec![String::new()], vec!["pods".to_owned()]);
        assert_eq!(rules, [PolicyRule { verbs, groups, resources, ..PolicyRule::default() }]);
        assert!(policies.rules_for(&user, "b").rules.is_empty());
    }
}
