//! The selectors of a request, as authorizers see them: requirements that all must hold.
//!
//! What cannot be read is left out, which makes a question about more than is meant: an authorizer that allows it allows
//! what is meant too.

use std::sync::LazyLock;

use api::{
    Value, meta,
    selector::{LabelSelector, parse_requirements},
};
use serde_json::json;

/// What a list, a watch or a deletion of many is limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// On fields.
    pub fields: Requirements,
    /// On labels.
    pub labels: Requirements,
}

/// Requirements that all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Those that could be read.
    pub all: Vec<Requirement>,
    /// Why others could not.
    pub error: Option<String>,
}

/// What must be true of a label or a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label or the field.
    pub key: String,
    /// How it is compared: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    /// With what.
    pub values: Vec<String>,
}

impl Selectors {
    /// No limits.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<Selectors> = LazyLock::new(Selectors::default);
        &NONE
    }

    /// Reads the selectors of a query.
    pub fn parse(fields: &str, labels: &str) -> Self {
        Self { fields: parsed_fields(fields), labels: parsed_labels(labels) }
    }

    /// Reads the selectors of an access review.
    pub fn of_review(attributes: &Value) -> Self {
        let part = |name: &str| attributes.get(name).filter(|part| part.is_object());
        let fields = part("fieldSelector").map_or_else(Requirements::default, |selector| {
            match meta::list_at(selector, &["requirements"]) {
                [] => parsed_fields(meta::string_at(selector, &["rawSelector"])),
                requirements => Requirements::read(requirements, field_requirement),
            }
        });
        let labels = part("labelSelector").map_or_else(Requirements::default, |selector| {
            match meta::list_at(selector, &["requirements"]) {
                [] => parsed_labels(meta::string_at(selector, &["rawSelector"])),
                requirements => Requirements::read(requirements, label_requirement),
            }
        });
        Self { fields, labels }
    }

    /// The value that a field must have, if there is only one.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.all.iter().find_map(|requirement| match (requirement.operator, requirement.values.as_slice()) {
            ("In", [value]) if requirement.key == name => Some(value.as_str()),
            _ => None,
        })
    }

    /// Whether a field must have a value.
    pub fn requires_field(&self, name: &str, value: &str) -> bool {
        self.fields.all.iter().any(|requirement| {
            requirement.key == name && requirement.operator == "In" && requirement.values == [value.to_owned()]
        })
    }
}

impl Requirements {
    fn of(read: Result<Vec<Requirement>, String>) -> Self {
        match read {
            Ok(all) => Self { all, error: None },
            Err(error) => Self { all: Vec::new(), error: Some(error) },
        }
    }

    fn read(given: &[Value], read: impl Fn(&Value) -> Result<Requirement, String>) -> Self {
        let (mut all, mut errors) = (Vec::new(), Vec::new());
        for requirement in given.iter().map(read) {
            match requirement {
                Ok(requirement) => all.push(requirement),
                Err(error) => errors.push(error),
            }
        }
        Self { all, error: (!errors.is_empty()).then(|| errors.join(", ")) }
    }

    /// The form that access reviews have; `None` for no requirements.
    pub fn to_value(&self) -> Option<Value> {
        let one = |requirement: &Requirement| {
            let mut value = json!({"key": requirement.key, "operator": requirement.operator});
            if !requirement.values.is_empty() {
                value["values"] = json!(requirement.values);
            }
            value
        };
        (!self.all.is_empty()).then(|| json!({"requirements": self.all.iter().map(one).collect::<Vec<_>>()}))
    }
}

fn parsed_fields(text: &str) -> Requirements {
    let requirement = |(key, equal, value)| {
        let operator = if equal { "In" } else { "NotIn" };
        Requirement { key, operator, values: vec![value] }
    };
    let read = parse_requirements(text).map(|terms| terms.into_iter().map(requirement).collect());
    Requirements::of(read.map_err(|error| error.to_string()))
}

