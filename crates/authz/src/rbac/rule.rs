//! A rule of a role: verbs on resources or non-resource URLs.

use api::{Value, meta};
use apiserver_core::attributes::{Attributes, AttributesTarget, ResourceAttributes};

const ALL: &str = "*";

/// A policy rule, on resources or on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// API groups.
    pub groups: Vec<String>,
    /// Resources, also as `resource/subresource` and `*/subresource`.
    pub resources: Vec<String>,
    /// Object names; empty matches all.
    pub names: Vec<String>,
    /// Non-resource URLs; a trailing `*` matches any suffix.
    pub paths: Vec<String>,
}

impl PolicyRule {
    /// Parses a rule of a role.
    pub fn from_object(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            meta::list_at(rule, &[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            paths: texts("nonResourceURLs"),
        }
    }

    /// Parses the rules of a role.
    pub fn from_role(role: &Value) -> Vec<Self> {
        meta::list_at(role, &["rules"]).iter().map(Self::from_object).collect()
    }

    /// Whether the rule allows a request.
    pub fn allows_request(&self, attributes: &Attributes<'_>) -> bool {
        contains_or_all(&self.verbs, attributes.verb)
            && match &attributes.target {
                AttributesTarget::NonResource(path) => self.paths.iter().any(|rule| path_matches(rule, path)),
                AttributesTarget::Resource(resource) => {
                    contains_or_all(&self.groups, resource.group)
                        && self.resources.iter().any(|rule| resource_matches(rule, resource))
                        && (self.names.is_empty() || self.names.iter().any(|name| name == resource.name))
                }
            }
    }
}

/// Whether a list contains a text or `*`.
fn contains_or_all(list: &[String], text: &str) -> bool {
    list.iter().any(|one| one == text || one == ALL)
}

fn resource_matches(rule: &str, requested: &ResourceAttributes<'_>) -> bool {
    if rule == ALL {
        return true;
    }
    if requested.subresource.is_empty() {
        return rule == requested.resource;
    }
    let rest = rule.strip_suffix(requested.subresource).and_then(|rest| rest.strip_suffix('/'));
    rest.is_some_and(|resource| resource == requested.resource || resource == ALL)
}

/// Whether the URL of a rule matches a path.
pub fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with(ALL) && path.starts_with(rule.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use apiserver_core::User;

    use super::*;

    const RULE: &str = "get,list|apps,|deployments,deployments/scale,*/status|";

    fn rule(text: &str) -> PolicyRule {
        let parts: Vec<Vec<String>> = text
            .split('|')
            .map(|part| if part.is_empty() { Vec::new() } else { part.split(',').map(str::to_owned).collect() })
            .collect();
        let [verbs, groups, resources, names] = parts.try_into().unwrap();
        match groups.first().is_some_and(|first| first.starts_with('/') || first == "*url") {
            true => PolicyRule {
                verbs,
                paths: groups.iter().map(|path| path.replace("*url", "*")).collect(),
                ..PolicyRule::default()
            },
            false => PolicyRule { verbs, groups, resources, names, paths: Vec::new() },
        }
    }

    /// `request`: verb and path, or verb, group, resource, subresource and name.
    fn assert_allows(text: &str, request: &str, want: bool) {
        let user = User::default();
        let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let (verb, request) = match words.as_slice() {
            [verb, path] => (*verb, AttributesTarget::NonResource(path)),
            [verb, group, resource, subresource, name] => (
                *verb,
                AttributesTarget::Resource(ResourceAttributes {
                    group,
                    resource,
                    subresource,
                    name,
                    ..ResourceAttributes::default()
                }),
            ),
            _ => panic!("{request}"),
        };
        assert_eq!(
            rule(text).allows_request(&Attributes { user: &user, verb, target: request }),
            want,
            "{text} {words:?}"
        );
    }

    #[test]
    fn rule_allows_what_it_names() {
        assert_allows(RULE, "get apps deployments - x", true);
        assert_allows(RULE, "get - deployments - -", true);
        assert_allows(RULE, "watch apps deployments - x", false);
        assert_allows(RULE, "get batch deployments - x", false);
        assert_allows(RULE, "get apps deployments scale x", true);
        assert_allows(RULE, "get apps daemonsets scale x", false);
        assert_allows(RULE, "get apps daemonsets status x", true);
        assert_allows(RULE, "get apps daemonsets - x", false);
        assert_allows(RULE, "get apps deployments cale x", false);
        assert_allows(RULE, "get /apis", false);
        assert_allows("*|*|*|", "anything any.group things sub x", true);
        assert_allows("*|*|*|", "get /apis", false);
        assert_allows("get||pods|a,b", "get - pods - a", false);
        assert_allows("get|,x|pods|a,b", "get - pods - a", true);
        assert_allows("get|,x|pods|a,b", "get - pods - c", false);
        assert_allows("get|,x|pods|a,b", "get - pods - -", false);
    }

    #[test]
    fn trailing_star_matches_any_suffix() {
        assert_allows("get|/healthz,/apis/*||", "get /healthz", true);
        assert_allows("get|/healthz,/apis/*||", "get /healthz/", false);
        assert_allows("get|/healthz,/apis/*||", "get /apis/", true);
        assert_allows("get|/healthz,/apis/*||", "get /apis/apps/v1", true);
        assert_allows("get|/healthz,/apis/*||", "get /apis", false);
        assert_allows("get|/healthz,/apis/*||", "post /healthz", false);
        assert_allows("get|*url||", "get /anything", true);
        assert_allows("get|/a*b||", "get /aXb", false);
    }
}
