//! `--sort-by`: the order of objects by a field.

use std::cmp::Ordering;

use api::Value;

use crate::{
    errors::{CommandError, CommandResult},
    jsonpath::{JsonPath, relaxed_expression},
};

/// Sorts items by a field of the object that `object_of` finds in them.
pub fn sort_values<T>(items: &mut [T], field: &str, object_of: impl Fn(&T) -> &Value) -> CommandResult {
    let expression = relaxed_expression(field).unwrap_or_else(|_| field.to_owned());
    let wrong = |error: crate::jsonpath::JsonPathError| CommandError::new(error.to_string());
    let path = JsonPath::parse(&expression).map_err(wrong)?;
    let mut keys: Vec<Option<Value>> = Vec::new();
    for item in items.iter() {
        let results = path.find_results(object_of(item)).map_err(wrong)?;
        keys.push(results.into_iter().flatten().next());
    }
    if !items.is_empty() && keys.iter().all(Option::is_none) {
        return Err(CommandError::new(format!(
            "couldn't find any field with path {} in the list of objects",
            api::json::go_quote(&expression)
        )));
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| compare(keys[*a].as_ref(), keys[*b].as_ref()));
    // Moves every item to its place; each position is visited once.
    let mut target = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, from)| target[*from] = to);
    for at in 0..target.len() {
        while target[at] != at {
            let to = target[at];
            items.swap(at, to);
            target.swap(at, to);
        }
    }
    Ok(())
}

fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(left), Some(right)) => compare_values(left, right),
    }
}

fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(left), Value::String(right)) => compare_texts(left, right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => Ordering::Equal,
    }
}

/// Quantities are compared by amount, other texts by their runs of digits.
fn compare_texts(left: &str, right: &str) -> Ordering {
    if let (Some(left), Some(right)) = (api::quantity::Quantity::parse(left), api::quantity::Quantity::parse(right)) {
        let (left, right) = (left.as_approximate_float(), right.as_approximate_float());
        return left.partial_cmp(&right).unwrap_or(Ordering::Equal);
    }
    natural_chunks(left).cmp(&natural_chunks(right))
}

/// The runs of digits, as numbers, and of other characters.
fn natural_chunks(text: &str) -> Vec<(u8, u64, String)> {
    let mut chunks: Vec<(u8, u64, String)> = Vec::new();
    for c in text.chars() {
        let digit = c.is_ascii_digit();
        match chunks.last_mut() {
            Some((kind, number, run)) if (*kind == 0) == digit => {
                run.push(c);
                if digit {
                    *number = run.parse().unwrap_or(u64::MAX);
                }
            }
            _ => chunks.push((u8::from(!digit), c.to_digit(10).map_or(0, u64::from), c.to_string())),
        }
    }
    chunks
}
