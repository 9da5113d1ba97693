//! Adds missing rules, subjects and metadata of the bootstrap policy to a stored role or binding. Additions of
//! administrators are kept.

use api::{Value, meta};
use serde_json::json;

/// The current object with missing parts of the wanted one; `None` if nothing is missing.
pub fn merge_missing(current: &Value, wanted: &Value) -> Option<Value> {
    let mut merged = current.clone();
    for field in ["labels", "annotations"] {
        let missing = wanted["metadata"][field].as_object().into_iter().flatten();
        for (key, value) in missing.filter(|(key, _)| current["metadata"][field].get(key.as_str()).is_none()) {
            merged["metadata"][field][key.as_str()] = value.clone();
        }
    }
    if wanted.get("aggregationRule").is_some() {
        // The aggregation controller fills in its rules.
        let path = ["aggregationRule", "clusterRoleSelectors"];
        let missing = missing_entries(current, wanted, &path, |list, one| list.contains(one));
        append_entries(&mut merged, &path, missing);
    } else {
        append_entries(&mut merged, &["rules"], missing_entries(current, wanted, &["rules"], is_rule_covered));
    }
    let missing = missing_entries(current, wanted, &["subjects"], |list, one| list.contains(one));
    append_entries(&mut merged, &["subjects"], missing);
    (merged != *current).then_some(merged)
}

fn missing_entries(
    current: &Value,
    wanted: &Value,
    path: &[&str],
    has: impl Fn(&[Value], &Value) -> bool,
) -> Vec<Value> {
    let list = meta::list_at(current, path);
    meta::list_at(wanted, path).iter().filter(|one| !has(list, one)).cloned().collect()
}

/// Appends entries; without any, an absent list stays absent.
fn append_entries(object: &mut Value, path: &[&str], missing: Vec<Value>) {
    if missing.is_empty() {
        return;
    }
    let list = path.iter().fold(object, |at, field| &mut at[*field]);
    match list.as_array_mut() {
        Some(list) => list.extend(missing),
        None => *list = json!(missing),
    }
}

/// Whether rules together allow everything that a rule allows.
fn is_rule_covered(rules: &[Value], wanted: &Value) -> bool {
    let texts = |field: &str| -> Vec<String> {
        let texts: Vec<String> =
            meta::list_at(wanted, &[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        // A rule without names covers all names, which is one case too.
        if texts.is_empty() { vec![String::new()] } else { texts }
    };
    let fields = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];
    let mut cases: Vec<Vec<String>> = vec![Vec::new()];
    for field in fields {
        let values = texts(field);
        cases = cases
            .iter()
            .flat_map(|case| values.iter().map(move |value| case.iter().cloned().chain([value.clone()]).collect()))
            .collect();
    }
    cases.iter().all(|case| {
        rules.iter().any(|rule| fields.iter().zip(case).all(|(field, value)| rule_allows(rule, field, value)))
    })
}

fn rule_allows(rule: &Value, field: &str, value: &str) -> bool {
    let list = meta::list_at(rule, &[field]);
    match field {
        // No names means all names; a list of names never covers all.
        "resourceNames" => list.is_empty() || list.iter().any(|one| one == value),
        "nonResourceURLs" | "resources" if list.is_empty() => value.is_empty(),
        "apiGroups" if list.is_empty() => value.is_empty(),
        _ => list.iter().any(|one| one == value || one == "*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], resources: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": [""], "resources": resources})
    }

    #[test]
    fn missing_rules_are_added() {
        let wanted = json!({"metadata": {"labels": {"a": "1"}}, "rules": [rule(&["get", "list"], &["pods"])]});
        let mut current =
            json!({"metadata": {"labels": {"a": "2"}}, "rules": [rule(&["get"], &["pods"]), rule(&["list"], &["*"])]});
        assert_eq!(merge_missing(&current, &wanted), None);
        current["rules"] = json!([rule(&["get"], &["pods"])]);
        let merged = merge_missing(&current, &wanted).unwrap();
        assert_eq!(merged["rules"].as_array().unwrap().len(), 2);
        assert_eq!(merged["metadata"]["labels"]["a"], "2");
    }

    #[test]
    fn complete_object_is_unchanged() {
        let bound = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "u"}], "roleRef": {}});
        assert_eq!(merge_missing(&bound, &bound), None);
        let selector = json!({"matchLabels": {"a": "b"}});
        let gathered = json!({"metadata": {}, "aggregationRule": {"clusterRoleSelectors": [selector]}});
        assert_eq!(merge_missing(&gathered, &gathered), None);
        let empty = json!({"metadata": {}, "roleRef": {}});
        assert_eq!(merge_missing(&empty, &bound).unwrap()["subjects"], bound["subjects"]);
    }

    #[test]
    fn named_rule_does_not_cover_unnamed_rule() {
        let mut named = rule(&["get"], &["pods"]);
        named["resourceNames"] = json!(["a"]);
        assert!(!is_rule_covered(&[named.clone()], &rule(&["get"], &["pods"])));
        assert!(is_rule_covered(&[rule(&["*"], &["pods"])], &named));
        let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
        assert!(!is_rule_covered(&[rule(&["*"], &["*"])], &paths));
        assert!(is_rule_covered(std::slice::from_ref(&paths), &paths));
    }

    #[test]
    fn missing_subjects_are_appended() {
        let wanted = json!({"metadata": {}, "subjects": [{"name": "a"}]});
        let current = json!({"metadata": {}, "subjects": [{"name": "b"}]});
        assert_eq!(merge_missing(&current, &wanted).unwrap()["subjects"], json!([{"name": "b"}, {"name": "a"}]));
    }
}
