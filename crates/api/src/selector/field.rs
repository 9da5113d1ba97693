//! Field selectors: `metadata.name=web,status.phase!=Running`, on the selectable fields of a resource.

use super::SelectorError;
use crate::{
    Value,
    schema::{Resource, SelectableField, UnknownFieldError},
};

/// A field selector: requirements that must all hold.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<FieldRequirement>,
}

/// A field that must, or must not, have a value.
#[derive(Clone, Debug)]
struct FieldRequirement {
    field: SelectableField,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses a selector for `resource`; unknown fields are rejected.
    pub fn parse(text: &str, resource: &Resource) -> Result<Self, SelectorError> {
        let term = |(name, equal, value): (String, bool, String)| {
            Ok(FieldRequirement { field: find_selectable_field(&name, resource)?, equal, value })
        };
        Ok(Self { terms: parse_requirements(text)?.into_iter().map(term).collect::<Result<_, _>>()? })
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether the selector matches `object`.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (term.field.value_of(object) == term.value) == term.equal)
    }

    /// Iterates over field label, equality, and value of the requirements.
    pub fn requirements(&self) -> impl Iterator<Item = (&'static str, bool, &str)> {
        self.terms.iter().map(|term| (term.field.name, term.equal, term.value.as_str()))
    }
}

/// Parses a selector without a resource: field label, equality, and value of each requirement.
pub fn parse_requirements(text: &str) -> Result<Vec<(String, bool, String)>, SelectorError> {
    split_terms(text).iter().map(|term| parse_requirement(term)).collect()
}

/// Returns the selectable field of a label, or upstream's error.
fn find_selectable_field(name: &str, resource: &Resource) -> Result<SelectableField, SelectorError> {
    let everywhere = ["metadata.name", "metadata.namespace"].into_iter().find(|known| *known == name);
    if let Some(name) = everywhere {
        return Ok(SelectableField { name, paths: vec![name], default_value: "" });
    }
    resource.selectable_field(name).cloned().ok_or_else(|| {
        SelectorError(match resource.unknown_field_error {
            _ if resource.selectable_fields.is_empty() => {
                format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            UnknownFieldError::Plain => format!("field label not supported: {name}"),
            UnknownFieldError::Quoted => format!("field label {name:?} not supported for {}", resource.kind),
            UnknownFieldError::Typed => {
                format!("field label not supported for {}, Kind={}: {name}", resource.api_version(), resource.kind)
            }
        })
    })
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<String> {
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

fn parse_requirement(term: &str) -> Result<(String, bool, String), SelectorError> {
    for (symbol, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((path, value)) = term.split_once(symbol) {
            return Ok((path.to_owned(), equal, unescape_value(value)));
        }
    }
    Err(SelectorError(format!("invalid selector: '{term}'; can't understand '{term}'")))
}

fn unescape_value(value: &str) -> String {
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
    fn field_selector_matches_objects() {
        let pods = schema().resource("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {}});
        let check = |text: &str| FieldSelector::parse(text, pods).unwrap().matches(&pod);
        assert!(check("metadata.name=a,spec.nodeName==n,status.phase!=Running,spec.hostNetwork=false"));
        assert!(!check("spec.nodeName="));
        let events = schema().resource("", "v1", "events").unwrap();
        let source = FieldSelector::parse("source=kubelet", events).unwrap();
        assert!(source.matches(&json!({"source": {"component": "kubelet"}, "reportingComponent": "other"})));
        assert!(source.matches(&json!({"source": {}, "reportingComponent": "kubelet"})));
        assert!(FieldSelector::parse("spec.nope=1", pods).is_err());
        assert!(FieldSelector::parse("metadata.name", pods).is_err());
    }
}
