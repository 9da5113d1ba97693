//! The general describer: all fields, with their names as labels.

use api::Value;

use super::{DescribeContext, description::Description};

const SKIPPED: [&str; 5] =
    [".metadata.name", ".metadata.namespace", ".metadata.labels", ".metadata.annotations", ".metadata.managedFields"];

/// Describes an object of any kind.
pub fn describe_generic(context: &DescribeContext, out: &mut Description, object: &Value) {
    out.metadata(object, true);
    push_content(out, 0, object, "");
    context.events(out, object);
}

fn push_content(out: &mut Description, level: usize, value: &Value, path: &str) {
    let Value::Object(map) = value else { return };
    for (key, value) in map {
        let path = format!("{path}.{key}");
        if SKIPPED.contains(&path.as_str()) {
            continue;
        }
        let label = label_of(key);
        match value {
            Value::Object(_) => {
                out.line(level, &format!("{label}:"));
                push_content(out, level + 1, value, &path);
            }
            Value::Array(items) => {
                out.line(level, &format!("{label}:"));
                for item in items {
                    match item {
                        Value::Object(_) => push_content(out, level + 1, item, &path),
                        scalar => out.line(level + 1, &api::json::go_value(scalar)),
                    }
                }
            }
            scalar => out.line(level, &format!("{label}:\t{}", api::json::go_value(scalar))),
        }
    }
}

/// `apiVersion` becomes `API Version`.
fn label_of(field: &str) -> String {
    if field.contains(|c: char| !c.is_alphabetic()) {
        return field.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    let characters: Vec<char> = field.chars().collect();
    for (at, c) in characters.iter().enumerate() {
        let previous = at.checked_sub(1).map(|at| characters[at]);
        let starts = match previous {
            None => true,
            Some(previous) => {
                let next_lower = characters.get(at + 1).is_some_and(|next| next.is_lowercase());
                c.is_uppercase() && (!previous.is_uppercase() || next_lower) || c.is_numeric() != previous.is_numeric()
            }
        };
        match words.last_mut() {
            Some(word) if !starts => word.push(*c),
            _ => words.push(c.to_string()),
        }
    }
    let label = |word: String| match word.to_lowercase().as_str() {
        upper @ ("api" | "url" | "uid" | "osb" | "guid") => upper.to_uppercase(),
        _ => {
            let mut characters = word.chars();
            characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
        }
    };
    words.into_iter().map(label).collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::label_of;

    #[test]
    fn labels_are_split_at_capitals() {
        assert_eq!(label_of("apiVersion"), "API Version");
        assert_eq!(label_of("creationTimestamp"), "Creation Timestamp");
        assert_eq!(label_of("my-key"), "my-key");
    }
}
