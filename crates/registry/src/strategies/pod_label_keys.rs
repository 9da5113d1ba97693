//! Merges `matchLabelKeys` and `mismatchLabelKeys` of a new pod into the label selectors beside them.
//!
//! The values are those of the pod's labels. A key that the pod has no label for, and a term without a selector, are
//! left alone. Upstream's scheduler and ours read the merged selector only.

use api::Value;
use serde_json::json;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Merges the label keys of affinity terms and topology spread constraints.
pub(super) fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let Some(spec) = pod.get_mut("spec") else { return };
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|all| all.get_mut(affinity)) else { continue };
        let preferred = items_mut(affinity, PREFERRED).filter_map(|term| term.get_mut("podAffinityTerm"));
        preferred.for_each(|term| merge_keys_of_term(term, &labels));
        items_mut(affinity, REQUIRED).for_each(|term| merge_keys_of_term(term, &labels));
    }
    items_mut(spec, "topologySpreadConstraints").for_each(|constraint| merge_keys_of_term(constraint, &labels));
}

fn items_mut<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn merge_keys_of_term(term: &mut Value, labels: &Value) {
    let mut requirements = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                requirements.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = term.get_mut("labelSelector").filter(|selector| selector.is_object()) else { return };
    if requirements.is_empty() {
        return;
    }
    match selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        Some(expressions) => expressions.extend(requirements),
        None => selector["matchExpressions"] = Value::Array(requirements),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(mut spec: Value) -> Value {
        let mut pod = json!({"metadata": {"labels": {"app": "x", "rev": "1"}}, "spec": spec.take()});
        merge_label_keys(&mut pod);
        pod["spec"].take()
    }

    #[test]
    fn keys_of_constraints_become_requirements() {
        let constraint = |selector: Value| json!({"topologySpreadConstraints": [{"labelSelector": selector, "matchLabelKeys": ["rev", "absent"]}]});
        let want = json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "rev", "operator": "In", "values": ["1"]}]});
        assert_eq!(merged(constraint(json!({"matchLabels": {"app": "x"}}))), constraint(want));
        assert_eq!(merged(constraint(Value::Null)), constraint(Value::Null));
    }

    #[test]
    fn keys_of_affinity_terms_follow_the_expressions() {
        let exists = json!({"key": "app", "operator": "Exists"});
        let term = |expressions: Value| json!({"labelSelector": {"matchExpressions": expressions}, "matchLabelKeys": ["app"], "mismatchLabelKeys": ["rev"]});
        let affinity = |term: Value| json!({"affinity": {"podAntiAffinity": {REQUIRED: [term]}, "podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}}});
        let (matching, other) = (
            json!({"key": "app", "operator": "In", "values": ["x"]}),
            json!({"key": "rev", "operator": "NotIn", "values": ["1"]}),
        );
        assert_eq!(merged(affinity(term(json!([exists])))), affinity(term(json!([exists, matching, other]))));
    }
}
