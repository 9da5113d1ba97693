//! Label selectors: `app=web,tier!=db,env in (a,b),!old`, and their object form.

use super::Error;
use crate::{Value, meta, validate::names};

/// Requirements that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Reads the form of queries.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let requirements = split(text)?.into_iter().map(requirement).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// Reads the object form: `matchLabels` and `matchExpressions`.
    pub fn from_object(selector: &Value) -> Result<Self, Error> {
        let mut requirements = Vec::new();
        for (key, value) in meta::at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key: key.clone(), operator: Operator::In(vec![value]) });
        }
        for expression in meta::list(selector, &["matchExpressions"]) {
            let values = || {
                let values = meta::list(expression, &["values"]).iter();
                values.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
            };
            let operator = match meta::text(expression, &["operator"]) {
                "In" => Operator::In(values()),
                "NotIn" => Operator::NotIn(values()),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(Error(format!("{other:?} is not a valid label selector operator"))),
            };
            requirements.push(Requirement { key: meta::text(expression, &["key"]).to_owned(), operator });
        }
        Ok(Self { requirements })
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether `labels` (a JSON object, or null for none) has what is required.
    pub fn matches(&self, labels: &Value) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key).and_then(Value::as_str);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
                Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::GreaterThan(bound) => number().is_some_and(|n| n > *bound),
                Operator::LessThan(bound) => number().is_some_and(|n| n < *bound),
            }
        })
    }
}

/// The object form, or a plain map of labels, in the form of queries: sorted by key; "" for everything.
pub fn text(selector: &Value) -> String {
    let labels = meta::at(selector, &["matchLabels"]).unwrap_or(selector).as_object().into_iter().flatten();
    let mut parts: Vec<(&str, String)> =
        labels.filter_map(|(key, value)| Some((key.as_str(), format!("{key}={}", value.as_str()?)))).collect();
    for expression in meta::list(selector, &["matchExpressions"]) {
        let key = meta::text(expression, &["key"]);
        let mut values: Vec<&str> = meta::list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match meta::text(expression, &["operator"]) {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({})", operator.to_lowercase(), values.join(",")),
        };
        parts.push((key, text));
    }
    parts.sort();
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// Splits at the commas that are not in parentheses.
fn split(text: &str) -> Result<Vec<&str>, Error> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth != 0 {
        return Err(Error(format!("unable to parse requirement: unbalanced parentheses in {text:?}")));
    }
    parts.push(text[start..].trim());
    if parts == [""] {
        return Ok(Vec::new());
    }
    if parts.contains(&"") {
        return Err(Error("unable to parse requirement: found ',', expected: identifier after ','".to_owned()));
    }
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement, Error> {
    if let Some(key) = text.strip_prefix('!') {
        return checked(key, Operator::DoesNotExist);
    }
    for (symbol, build) in [
        ("!=", (|v| Operator::NotIn(vec![v])) as fn(String) -> Operator),
        ("==", |v| Operator::In(vec![v])),
        ("=", |v| Operator::In(vec![v])),
    ] {
        if let Some((key, value)) = text.split_once(symbol) {
            let value = value.trim();
            check_value(value)?;
            return checked(key, build(value.to_owned()));
        }
    }
    for (symbol, build) in [('>', Operator::GreaterThan as fn(i64) -> Operator), ('<', Operator::LessThan)] {
        if let Some((key, value)) = text.split_once(symbol) {
            let number = value.trim().parse().map_err(|_| {
                Error(format!(
                    "values[0][{}]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
                    key.trim(),
                    value.trim()
                ))
            })?;
            return checked(key, build(number));
        }
    }
    match text.split_once(|c: char| c.is_whitespace() || c == '(') {
        None => checked(text, Operator::Exists),
        Some((key, _)) => {
            let rest = text[key.len()..].trim();
            let (operator, values) = rest.split_once('(').unwrap_or((rest, ""));
            let values = values.trim_end().strip_suffix(')');
            let values = values.map(|v| v.split(',').map(|v| v.trim().to_owned()).collect::<Vec<_>>());
            match (operator.trim(), values) {
                ("in", Some(values)) => checked(key, Operator::In(values)),
                ("notin", Some(values)) => checked(key, Operator::NotIn(values)),
                _ => Err(Error(format!(
                    "unable to parse requirement: found {rest:?}, expected: in, notin, =, ==, !=, gt, lt"
                ))),
            }
        }
    }
}

fn checked(key: &str, operator: Operator) -> Result<Requirement, Error> {
    let key = key.trim();
    match names::qualified(key).first() {
        Some(fault) => Err(Error(format!("unable to parse requirement: <nil>: Invalid value: {key:?}: {fault}"))),
        None => Ok(Requirement { key: key.to_owned(), operator }),
    }
}

fn check_value(value: &str) -> Result<(), Error> {
    match names::label_value(value).first() {
        Some(fault) => Err(Error(format!("unable to parse requirement: <nil>: Invalid value: {value:?}: {fault}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_written_as_queries() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "NotIn", "values": ["y", "x"]}, {"key": "c", "operator": "Exists"}]});
        assert_eq!(text(&selector), "a notin (x,y),b=1,c");
        assert_eq!(text(&json!({"app": "web"})), "app=web");
        assert_eq!(text(&Value::Null), "");
    }

    #[test]
    fn requirements_select_labels() {
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
