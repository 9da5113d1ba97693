//! Conditions in the form that most kinds share, as far as the tables cannot say what is right.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { condition_types condition_reason };

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
    'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// There is one condition of a type.
fn condition_types(list: &At, e: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        let kind = condition.get("type");
        if let Some(first) = seen.iter().position(|text| *text == kind.text()) {
            let message = format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            kind.invalid_text(e, message);
        }
        seen.push(kind.text());
    }
}

fn condition_reason(reason: &At, e: &mut Errors) {
    let text = reason.text();
    let right = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c));
    if !right {
        reason.invalid_text(e, REASON);
    }
}
