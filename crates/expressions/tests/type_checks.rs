//! Type checks of the policies of `type_checks.jsonl` against the status that upstream's controller manager 1.36.4 writes.
//! Upstream adds a number to the names of types; here they have none.

use ferry_expressions::type_check;
use serde_json::{Value, json};

#[test]
fn type_check_warnings_match_upstream() {
    let (mut differ, mut count) = (Vec::new(), 0);
    for line in include_str!("type_checks.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let warnings = type_check::check_policy_types(&json!({"spec": case["spec"]}));
        let warnings: Vec<Value> =
            warnings.iter().map(|warning| json!({"fieldRef": warning.field, "warning": warning.text})).collect();
        let want = case["warnings"].as_array().unwrap();
        count += want.len();
        let missing =
            want.iter().filter(|warning| !warnings.contains(warning)).map(|warning| format!("lacks {warning}"));
        let more = warnings.iter().filter(|warning| !want.contains(warning)).map(|warning| format!("has {warning}"));
        differ.extend(missing.chain(more));
        assert!(!differ.is_empty() || warnings == *want, "the order differs");
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(count > 60, "{count}");
}
