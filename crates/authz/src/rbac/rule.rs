//! A rule of a role: verbs on resources or non-resource URLs.

use api::{Value, meta};
use apiserver_core::attributes::{Attributes, AttributesTarget, ResourceAttributes};

const ALL: &str = "*";

/// A policy rule, on resources or on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
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

impl Rule {
    /// Parses a rule of a role.
    pub fn of(rule: &Value) -> Self {
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
    pub fn all_of(role: &Value) -> Vec<Self> {
        meta::list_at(role, &["rules"]).iter().map(Self::of).collect()
    }

    /// Whether the rule allows a request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has(&self.verbs, attributes.verb)
            && match &attributes.target {
                AttributesTarget::NonResource(path) => self.paths.iter().any(|rule| path_matches(rule, path)),
                AttributesTarget::Resource(resource) => {
                    has(&self.groups, resource.group)
                        && self.resources.iter().any(|rule| resource_matches(rule, resource))
                        && (self.names.is_empty() || self.names.iter().any(|name| name == resource.name))
                }
            }
    }
}

/// Whether a list contains a text or `*`.
fn has(list: &[String], text: &str) -> bool {
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

    fn rule(text: &str) -> Rule {
        let parts: Vec<Vec<String>> = text
            .split('|')
            .map(|part| if part.is_empty() { Vec::new() } else { part.split(',').map(str::to_owned).collect() })
            .collect();
        let [verbs, groups, resources, names] = parts.try_into().unwrap();
        match groups.first().is_some_and(|first| first.starts_with('/') || first == "*url") {
            true => {
                Rule { verbs, paths: groups.iter().map(|path| path.replace("*url", "*")).collect(), ..Rule::default() }
            }
            false => Rule { verbs, groups, resources, names, paths: Vec::new() },
        }
    }

    /// `asked`: verb and path, or verb, group, resource, subresource and name.
    fn check(text: &str, asked: &str, want: bool) {
        let user = User::default();
        let words: Vec<&str> = asked.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let (verb, asked) = match words.as_slice() {
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
            _ => panic!("{asked}"),
        };
        assert_eq!(rule(text).allows(&Attributes { user: &user, verb, target: asked }), want, "{text} {words:?}");
    }

    #[test]
    fn rule_allows_what_it_names() {
        check(RULE, "get apps deployments - x", true);
        check(RULE, "get - deployments - -", true);
        check(RULE, "watch apps deployments - x", false);
        check(RULE, "get batch deployments - x", false);
        check(RULE, "get apps deployments scale x", true);
        check(RULE, "get apps daemonsets scale x", false);
        check(RULE, "get apps daemonsets status x", true);
        check(RULE, "get apps daemonsets - x", false);
        check(RULE, "get apps deployments cale x", false);
        check(RULE, "get /apis", false);
        check("*|*|*|", "anything any.group things sub x", true);
        check("*|*|*|", "get /apis", false);
        check("get||pods|a,b", "get - pods - a", false);
        check("get|,x|pods|a,b", "get - pods - a", true);
        check("get|,x|pods|a,b", "get - pods - c", false);
        check("get|,x|pods|a,b", "get - pods - -", false);
    }

    #[test]
    fn trailing_star_matches_any_suffix() {
        check("get|/healthz,/apis/*||", "get /healthz", true);
        check("get|/healthz,/apis/*||", "get /healthz/", false);
        check("get|/healthz,/apis/*||", "get /apis/", true);
        check("get|/healthz,/apis/*||", "get /apis/apps/v1", true);
        check("get|/healthz,/apis/*||", "get /apis", false);
        check("get|/healthz,/apis/*||", "post /healthz", false);
        check("get|*url||", "get /anything", true);
        check("get|/a*b||", "get /aXb", false);
    }
}
