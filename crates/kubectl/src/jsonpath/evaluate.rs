//! Evaluation of templates.

use std::cmp::Ordering;

use api::{Value, json::go_type};

use super::{JsonPathError, parser::PathNode};

/// Results beyond this number end the evaluation.
const MAX_RESULTS: usize = 4 << 20;

fn error<T>(text: impl Into<String>) -> Result<T, JsonPathError> {
    Err(JsonPathError(text.into()))
}

/// Evaluates the nodes of a template.
pub fn find_results(nodes: &[PathNode], value: &Value, lenient: bool) -> Result<Vec<Vec<Value>>, JsonPathError> {
    let mut results = Vec::new();
    evaluate_block(nodes, Some(value), lenient, 0, &mut results)?;
    Ok(results)
}

/// Evaluates nodes up to the `end` of the current range; returns the number of nodes that were used.
fn evaluate_block(
    nodes: &[PathNode],
    value: Option<&Value>,
    lenient: bool,
    depth: usize,
    results: &mut Vec<Vec<Value>>,
) -> Result<usize, JsonPathError> {
    let mut at = 0;
    while let Some(node) = nodes.get(at) {
        let PathNode::List(action) = node else {
            if let (PathNode::Text(text), Some(_)) = (node, value) {
                results.push(vec![text.clone().into()]);
            }
            at += 1;
            continue;
        };
        match action.first() {
            Some(PathNode::Identifier(word)) if word == "end" => {
                if depth == 0 {
                    return error("not in range, nothing to end");
                }
                return Ok(at);
            }
            Some(PathNode::Identifier(word)) if word == "range" => {
                let input: Vec<Value> = value.cloned().into_iter().collect();
                let items = evaluate_list(&action[1..], input, lenient)?;
                let rest = &nodes[at + 1..];
                let mut used = evaluate_block(rest, None, lenient, depth + 1, &mut Vec::new())?;
                for item in &items {
                    used = evaluate_block(rest, Some(item), lenient, depth + 1, results)?;
                    if results.len() > MAX_RESULTS {
                        return error("too many results");
                    }
                }
                at += used + 2;
            }
            _ => {
                let input: Vec<Value> = value.cloned().into_iter().collect();
                let found = evaluate_list(action, input, lenient)?;
                if value.is_some() {
                    results.push(found);
                }
                at += 1;
            }
        }
    }
    Ok(at)
}

fn evaluate_list(nodes: &[PathNode], mut values: Vec<Value>, lenient: bool) -> Result<Vec<Value>, JsonPathError> {
    for node in nodes {
        values = evaluate_node(node, values, lenient)?;
        if values.len() > MAX_RESULTS {
            return error("too many results");
        }
    }
    Ok(values)
}

fn evaluate_node(node: &PathNode, input: Vec<Value>, lenient: bool) -> Result<Vec<Value>, JsonPathError> {
    Ok(match node {
        PathNode::List(nodes) => evaluate_list(nodes, input, lenient)?,
        PathNode::Text(text) => vec![text.clone().into()],
        PathNode::Field(name) => evaluate_field(name, &input, lenient)?,
        PathNode::Array(slice, derived) => {
            let mut out = Vec::new();
            for value in input.iter().filter(|value| !value.is_null()) {
                out.extend(evaluate_slice(*slice, *derived, value)?);
            }
            out
        }
        PathNode::Filter(left, operator, right) => evaluate_filter(left, operator, right, &input, lenient)?,
        PathNode::Int(number) => input.iter().map(|_| (*number).into()).collect(),
        PathNode::Float(number) => input.iter().map(|_| (*number).into()).collect(),
        PathNode::Bool(flag) => input.iter().map(|_| (*flag).into()).collect(),
        PathNode::Wildcard => input.iter().flat_map(children).collect(),
        PathNode::Recursive => {
            let mut out = Vec::new();
            input.iter().for_each(|value| descend(value, &mut out));
            out
        }
        PathNode::Union(lists) => {
            let mut out = Vec::new();
            for list in lists {
                out.extend(evaluate_list(list, input.clone(), lenient)?);
            }
            out
        }
        PathNode::Identifier(name) => return error(format!("unrecognized identifier {name}")),
    })
}

