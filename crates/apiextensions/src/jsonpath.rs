//! The subset of JSONPath that printer columns use: fields, indexes, slices, wildcards, equality filters, recursive
//! descent.

use api::Value;

/// A parsed JSONPath.
#[derive(Debug)]
pub struct JsonPath {
    steps: Vec<JsonPathStep>,
}

#[derive(Debug)]
enum JsonPathStep {
    Field(String),
    /// Wildcard: all fields or elements.
    All,
    /// Recursive descent: all values at any depth.
    Deep,
    Index(i64),
    Slice(Option<i64>, Option<i64>, i64),
    Union(Vec<JsonPathStep>),
    Filter(JsonPathFilter),
}

#[derive(Debug)]
struct JsonPathFilter {
    left: JsonPath,
    operator: Option<(String, FilterOperand)>,
}

#[derive(Debug)]
enum FilterOperand {
    Path(JsonPath),
    Value(Value),
}

/// Maximum depth of recursive descent and of nested paths.
const MAX_DEPTH: usize = 64;

impl JsonPath {
    /// Parses a path such as `.spec.ports[?(@.name=="http")].port`; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_nested(text.trim(), 0)
    }

    fn parse_nested(text: &str, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("..") {
                steps.push(JsonPathStep::Deep);
                rest = after;
                if !rest.starts_with('[') {
                    rest = parse_name(rest, &mut steps)?;
                }
            } else if let Some(after) = rest.strip_prefix('.') {
                rest = if after.starts_with('[') { after } else { parse_name(after, &mut steps)? };
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = find_closing_bracket(after)?;
                steps.push(parse_bracket(&after[..end], depth)?);
                rest = &after[end + 1..];
            } else {
                rest = parse_name(rest, &mut steps)?;
            }
        }
        Some(Self { steps })
    }

    /// Returns all values that the path matches.
    pub fn find_values<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        self.steps.iter().fold(vec![value], |found, step| {
            let mut next = Vec::new();
            found.into_iter().for_each(|value| step.apply_to(value, &mut next));
            next
        })
    }
}

fn parse_name<'t>(text: &'t str, steps: &mut Vec<JsonPathStep>) -> Option<&'t str> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = letters.next() {
        match c {
            '.' | '[' => {
                end = at;
                break;
            }
            '\\' => name.push(letters.next()?.1),
            c => name.push(c),
        }
    }
    match name.as_str() {
        "" => return text.is_empty().then_some(""),
        "*" => steps.push(JsonPathStep::All),
        _ => steps.push(JsonPathStep::Field(name)),
    }
    Some(&text[end..])
}

/// Returns the position of the bracket that closes an already opened one.
fn find_closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn parse_bracket(text: &str, depth: usize) -> Option<JsonPathStep> {
    let text = text.trim();
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return Some(JsonPathStep::Filter(parse_filter(filter.trim(), depth)?));
    }
    if text == "*" {
        return Some(JsonPathStep::All);
    }
    if let Some(name) = parse_quoted(text) {
        return Some(JsonPathStep::Field(name));
    }
    if text.contains(',') {
        return text
            .split(',')
            .map(|part| parse_bracket(part, depth + 1))
            .collect::<Option<Vec<_>>>()
            .map(JsonPathStep::Union);
    }
    if text.contains(':') {
        let mut parts = text.split(':').map(|part| (!part.is_empty()).then(|| part.trim().parse::<i64>()).transpose());
        let mut next = || parts.next().unwrap_or(Ok(None)).ok();
        return Some(JsonPathStep::Slice(next()?, next()?, next()?.unwrap_or(1)));
    }
    text.parse().ok().map(JsonPathStep::Index)
}

fn parse_quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text[1..].strip_suffix(quote)?;
    (!inner.contains(quote)).then(|| inner.to_owned())
}

fn parse_filter(text: &str, depth: usize) -> Option<JsonPathFilter> {
    const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) => {
                let Some(operator) = OPERATORS.iter().find(|operator| text[at..].starts_with(**operator)) else {
                    continue;
                };
                let left = JsonPath::parse_nested(text[..at].trim(), depth + 1)?;
                let right = text[at + operator.len()..].trim();
                let right = match right.strip_prefix(['@', '$']) {
                    Some(_) => FilterOperand::Path(JsonPath::parse_nested(right, depth + 1)?),
                    None => FilterOperand::Value(match parse_quoted(right) {
                        Some(text) => text.into(),
                        None => serde_json::from_str(right).ok()?,
                    }),
                };
                return Some(JsonPathFilter { left, operator: Some(((*operator).to_owned(), right)) });
            }
        }
    }
    Some(JsonPathFilter { left: JsonPath::parse_nested(text, depth + 1)?, operator: None })
}

