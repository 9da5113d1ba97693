//! The selectors of a request as authorizers see them: requirements that must all hold.
//!
//! Malformed requirements are left out, which widens the request: an authorizer that allows the wider request allows
//! the narrower one.

use std::sync::LazyLock;

use api::{
    Value, meta,
    selector::{LabelSelector, SelectorError, parse_requirements},
};
use serde_json::json;

/// The selectors of a list, watch or deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSelectors {
    /// Field selector.
    pub fields: SelectorRequirements,
    /// Label selector.
    pub labels: SelectorRequirements,
}

/// Requirements that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorRequirements {
    /// The well-formed requirements.
    pub all: Vec<SelectorRequirement>,
    /// The error of the malformed ones.
    pub error: Option<String>,
}

/// A requirement on a label or field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorRequirement {
    /// Label key or field path.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    /// The values that it is compared with.
    pub values: Vec<String>,
}

impl RequestSelectors {
    /// Selectors without requirements.
    pub fn everything() -> &'static Self {
        static NONE: LazyLock<RequestSelectors> = LazyLock::new(RequestSelectors::default);
        &NONE
    }

    /// Parses the selectors of a query.
    pub fn parse(fields: &str, labels: &str) -> Self {
        Self { fields: parse_field_requirements(fields), labels: parse_label_requirements(labels) }
    }

    /// Parses the selectors of an access review.
    pub fn from_review(attributes: &Value) -> Self {
        let selector_at = |name: &str| attributes.get(name).filter(|selector| selector.is_object());
        let fields = selector_at("fieldSelector").map_or_else(SelectorRequirements::default, |selector| {
            match meta::list_at(selector, &["requirements"]) {
                [] => parse_field_requirements(meta::string_at(selector, &["rawSelector"])),
                requirements => SelectorRequirements::from_values(requirements, parse_field_requirement),
            }
        });
        let labels = selector_at("labelSelector").map_or_else(SelectorRequirements::default, |selector| {
            match meta::list_at(selector, &["requirements"]) {
                [] => parse_label_requirements(meta::string_at(selector, &["rawSelector"])),
                requirements => SelectorRequirements::from_values(requirements, parse_label_requirement),
            }
        });
        Self { fields, labels }
    }

    /// The only value that a field may have, if it is restricted to one.
    pub fn required_field_value(&self, name: &str) -> Option<&str> {
        self.fields.all.iter().find_map(|requirement| match (requirement.operator, requirement.values.as_slice()) {
            ("In", [value]) if requirement.key == name => Some(value.as_str()),
            _ => None,
        })
    }

    /// Whether a field is restricted to a value.
    pub fn requires_field(&self, name: &str, value: &str) -> bool {
        self.fields.all.iter().any(|requirement| {
            requirement.key == name && requirement.operator == "In" && requirement.values == [value.to_owned()]
        })
    }
}

impl SelectorRequirements {
    fn from_result(parsed: Result<Vec<SelectorRequirement>, SelectorError>) -> Self {
        match parsed {
            Ok(all) => Self { all, error: None },
            Err(error) => Self { all: Vec::new(), error: Some(error.to_string()) },
        }
    }

    fn from_values(values: &[Value], read: impl Fn(&Value) -> Result<SelectorRequirement, RequirementError>) -> Self {
        let (mut all, mut errors) = (Vec::new(), Vec::new());
        for requirement in values.iter().map(read) {
            match requirement {
                Ok(requirement) => all.push(requirement),
                Err(error) => errors.push(error.to_string()),
            }
        }
        Self { all, error: (!errors.is_empty()).then(|| errors.join(", ")) }
    }

    /// The representation in access reviews; `None` without requirements.
    pub fn to_value(&self) -> Option<Value> {
        let to_json = |requirement: &SelectorRequirement| {
            let mut value = json!({"key": requirement.key, "operator": requirement.operator});
            if !requirement.values.is_empty() {
                value["values"] = json!(requirement.values);
            }
            value
        };
        (!self.all.is_empty()).then(|| json!({"requirements": self.all.iter().map(to_json).collect::<Vec<_>>()}))
    }
}

fn parse_field_requirements(text: &str) -> SelectorRequirements {
    let requirement = |(key, equal, value)| {
        let operator = if equal { "In" } else { "NotIn" };
        SelectorRequirement { key, operator, values: vec![value] }
    };
    let parsed = parse_requirements(text).map(|terms| terms.into_iter().map(requirement).collect());
    SelectorRequirements::from_result(parsed)
}

fn parse_label_requirements(text: &str) -> SelectorRequirements {
    SelectorRequirements::from_result(LabelSelector::parse(text).map(|selector| label_requirements(&selector)))
}

