//! Name acceptance: a CRD gets the names that no other CRD of its group has.

use std::collections::HashSet;

use api::{Value, meta};
use serde_json::{Map, json};

use super::crd_index::CrdSummary;

/// The accepted names of the other CRDs of a group.
pub struct OccupiedNames {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl OccupiedNames {
    /// Collects the accepted names of a group's CRDs.
    pub fn collect<'a>(group: &str, all: impl Iterator<Item = &'a CrdSummary>) -> Self {
        let mut taken = Self { resources: HashSet::new(), kinds: HashSet::new() };
        for one in all.filter(|one| one.group == group) {
            let text = |field: &str| meta::string_at(&one.accepted, &[field]).to_owned();
            taken.resources.extend(["plural", "singular"].map(text));
            taken.resources.extend(short_names(&one.accepted).map(str::to_owned));
            taken.kinds.extend(["kind", "listKind"].map(text));
        }
        taken
    }
}

/// The accepted names of a CRD and its `NamesAccepted` condition.
pub struct NamesDecision {
    /// `status.acceptedNames`.
    pub accepted: Value,
    /// Status, reason and message of `NamesAccepted`.
    pub condition: (bool, &'static str, String),
}

/// Decides which requested names are accepted.
pub fn decide_names(wanted: &Value, accepted: &Value, taken: &OccupiedNames) -> NamesDecision {
    let mut names: Map<String, Value> = accepted.as_object().cloned().unwrap_or_default();
    let mut condition = (true, "NoConflicts", "no conflicts found".to_owned());
    let mut one = |field: &str, reason: &'static str, used: &HashSet<String>| {
        let name = meta::string_at(wanted, &[field]);
        if name != meta::string_at(accepted, &[field]) && used.contains(name) {
            condition = (false, reason, in_use_message(name));
        } else {
            names.insert(field.to_owned(), name.into());
        }
    };
    one("plural", "PluralConflict", &taken.resources);
    one("singular", "SingularConflict", &taken.resources);
    one("kind", "KindConflict", &taken.kinds);
    one("listKind", "ListKindConflict", &taken.kinds);
    let own: Vec<&str> = short_names(accepted).collect();
    let clashes: Vec<String> = short_names(wanted)
        .filter(|name| !own.contains(name) && taken.resources.contains(*name))
        .map(in_use_message)
        .collect();
    if clashes.is_empty() {
        names.insert("shortNames".into(), wanted["shortNames"].clone());
    } else if !matches!(condition.1, "KindConflict" | "ListKindConflict") {
        let message = if clashes.len() == 1 { clashes[0].clone() } else { format!("[{}]", clashes.join(", ")) };
        condition = (false, "ShortNamesConflict", message);
    }
    names.insert("categories".into(), wanted["categories"].clone());
    names.retain(|field, value| match field.as_str() {
        "plural" | "kind" => true,
        _ => !(value.is_null() || *value == json!("") || *value == json!([])),
    });
    for field in ["plural", "kind"] {
        names.entry(field).or_insert_with(|| "".into());
    }
    NamesDecision { accepted: Value::Object(names), condition }
}

fn in_use_message(name: &str) -> String {
    format!("{name:?} is already in use")
}

fn short_names(names: &Value) -> impl Iterator<Item = &str> {
    meta::list_at(names, &["shortNames"]).iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_use_are_rejected_and_the_last_conflict_is_reported() {
        let taken = OccupiedNames {
            resources: ["widgets", "widget", "wg"].map(str::to_owned).into(),
            kinds: ["Widget", "WidgetList"].map(str::to_owned).into(),
        };
        let wanted = json!({"plural": "widgetz", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
            "shortNames": ["wg"]});
        let decision = decide_names(&wanted, &Value::Null, &taken);
        assert_eq!(decision.accepted, json!({"plural": "widgetz", "kind": ""}));
        assert_eq!(decision.condition, (false, "ListKindConflict", "\"WidgetList\" is already in use".to_owned()));
        let own = json!({"plural": "a", "singular": "b", "kind": "C", "listKind": "D", "shortNames": ["e"]});
        let decision = decide_names(&own, &Value::Null, &taken);
        assert_eq!((decision.accepted, decision.condition.0), (own, true));
    }
}
