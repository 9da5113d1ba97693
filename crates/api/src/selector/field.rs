//! Field selectors: `metadata.name=web,status.phase!=Running`, over the fields that a resource declares.

use super::Error;
use crate::{Value, schema::Resource};

/// Comparisons that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<(String, bool, String)>,
}

impl FieldSelector {
    /// Reads a selector for `resource`; a field that it does not declare is refused.
    pub fn parse(text: &str, resource: &Resource) -> Result<Self, Error> {
        let mut terms = Vec::new();
        for term in split(text) {
            let (path, equal, value) = comparison(&term)?;
            known(&path, resource)?;
            terms.push((path, equal, value));
        }
        Ok(Self { terms })
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The name that every match must have, if there is one.
    pub fn name(&self) -> Option<&str> {
        self.terms.iter().find(|(path, equal, _)| path == "metadata.name" && *equal).map(|(_, _, value)| value.as_str())
    }

    /// Whether the fields of `object` are as required; an absent field is "".
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|(path, equal, wanted)| (text_at(object, path) == *wanted) == *equal)
    }
}

fn text_at(object: &Value, path: &str) -> String {
    let value = path.split('.').try_fold(object, |value, name| value.get(name));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ if path == "source" || path == "reportingComponent" => source(object, path),
        _ if path == "spec.hostNetwork" || path == "spec.unschedulable" => "false".to_owned(),
        _ => String::new(),
    }
}

/// An event's source is its component, or the reporting one.
fn source(object: &Value, path: &str) -> String {
    let of = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    match of("/source/component") {
        component if path == "source" && !component.is_empty() => component,
        _ => of("/reportingComponent"),
    }
}

fn known(path: &str, resource: &Resource) -> Result<(), Error> {
    if matches!(path, "metadata.name" | "metadata.namespace") || resource.fields.contains(&path) {
        return Ok(());
    }
    let message = if resource.fields.is_empty() {
        format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {path}")
    };
    Err(Error(message))
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<String> {
    let (mut terms, mut term, mut escaped) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        match character {
            ',' if !escaped => terms.push(std::mem::take(&mut term)),
            _ => term.push(character),
        }
        escaped = character == '\\' && !escaped;
    }
    terms.push(term);
    terms.retain(|term| !term.is_empty());
    terms
}

fn comparison(term: &str) -> Result<(String, bool, String), Error> {
    for (symbol, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((path, value)) = term.split_once(symbol) {
            return Ok((path.to_owned(), equal, unescape(value)));
        }
    }
    Err(Error(format!("invalid selector: '{term}'; can't understand '{term}'")))
}

fn unescape(value: &str) -> String {
    let (mut out, mut escaped) = (String::new(), false);
    for character in value.chars() {
        if character == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(character);
            escaped = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::schema;

    #[test]
    fn fields_select_objects() {
        let pods = schema().resource("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {}});
        let check = |text: &str| FieldSelector::parse(text, pods).unwrap().matches(&pod);
        assert!(check("metadata.name=a,spec.nodeName==n,status.phase!=Running,spec.hostNetwork=false"));
        assert!(!check("spec.nodeName="));
        assert!(FieldSelector::parse("spec.nope=1", pods).is_err());
        assert!(FieldSelector::parse("metadata.name", pods).is_err());
    }
}
