//! Validation of conditions in the form that most kinds share.

use super::{Errors, at::At, names};

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
    'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// The faults of a list of conditions.
pub(super) fn check(list: &At, e: &mut Errors) {
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for (at, condition) in list.items().enumerate() {
        let kind = condition.get("type");
        if let Some((_, first)) = seen.iter().find(|(text, _)| *text == kind.text()) {
            let message = format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            kind.invalid_text(e, message);
        }
        seen.push((kind.text(), at));
        one(&condition, e);
    }
}

fn one(at: &At, e: &mut Errors) {
    at.get("type").form(e, names::qualified);
    if !["True", "False", "Unknown"].contains(&at.get("status").text()) {
        at.get("status").unsupported(e, &["False", "True", "Unknown"]);
    }
    at.get("observedGeneration").nonnegative(e);
    if !at.get("lastTransitionTime").exists() {
        at.get("lastTransitionTime").required(e, "must be set");
    }
    let reason = at.get("reason");
    if reason.is_empty() {
        reason.required(e, "must be set");
    } else {
        let text = reason.text();
        let right = text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c));
        if !right {
            reason.invalid_text(e, REASON);
        }
        if text.len() > 1024 {
            reason.too_long(e, 1024);
        }
    }
    if at.get("message").text().len() > 32 * 1024 {
        at.get("message").too_long(e, 32 * 1024);
    }
}