fn parsed_labels(text: &str) -> Requirements {
    Requirements::of(LabelSelector::parse(text).map(|selector| of_labels(&selector)).map_err(|error| error.to_string()))
}

fn of_labels(selector: &LabelSelector) -> Vec<Requirement> {
    let one = |(key, operator, values): (&str, &'static str, &[String])| Requirement {
        key: key.to_owned(),
        operator,
        values: values.to_vec(),
    };
    selector.requirements().map(one).collect()
}

fn field_requirement(given: &Value) -> Result<Requirement, String> {
    let values: Vec<String> =
        meta::list_at(given, &["values"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if values.len() > 1 {
        return Err("fieldSelectors do not yet support multiple values".into());
    }
    let key = meta::string_at(given, &["key"]).to_owned();
    match meta::string_at(given, &["operator"]) {
        "In" if values.len() == 1 => Ok(Requirement { key, operator: "In", values }),
        "In" => Err("fieldSelectors in must have one value".into()),
        "NotIn" if values.len() == 1 => Ok(Requirement { key, operator: "NotIn", values }),
        "NotIn" => Err("fieldSelectors not in must have one value".into()),
        operator @ ("Exists" | "DoesNotExist") => Err(format!("fieldSelectors do not yet support {operator}")),
        operator => Err(format!("{operator:?} is not a valid field selector operator")),
    }
}

fn label_requirement(given: &Value) -> Result<Requirement, String> {
    let selector =
        LabelSelector::from_object(&json!({"matchExpressions": [given]})).map_err(|error| error.to_string())?;
    let read = of_labels(&selector).pop().ok_or("no requirement")?;
    let wants_values = matches!(read.operator, "In" | "NotIn");
    if wants_values == read.values.is_empty() {
        return Err(format!("values of {:?} do not fit {}", read.key, read.operator));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selectors: &Selectors, fields: &str, labels: &str, errors: (bool, bool)) {
        let text = |requirements: &Requirements| {
            let one = |one: &Requirement| format!("{} {} {}", one.key, one.operator, one.values.join("+"));
            requirements.all.iter().map(one).collect::<Vec<_>>().join("; ")
        };
        assert_eq!((text(&selectors.fields).as_str(), text(&selectors.labels).as_str()), (fields, labels));
        assert_eq!((selectors.fields.error.is_some(), selectors.labels.error.is_some()), errors);
    }

    #[test]
    fn queries_are_requirements() {
        let none = (false, false);
        check(&Selectors::parse("", ""), "", "", none);
        check(&Selectors::parse("a.b=c,d!=e", "x"), "a.b In c; d NotIn e", "x Exists ", none);
        check(&Selectors::parse("a=1\\,2", "x in (a,b),!y,z>1"), "a In 1,2", "x In a+b; y DoesNotExist ", none);
        check(&Selectors::parse("a", "x in"), "", "", (true, true));
        assert!(Selectors::parse("spec.nodeName=n,a=b", "").requires_field("spec.nodeName", "n"));
        assert!(!Selectors::parse("spec.nodeName!=n", "").requires_field("spec.nodeName", "n"));
    }

    #[test]
    fn reviews_are_requirements_as_far_as_they_can_be_read() {
        let raw = json!({"fieldSelector": {"rawSelector": "a=b"}, "labelSelector": {"rawSelector": "x=y"}});
        check(&Selectors::of_review(&raw), "a In b", "x In y", (false, false));
        let given = json!({
            "fieldSelector": {"requirements": [{"key": "a", "operator": "NotIn", "values": ["b"]}, {"key": "c", "operator": "Exists"}]},
            "labelSelector": {"requirements": [{"key": "x", "operator": "Exists"}, {"key": "y", "operator": "Nope"}]},
        });
        check(&Selectors::of_review(&given), "a NotIn b", "x Exists ", (true, true));
    }
}
