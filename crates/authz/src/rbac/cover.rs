//! Whether rules allow all that other rules allow: nobody grants what they do not have.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{Rule, path_matches};

/// What `owned` does not allow of `wanted`, written as upstream writes it, a line each; empty: nothing.
pub fn uncovered(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let parts = wanted.iter().flat_map(parts);
    let missing: Vec<Rule> = parts.filter(|part| !owned.iter().any(|rule| covers(rule, part))).collect();
    let lines: BTreeSet<String> = compact(missing).iter().map(line).collect();
    lines.into_iter().collect()
}

/// A rule in parts of one verb on one resource, one object or one path each.
fn parts(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    // A rule without names is for all of them: that is one part.
    let names: Vec<Vec<String>> =
        if rule.names.is_empty() { vec![Vec::new()] } else { rule.names.iter().map(one).collect() };
    let mut parts = Vec::new();
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                parts.extend(names.iter().map(|names| Rule {
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
        parts.extend(rule.verbs.iter().map(|verb| Rule { verbs: one(verb), paths: one(path), ..Rule::default() }));
    }
    parts
}

/// Whether a rule allows all of a part.
fn covers(rule: &Rule, part: &Rule) -> bool {
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
type What = (Vec<String>, Vec<String>, Vec<String>);

/// Parts that differ only by their verbs, as one.
fn compact(parts: Vec<Rule>) -> Vec<Rule> {
    let mut together: BTreeMap<What, Vec<String>> = BTreeMap::new();
    let mut compacted = Vec::new();
    for part in parts {
        if part.paths.is_empty() {
            together.entry((part.groups, part.resources, part.names)).or_default().extend(part.verbs);
        } else {
            compacted.push(part);
        }
    }
    compacted.extend(together.into_iter().map(|((groups, resources, names), verbs)| Rule {
        verbs,
        groups,
        resources,
        names,
        paths: Vec::new(),
    }));
    compacted
}

/// A rule as Go writes it.
fn line(rule: &Rule) -> String {
    let fields = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.paths),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let written = fields.iter().filter(|(_, texts)| !texts.is_empty());
    let written: Vec<String> = written.map(|(name, texts)| format!("{name}:{}", quoted(texts))).collect();
    format!("{{{}}}", written.join(", "))
}

/// A list of texts as Go writes it.
pub fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(owned: Value, wanted: Value, want: &[&str]) {
        let rules = |value: &Value| -> Vec<Rule> { value.as_array().unwrap().iter().map(Rule::of).collect() };
        assert_eq!(uncovered(&rules(&owned), &rules(&wanted)), want, "{owned} {wanted}");
    }

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
    }

    #[test]
    fn what_is_not_owned_is_named() {
        let pods = || rule(&["get", "list"], &[""], &["pods"], &[]);
        check(json!([pods()]), json!([pods()]), &[]);
        check(json!([rule(&["*"], &["*"], &["*"], &[])]), json!([pods()]), &[]);
        check(json!([]), json!([pods()]), &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#]);
        check(
            json!([rule(&["get"], &[""], &["pods"], &[])]),
            json!([pods()]),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#],
        );
        check(
            json!([rule(&["get"], &[""], &["pods"], &["a"])]),
            json!([rule(&["get"], &[""], &["pods"], &[])]),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        );
        check(
            json!([rule(&["get"], &[""], &["pods"], &["a"])]),
            json!([rule(&["get"], &[""], &["pods"], &["a", "b"])]),
            &[r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#],
        );
        let subresources = rule(&["get"], &[""], &["pods/log", "nodes/log"], &[]);
        check(json!([rule(&["get"], &[""], &["*/log"], &[])]), json!([subresources]), &[]);
        check(
            json!([rule(&["get"], &[""], &["pods"], &[])]),
            json!([rule(&["get"], &[""], &["*"], &[])]),
            &[r#"{APIGroups:[""], Resources:["*"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn paths_are_covered_by_paths() {
        let paths = |paths: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": paths});
        check(json!([paths(&["/apis/*"])]), json!([paths(&["/apis/x", "/apis/*"])]), &[]);
        check(
            json!([paths(&["/apis/x"])]),
            json!([paths(&["/apis/*", "/b"])]),
            &[r#"{NonResourceURLs:["/apis/*"], Verbs:["get"]}"#, r#"{NonResourceURLs:["/b"], Verbs:["get"]}"#],
        );
    }
}
