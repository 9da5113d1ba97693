//! Label sets and label selectors in the form that matching reads: interned and sorted.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::intern::intern;

/// Labels sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSet(Box<[(Arc<str>, Arc<str>)]>);

impl LabelSet {
    /// Interns a map of labels.
    pub fn from_map(labels: Option<&BTreeMap<String, String>>) -> Self {
        Self(labels.into_iter().flatten().map(|(key, value)| (intern(key), intern(value))).collect())
    }

    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let found = self.0.binary_search_by(|(known, _)| known.as_ref().cmp(key)).ok()?;
        self.0.get(found).map(|(_, value)| value)
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

/// The relation that a requirement demands between a label and its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than the value.
    Gt,
    /// The label is an integer less than the value.
    Lt,
}

impl LabelOperator {
    /// Parses the name that the API uses.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            _ => return None,
        })
    }
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    key: Arc<str>,
    operator: LabelOperator,
    values: Box<[Arc<str>]>,
}

impl LabelRequirement {
    /// Creates a requirement.
    pub fn new(key: &str, operator: LabelOperator, values: &[String]) -> Self {
        Self { key: intern(key), operator, values: values.iter().map(|value| intern(value)).collect() }
    }

    /// Whether the labels fulfil the requirement.
    pub fn matches(&self, labels: &LabelSet) -> bool {
        self.matches_value(labels.get(&self.key).map(AsRef::as_ref))
    }

    /// Whether a label with this value, or its absence, fulfils the requirement.
    pub fn matches_value(&self, value: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|wanted| wanted.as_ref() == value);
        let compare = || {
            let value: i64 = value?.parse().ok()?;
            Some(value.cmp(&self.values.first()?.parse().ok()?))
        };
        match self.operator {
            LabelOperator::In => value.is_some_and(has),
            LabelOperator::NotIn => !value.is_some_and(has),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::Gt => compare().is_some_and(|order| order.is_gt()),
            LabelOperator::Lt => compare().is_some_and(|order| order.is_lt()),
        }
    }
}

/// A parsed label selector: all requirements must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// Matches nothing; what an absent selector means.
    Nothing,
    /// Matches labels that fulfil all requirements; without requirements it is empty and matches everything.
    All(Box<[LabelRequirement]>),
}

impl Selector {
    /// Parses a selector of the API; a requirement with an unknown operator makes it match nothing.
    pub fn from_label_selector(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self::Nothing };
        let labels = selector.match_labels.iter().flatten();
        let equal =
            labels.map(|(key, value)| Some(LabelRequirement::new(key, LabelOperator::In, std::slice::from_ref(value))));
        let expressions = selector.match_expressions.iter().flatten().map(|expression| {
            let operator = LabelOperator::parse(&expression.operator)?;
            Some(LabelRequirement::new(&expression.key, operator, expression.values.as_deref().unwrap_or(&[])))
        });
        equal.chain(expressions).collect::<Option<Box<[_]>>>().map_or(Self::Nothing, Self::All)
    }

    /// A selector for exactly these labels.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let requirement = |(key, value): (&String, &String)| {
            LabelRequirement::new(key, LabelOperator::In, std::slice::from_ref(value))
        };
        Self::All(labels.into_iter().map(requirement).collect())
    }

    /// Whether the selector has no requirements and matches everything.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// Whether the selector matches these labels.
    pub fn matches(&self, labels: &LabelSet) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|requirement| requirement.matches(labels)),
        }
    }

    /// Returns the selector that matches what both match.
    pub fn and(self, other: &Self) -> Self {
        match (self, other) {
            (Self::All(own), Self::All(others)) => Self::All(own.iter().chain(others.iter()).cloned().collect()),
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(selector: serde_json::Value, labels: &[(&str, &str)], expected: bool) {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
        let parsed = Selector::from_label_selector(selector.as_ref());
        assert_eq!(parsed.matches(&LabelSet::from_map(Some(&labels))), expected, "{selector:?}");
    }

    #[test]
    fn selectors_match_like_upstream() {
        let labels = [("app", "web"), ("rank", "5")];
        check(json!(null), &labels, false);
        check(json!({}), &labels, true);
        check(json!({"matchLabels": {"app": "web"}}), &labels, true);
        check(json!({"matchLabels": {"app": "web", "tier": "x"}}), &labels, false);
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(expression("app", "NotIn", &["db"]), &labels, true);
        check(expression("none", "NotIn", &["db"]), &labels, true);
        check(expression("none", "Exists", &[]), &labels, false);
        check(expression("none", "DoesNotExist", &[]), &labels, true);
        check(expression("rank", "Gt", &["4"]), &labels, true);
        check(expression("app", "Lt", &["4"]), &labels, false);
        check(expression("app", "Like", &["w"]), &labels, false);
    }
}
