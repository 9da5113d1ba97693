//! Audit policy: the first matching rule decides the level.

use api::yaml;
use apiserver_core::attributes::{Attributes, AttributesTarget};
use serde::Deserialize;

const KINDS: [&str; 1] = ["audit.k8s.io/v1"];

/// The audit level of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not audited.
    #[default]
    None,
    /// Metadata of request and response.
    Metadata,
    /// Metadata and the request body.
    Request,
    /// Metadata, the request body and the response body.
    RequestResponse,
}

impl Level {
    /// The name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// The stage of a request.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Stage {
    /// The request was authenticated; its handler has not started.
    RequestReceived,
    /// The response head of a long-running request was sent.
    ResponseStarted,
    /// The response was sent.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    /// The name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// An invalid policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(#[from] yaml::YamlError),
    /// The file has an unknown field or a field of the wrong type.
    #[error("it cannot be decoded: {0}")]
    Decode(String),
    /// The file is of another kind.
    #[error("no kind {0:?} is registered for version {1:?}")]
    Kind(String, String),
    /// The policy has no rules.
    #[error("loaded illegal policy with 0 rules")]
    Empty,
    /// A rule is invalid.
    #[error("rules[{0}]{1}")]
    Rule(usize, String),
}

/// An audit policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<PolicyRule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyRule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    paths: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The audit configuration of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestAuditConfig {
    /// The level.
    pub level: Level,
    /// Omitted stages, one bit each.
    omitted: u8,
    /// Whether managed fields are omitted.
    pub omit_managed_fields: bool,
}

impl RequestAuditConfig {
    /// Whether a stage is recorded.
    pub fn records_stage(&self, stage: Stage) -> bool {
        self.level > Level::None && self.omitted & 1 << stage as u8 == 0
    }
}

impl Policy {
    /// Parses a policy file.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let value = yaml::parse(text.as_bytes())?.value;
        let policy: Self = serde_json::from_value(value).map_err(|error| PolicyError::Decode(error.to_string()))?;
        if policy.kind != "Policy" || !KINDS.contains(&policy.api_version.as_str()) {
            return Err(PolicyError::Kind(policy.kind, policy.api_version));
        }
        if policy.rules.is_empty() {
            return Err(PolicyError::Empty);
        }
        for (at, rule) in policy.rules.iter().enumerate() {
            rule.validate_rule(at)?;
        }
        Ok(policy)
    }

    /// Evaluates the policy for a request.
    pub fn evaluate_policy_rule(&self, attributes: &Attributes<'_>) -> RequestAuditConfig {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches_request(attributes)) else {
            return RequestAuditConfig::default();
        };
        let stages = rule.omit_stages.iter().chain(&self.omit_stages);
        RequestAuditConfig {
            level: rule.level,
            omitted: stages.fold(0, |bits, stage| bits | 1 << *stage as u8),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl PolicyRule {
    fn validate_rule(&self, index: usize) -> Result<(), PolicyError> {
        let invalid = |detail: String| Err(PolicyError::Rule(index, detail));
        if !self.paths.is_empty() && (!self.resources.is_empty() || !self.namespaces.is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            return invalid(format!(".nonResourceURLs: Invalid value: {:?}: {why}", self.paths));
        }
        for (at, path) in self.paths.iter().enumerate() {
            let begins = path == "*" || path.starts_with('/');
            let star = path.strip_suffix('*').unwrap_or(path).contains('*');
            if !begins || star {
                let why = if begins {
                    "non-resource URL wildcards '*' must be the final character of the rule"
                } else {
                    "non-resource URL rules must begin with a '/' character"
                };
                return invalid(format!(".nonResourceURLs[{at}]: Invalid value: {path:?}: {why}"));
            }
        }
        for (at, group) in self.resources.iter().enumerate() {
            if group.group.contains('/') {
                return invalid(format!(".resources[{at}].group: Invalid value: {:?}", group.group));
            }
            if !group.resource_names.is_empty() && group.resources.is_empty() {
                let why = "using resourceNames requires at least one resource";
                return invalid(format!(
                    ".resources[{at}].resourceNames: Invalid value: {:?}: {why}",
                    group.resource_names
                ));
            }
        }
        Ok(())
    }

    fn matches_request(&self, attributes: &Attributes<'_>) -> bool {
        let has = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        let groups = &attributes.user.groups;
        if !has(&self.users, &attributes.user.name)
            || !(self.user_groups.is_empty() || self.user_groups.iter().any(|group| groups.contains(group)))
            || !has(&self.verbs, attributes.verb)
        {
            return false;
        }
        match &attributes.target {
            // Resource rules do not match paths.
            AttributesTarget::NonResource(_) if self.paths.is_empty() => {
                self.namespaces.is_empty() && self.resources.is_empty()
            }
            AttributesTarget::NonResource(path) => self.paths.iter().any(|rule| path_matches(rule, path)),
            AttributesTarget::Resource(_) if !self.paths.is_empty() => false,
            AttributesTarget::Resource(resource) => {
                has(&self.namespaces, resource.namespace)
                    && (self.resources.is_empty() || self.resources.iter().any(|group| group.covers_resource(resource)))
            }
        }
    }
}

impl GroupResources {
    fn covers_resource(&self, attributes: &apiserver_core::attributes::ResourceAttributes<'_>) -> bool {
        if self.group != attributes.group {
            return false;
        }
        let named = self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == attributes.name);
        let (resource, sub) = (attributes.resource, attributes.subresource);
        self.resources.is_empty()
            || named
                && self.resources.iter().any(|rule| {
                    let whole = if sub.is_empty() { rule == resource } else { *rule == format!("{resource}/{sub}") };
                    whole
                        || rule == "*"
                        || !sub.is_empty() && rule.strip_prefix("*/") == Some(sub)
                        || rule.strip_suffix("/*") == Some(resource)
                })
    }
}

fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests;
