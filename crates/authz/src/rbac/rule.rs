//! A rule of a role: which verbs on which resources or paths.

use api::{Value, meta};
use apiserver_core::attributes::{Attributes, AttributesTarget, ResourceAttributes};

const ALL: &str = "*";

/// What a role allows. Either resources or paths are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The verbs.
    pub verbs: Vec<String>,
    /// The groups of the resources.
    pub groups: Vec<String>,
    /// Resources, also as `resource/subresource` and `*/subresource`.
    pub resources: Vec<String>,
    /// The objects that are meant; none: all.
    pub names: Vec<String>,
    /// Paths that are no resource's; `*` at the end stands for anything.
    pub paths: Vec<String>,
}

impl Rule {
    /// Reads a rule of a role.
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

    /// Reads the rules of a role.
    pub fn all_of(role: &Value) -> Vec<Self> {
        meta::list_at(role, &["rules"]).iter().map(Self::of).collect()
    }

    /// Whether it allows what is asked.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has(&self.verbs, attributes.verb)
            && match &attributes.target {
                AttributesTarget::NonResource(path) => self.paths.iter().any(|rule| path_matches(rule, path)),
                AttributesTarget::Resource(asked) => {
                    has(&self.groups, asked.group)
                        && self.resources.iter().any(|rule| resource_matches(rule, asked))
                        && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
                }
            }
    }
}

/// Whether a list has a text, or the one that stands for all.
fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|one| one == text || one == ALL)
}

fn resource_matches(rule: &str, asked: &ResourceAttributes<'_>) -> bool {
    if rule == ALL {
        return true;
    }
    if asked.subresource.is_empty() {
        return rule == asked.resource;
    }
    let rest = rule.strip_suffix(asked.subresource).and_then(|rest| rest.strip_suffix('/'));
    rest.is_some_and(|resource| resource == asked.resource || resource == ALL)
}

/// Whether a path of a rule stands for a path.
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
    fn a_rule_allows_what_it_names() {
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
    fn paths_may_end_with_a_star() {
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