fn label_requirements(selector: &LabelSelector) -> Vec<SelectorRequirement> {
    let to_requirement = |(key, operator, values): (&str, &'static str, &[String])| SelectorRequirement {
        key: key.to_owned(),
        operator,
        values: values.to_vec(),
    };
    selector.requirements().map(to_requirement).collect()
}

/// A requirement of an access review that is not used.
#[derive(Debug, thiserror::Error)]
enum RequirementError {
    #[error("fieldSelectors do not yet support multiple values")]
    MultipleValues,
    #[error("fieldSelectors {0} must have one value")]
    NoValue(&'static str),
    #[error("fieldSelectors do not yet support {0}")]
    UnsupportedOperator(String),
    #[error("{0:?} is not a valid field selector operator")]
    UnknownOperator(String),
    #[error(transparent)]
    Selector(#[from] SelectorError),
    #[error("no requirement")]
    Empty,
    #[error("values of {0:?} do not fit {1}")]
    Values(String, &'static str),
}

fn parse_field_requirement(value: &Value) -> Result<SelectorRequirement, RequirementError> {
    let values: Vec<String> =
        meta::list_at(value, &["values"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if values.len() > 1 {
        return Err(RequirementError::MultipleValues);
    }
    let key = meta::string_at(value, &["key"]).to_owned();
    match meta::string_at(value, &["operator"]) {
        "In" if values.len() == 1 => Ok(SelectorRequirement { key, operator: "In", values }),
        "In" => Err(RequirementError::NoValue("in")),
        "NotIn" if values.len() == 1 => Ok(SelectorRequirement { key, operator: "NotIn", values }),
        "NotIn" => Err(RequirementError::NoValue("not in")),
        operator @ ("Exists" | "DoesNotExist") => Err(RequirementError::UnsupportedOperator(operator.to_owned())),
        operator => Err(RequirementError::UnknownOperator(operator.to_owned())),
    }
}

fn parse_label_requirement(value: &Value) -> Result<SelectorRequirement, RequirementError> {
    let selector = LabelSelector::from_object(&json!({"matchExpressions": [value]}))?;
    let requirement = label_requirements(&selector).pop().ok_or(RequirementError::Empty)?;
    let needs_values = matches!(requirement.operator, "In" | "NotIn");
    if needs_values == requirement.values.is_empty() {
        return Err(RequirementError::Values(requirement.key, requirement.operator));
    }
    Ok(requirement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_selectors(selectors: &RequestSelectors, fields: &str, labels: &str, errors: (bool, bool)) {
        let text = |requirements: &SelectorRequirements| {
            let format_requirement =
                |it: &SelectorRequirement| format!("{} {} {}", it.key, it.operator, it.values.join("+"));
            requirements.all.iter().map(format_requirement).collect::<Vec<_>>().join("; ")
        };
        assert_eq!((text(&selectors.fields).as_str(), text(&selectors.labels).as_str()), (fields, labels));
        assert_eq!((selectors.fields.error.is_some(), selectors.labels.error.is_some()), errors);
    }

    #[test]
    fn query_selectors_are_parsed() {
        let none = (false, false);
        check_selectors(&RequestSelectors::parse("", ""), "", "", none);
        check_selectors(&RequestSelectors::parse("a.b=c,d!=e", "x"), "a.b In c; d NotIn e", "x Exists ", none);
        check_selectors(
            &RequestSelectors::parse("a=1\\,2", "x in (a,b),!y,z>1"),
            "a In 1,2",
            "x In a+b; y DoesNotExist ",
            none,
        );
        check_selectors(&RequestSelectors::parse("a", "x in"), "", "", (true, true));
        assert!(RequestSelectors::parse("spec.nodeName=n,a=b", "").requires_field("spec.nodeName", "n"));
        assert!(!RequestSelectors::parse("spec.nodeName!=n", "").requires_field("spec.nodeName", "n"));
    }

    #[test]
    fn malformed_review_requirements_are_left_out() {
        let raw = json!({"fieldSelector": {"rawSelector": "a=b"}, "labelSelector": {"rawSelector": "x=y"}});
        check_selectors(&RequestSelectors::from_review(&raw), "a In b", "x In y", (false, false));
        let review = json!({
            "fieldSelector": {"requirements": [{"key": "a", "operator": "NotIn", "values": ["b"]}, {"key": "c", "operator": "Exists"}]},
            "labelSelector": {"requirements": [{"key": "x", "operator": "Exists"}, {"key": "y", "operator": "Nope"}]},
        });
        check_selectors(&RequestSelectors::from_review(&review), "a NotIn b", "x Exists ", (true, true));
    }
}