impl JsonPathStep {
    fn apply_to<'v>(&self, value: &'v Value, out: &mut Vec<&'v Value>) {
        match self {
            JsonPathStep::Field(name) => out.extend(value.get(name)),
            JsonPathStep::All => out.extend(child_values(value)),
            JsonPathStep::Deep => collect_descendants(value, 0, out),
            JsonPathStep::Index(at) => {
                out.extend(value.as_array().and_then(|items| items.get(resolve_index(*at, items.len())?)))
            }
            JsonPathStep::Slice(from, to, step) => {
                let Some(items) = value.as_array() else { return };
                let length = items.len() as i64;
                let bound = |at: i64| if at < 0 { at + length } else { at }.clamp(0, length) as usize;
                let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or(length)));
                if from < to {
                    out.extend(items[from..to].iter().step_by(usize::try_from(*step).unwrap_or(1).max(1)));
                }
            }
            JsonPathStep::Union(steps) => steps.iter().for_each(|step| step.apply_to(value, out)),
            JsonPathStep::Filter(filter) => out.extend(child_values(value).filter(|item| filter.matches_item(item))),
        }
    }
}

fn resolve_index(at: i64, length: usize) -> Option<usize> {
    usize::try_from(if at < 0 { at + length as i64 } else { at }).ok()
}

fn child_values(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    items.chain(value.as_object().into_iter().flat_map(|map| map.values()))
}

fn collect_descendants<'v>(value: &'v Value, depth: usize, out: &mut Vec<&'v Value>) {
    if depth > MAX_DEPTH {
        return;
    }
    out.push(value);
    child_values(value).for_each(|child| collect_descendants(child, depth + 1, out));
}

impl JsonPathFilter {
    fn matches_item(&self, item: &Value) -> bool {
        let found = self.left.find_values(item);
        let Some((operator, right)) = &self.operator else { return !found.is_empty() };
        let right = match right {
            FilterOperand::Path(path) => match path.find_values(item).as_slice() {
                [one] => (*one).clone(),
                _ => return false,
            },
            FilterOperand::Value(value) => value.clone(),
        };
        let [left] = found.as_slice() else { return false };
        let order = match (left, &right) {
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (a, b) => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => (*a == b).then_some(std::cmp::Ordering::Equal),
            },
        };
        match operator.as_str() {
            "==" => order.is_some_and(std::cmp::Ordering::is_eq),
            "!=" => order.is_none_or(std::cmp::Ordering::is_ne),
            "<" => order.is_some_and(std::cmp::Ordering::is_lt),
            ">" => order.is_some_and(std::cmp::Ordering::is_gt),
            "<=" => order.is_some_and(std::cmp::Ordering::is_le),
            ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assert_matches(path: &str, want: &[Value]) {
        let object = json!({"spec": {"tags": ["a", "b"], "size": 3},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]},
            "metadata": {"labels": {"example.com/x": "y"}}});
        let found = JsonPath::parse(path).expect(path);
        assert_eq!(found.find_values(&object).into_iter().cloned().collect::<Vec<_>>(), want, "{path}");
    }

    #[test]
    fn paths_match_values() {
        assert_matches(".spec.size", &[json!(3)]);
        assert_matches(".spec.tags", &[json!(["a", "b"])]);
        assert_matches(".spec.tags[*]", &[json!("a"), json!("b")]);
        assert_matches(".spec.tags[-1]", &[json!("b")]);
        assert_matches(".spec.tags[0:1]", &[json!("a")]);
        assert_matches(".status.conditions[?(@.type==\"Ready\")].status", &[json!("True")]);
        assert_matches(".status.conditions[?(@.type=='Ready')].status", &[json!("True")]);
        assert_matches(".metadata.labels.example\\.com/x", &[json!("y")]);
        assert_matches(".metadata.labels['example.com/x']", &[json!("y")]);
        assert_matches("..type", &[json!("Ready"), json!("Old")]);
        assert_matches(".nope.nope", &[]);
        assert!(JsonPath::parse(".spec[").is_none());
    }
}
