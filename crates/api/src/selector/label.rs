//! Label selectors: `app=web,tier!=db,env in (a,b),!old`, and the `LabelSelector` object.

use super::{
    SelectorError, parse,
    requirement::{LabelOperator, LabelRequirement},
};
use crate::{Value, meta};

/// A label selector: requirements that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

impl LabelSelector {
    /// Parses the query form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Ok(Self { requirements: parse::parse_requirements(text)? })
    }

    /// Parses the object form: `matchLabels` and `matchExpressions`.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in meta::value_at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten()
        {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(LabelRequirement { key: key.clone(), operator: LabelOperator::In(vec![value]) });
        }
        for expression in meta::list_at(selector, &["matchExpressions"]) {
            let values = || {
                let values = meta::list_at(expression, &["values"]).iter();
                values.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
            };
            let operator = match meta::string_at(expression, &["operator"]) {
                "In" => LabelOperator::In(values()),
                "NotIn" => LabelOperator::NotIn(values()),
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
            };
            requirements.push(LabelRequirement { key: meta::string_at(expression, &["key"]).to_owned(), operator });
        }
        Ok(Self { requirements })
    }

    /// Iterates over key, operator and values of the object form; numeric comparisons have no such form and are
    /// skipped.
    pub fn requirements(&self) -> impl Iterator<Item = (&str, &'static str, &[String])> {
        self.requirements.iter().filter_map(|requirement| {
            let (operator, values) = match &requirement.operator {
                LabelOperator::In(values) => ("In", values.as_slice()),
                LabelOperator::NotIn(values) => ("NotIn", values.as_slice()),
                LabelOperator::Exists => ("Exists", &[] as &[String]),
                LabelOperator::DoesNotExist => ("DoesNotExist", &[] as &[String]),
                LabelOperator::GreaterThan(_) | LabelOperator::LessThan(_) => return None,
            };
            Some((requirement.key.as_str(), operator, values))
        })
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the selector matches `labels` (a JSON object, or null for none).
    pub fn matches(&self, labels: &Value) -> bool {
        self.matches_by(|key| labels.get(key).and_then(Value::as_str))
    }

    /// Whether the selector matches labels whose values `value_of` returns.
    pub fn matches_by<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = value_of(&requirement.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                LabelOperator::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
                LabelOperator::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
                LabelOperator::Exists => value.is_some(),
                LabelOperator::DoesNotExist => value.is_none(),
                LabelOperator::GreaterThan(bound) => number().is_some_and(|n| n > *bound),
                LabelOperator::LessThan(bound) => number().is_some_and(|n| n < *bound),
            }
        })
    }
}

/// Formats the object form, or a map of labels, as a query: sorted by key, "" for everything.
pub fn format_label_selector(selector: &Value) -> String {
    let labels = meta::value_at(selector, &["matchLabels"]).unwrap_or(selector).as_object().into_iter().flatten();
    let mut parts: Vec<(&str, String)> =
        labels.filter_map(|(key, value)| Some((key.as_str(), format!("{key}={}", value.as_str()?)))).collect();
    for expression in meta::list_at(selector, &["matchExpressions"]) {
        let key = meta::string_at(expression, &["key"]);
        let mut values: Vec<&str> = meta::list_at(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match meta::string_at(expression, &["operator"]) {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({})", operator.to_lowercase(), values.join(",")),
        };
        parts.push((key, text));
    }
    parts.sort();
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selector_object_formats_as_query() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "NotIn", "values": ["y", "x"]}, {"key": "c", "operator": "Exists"}]});
        assert_eq!(format_label_selector(&selector), "a notin (x,y),b=1,c");
        assert_eq!(format_label_selector(&json!({"app": "web"})), "app=web");
        assert_eq!(format_label_selector(&Value::Null), "");
    }

    #[test]
    fn requirements_match_labels() {
        let labels = json!({"app": "web", "n": "5"});
        let yes = ["", "app=web", "app==web", "app in (web, db)", "app,!old", "x!=y", "x notin (a)", "n>4,n<6"];
        let no = ["app=db", "app!=web", "old", "!app", "app notin (web)", "n>5"];
        let check = |text: &str| LabelSelector::parse(text).unwrap().matches(&labels);
        assert!(yes.into_iter().all(check));
        assert!(!no.into_iter().any(check));
        for bad in ["a in (b", ",", "a b", "n>x", "=b", "a=b c"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
