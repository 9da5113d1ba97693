//! Rule coverage (upstream: `Covers`): whether rules allow everything that other rules allow.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{PolicyRule, path_matches};

/// Returns the parts of `wanted` that `owned` does not cover, formatted as upstream does, sorted.
pub fn missing_rules(owned: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<String> {
    let parts = wanted.iter().flat_map(split_rule);
    let missing: Vec<PolicyRule> = parts.filter(|part| !owned.iter().any(|rule| rule_covers(rule, part))).collect();
    let lines: BTreeSet<String> = merge_verbs(missing).iter().map(format_rule).collect();
    lines.into_iter().collect()
}

/// Splits a rule into parts with one verb and one resource, object or path each.
fn split_rule(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    // A rule without names is for all objects: one part.
    let names: Vec<Vec<String>> =
        if rule.names.is_empty() { vec![Vec::new()] } else { rule.names.iter().map(one).collect() };
    let mut parts = Vec::new();
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                parts.extend(names.iter().map(|names| PolicyRule {
                    verbs: one(verb),
                    groups: one(group),
                    resources: one(resource),
                    names: names.clone(),
                    paths: Vec::new(),
                }));
            }
        }
    }
    for path in &rule.paths {
        parts.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: one(verb),
            paths: one(path),
            ..PolicyRule::default()
        }));
    }
    parts
}

/// Whether a rule covers a part.
fn rule_covers(rule: &PolicyRule, part: &PolicyRule) -> bool {
    let all = |owned: &[String], wanted: &[String]| {
        owned.iter().any(|one| one == "*") || wanted.iter().all(|one| owned.contains(one))
    };
    let names = if part.names.is_empty() {
        rule.names.is_empty()
    } else {
        rule.names.is_empty() || part.names.iter().all(|name| rule.names.contains(name))
    };
    all(&rule.verbs, &part.verbs)
        && all(&rule.groups, &part.groups)
        && part.resources.iter().all(|resource| covers_resource(&rule.resources, resource))
        && part.paths.iter().all(|path| rule.paths.iter().any(|owned| path_matches(owned, path)))
        && names
}

fn covers_resource(owned: &[String], wanted: &str) -> bool {
    let sub = wanted.split_once('/').map(|(_, sub)| sub);
    owned.iter().any(|one| {
        one == "*" || one == wanted || sub.is_some_and(|sub| one.strip_prefix("*/").is_some_and(|owned| owned == sub))
    })
}

/// Groups, resources and names.
type RuleTarget = (Vec<String>, Vec<String>, Vec<String>);

/// Merges parts that differ only in their verbs.
fn merge_verbs(parts: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut together: BTreeMap<RuleTarget, Vec<String>> = BTreeMap::new();
    let mut compacted = Vec::new();
    for part in parts {
        if part.paths.is_empty() {
            together.entry((part.groups, part.resources, part.names)).or_default().extend(part.verbs);
        } else {
            compacted.push(part);
        }
    }
    compacted.extend(together.into_iter().map(|((groups, resources, names), verbs)| PolicyRule {
        verbs,
        groups,
        resources,
        names,
        paths: Vec::new(),
    }));
    compacted
}

/// Formats a rule as Go does.
fn format_rule(rule: &PolicyRule) -> String {
    let fields = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.paths),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let written = fields.iter().filter(|(_, texts)| !texts.is_empty());
    let written: Vec<String> = written.map(|(name, texts)| format!("{name}:{}", format_quoted(texts))).collect();
    format!("{{{}}}", written.join(", "))
}

/// Formats a list of strings as Go's `%q`.
pub fn format_quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn assert_missing(owned: Value, wanted: Value, want: &[&str]) {
        let rules = |value: &Value| -> Vec<PolicyRule> {
            value.as_array().unwrap().iter().map(PolicyRule::from_object).collect()
        };
        assert_eq!(missing_rules(&rules(&owned), &rules(&wanted)), want, "{owned} {wanted}");
    }

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
    }

    #[test]
    fn missing_rules_are_reported() {
        let pods = || rule(&["get", "list"], &[""], &["pods"], &[]);
        assert_missing(json!([pods()]), json!([pods()]), &[]);
        assert_missing(json!([rule(&["*"], &["*"], &["*"], &[])]), json!([pods()]), &[]);
        assert_missing(json!([]), json!([pods()]), &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#]);
        assert_missing(
            json!([rule(&["get"], &[""], &["pods"], &[])]),
            json!([pods()]),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#],
        );
        assert_missing(
            json!([rule(&["get"], &[""], &["pods"], &["a"])]),
            json!([rule(&["get"], &[""], &["pods"], &[])]),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        );
        assert_missing(
            json!([rule(&["get"], &[""], &["pods"], &["a"])]),
            json!([rule(&["get"], &[""], &["pods"], &["a", "b"])]),
            &[r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#],
        );
        let subresources = rule(&["get"], &[""], &["pods/log", "nodes/log"], &[]);
        assert_missing(json!([rule(&["get"], &[""], &["*/log"], &[])]), json!([subresources]), &[]);
        assert_missing(
            json!([rule(&["get"], &[""], &["pods"], &[])]),
            json!([rule(&["get"], &[""], &["*"], &[])]),
            &[r#"{APIGroups:[""], Resources:["*"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn paths_are_covered_by_path_patterns() {
        let paths = |paths: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": paths});
        assert_missing(json!([paths(&["/apis/*"])]), json!([paths(&["/apis/x", "/apis/*"])]), &[]);
        assert_missing(
            json!([paths(&["/apis/x"])]),
            json!([paths(&["/apis/*", "/b"])]),
            &[r#"{NonResourceURLs:["/apis/*"], Verbs:["get"]}"#, r#"{NonResourceURLs:["/b"], Verbs:["get"]}"#],
        );
    }
}