fn evaluate_field(name: &str, input: &[Value], lenient: bool) -> Result<Vec<Value>, JsonPathError> {
    if input.is_empty() {
        return Ok(Vec::new());
    }
    let found: Vec<Value> = if name.is_empty() {
        input.iter().filter_map(|value| value.get("").cloned()).collect()
    } else {
        input.iter().filter_map(|value| value.as_object()?.get(name).cloned()).collect()
    };
    if found.is_empty() && name.is_empty() && input.iter().any(|value| !value.is_object()) {
        return Ok(input.to_vec());
    }
    if found.is_empty() && !lenient {
        return error(format!("{name} is not found"));
    }
    Ok(found)
}

fn evaluate_slice(slice: [Option<i64>; 3], derived: bool, value: &Value) -> Result<Vec<Value>, JsonPathError> {
    let Value::Array(items) = value else {
        return error(format!("{} is not array or slice", go_type(value)));
    };
    let length = items.len() as i64;
    let mut start = slice[0].unwrap_or(0);
    if start < 0 {
        start += length;
    }
    let mut end = slice[1].unwrap_or(length);
    if end < 0 || end == 0 && derived {
        end += length;
    }
    if start == end {
        return Ok(Vec::new());
    }
    if start >= length || start < 0 {
        return error(format!("array index out of bounds: index {start}, length {length}"));
    }
    if end > length || end < 0 {
        return error(format!("array index out of bounds: index {}, length {length}", end - 1));
    }
    if start > end {
        return error(format!("starting index {start} is greater than ending index {end}"));
    }
    let step = slice[2].unwrap_or(1);
    if step <= 0 {
        return error("step must be > 0");
    }
    Ok(items[start as usize..end as usize].iter().step_by(step as usize).cloned().collect())
}

fn evaluate_filter(
    left: &[PathNode],
    operator: &str,
    right: &[PathNode],
    input: &[Value],
    lenient: bool,
) -> Result<Vec<Value>, JsonPathError> {
    let mut out = Vec::new();
    for value in input {
        let Value::Array(items) = value else {
            let shown = api::json::go_value(value);
            return error(format!("{shown} is not array or slice and cannot be filtered"));
        };
        for item in items {
            let lefts = evaluate_list(left, vec![item.clone()], lenient);
            if operator == "exists" {
                if lefts.is_ok_and(|lefts| !lefts.is_empty()) {
                    out.push(item.clone());
                }
                continue;
            }
            let (lefts, rights) = (lefts?, evaluate_list(right, vec![item.clone()], lenient)?);
            match (lefts.as_slice(), rights.as_slice()) {
                ([], _) | (_, []) => {}
                ([left], [right]) => {
                    if compare_values(left, operator, right)? {
                        out.push(item.clone());
                    }
                }
                _ => return error("can only compare one element at a time"),
            }
        }
    }
    Ok(out)
}

fn compare_values(left: &Value, operator: &str, right: &Value) -> Result<bool, JsonPathError> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) if operator == "==" || operator == "!=" => left.cmp(right),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
            return error("invalid type for comparison");
        }
        _ => return error("incompatible types for comparison"),
    };
    Ok(match operator {
        "<" => order == Ordering::Less,
        ">" => order == Ordering::Greater,
        "==" => order == Ordering::Equal,
        "!=" => order != Ordering::Equal,
        "<=" => order != Ordering::Greater,
        ">=" => order != Ordering::Less,
        other => return error(format!("unrecognized filter operator {other}")),
    })
}

fn children(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        Value::Object(map) => map.values().cloned().collect(),
        _ => Vec::new(),
    }
}

fn descend(value: &Value, out: &mut Vec<Value>) {
    let below = children(value);
    if !below.is_empty() {
        out.push(value.clone());
        below.iter().for_each(|child| descend(child, out));
    }
}

/// The text of a result: JSON for objects and lists.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => api::json::escape_html(value.to_string()),
        Value::Null => "null".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => api::json::go_number(number),
        Value::Bool(flag) => flag.to_string(),
    }
}
