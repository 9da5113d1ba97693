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
    if field.contains(|c: char| !c.is_alphabetic() && c != '-') {
        return field.to_owned();
    }
    let label = |word: String| match word.to_uppercase().as_str() {
        acronym @ ("API" | "URL" | "UID" | "GUID") => acronym.to_owned(),
        _ if word.to_lowercase() == word => {
            let mut characters = word.chars();
            characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
        }
        _ => word,
    };
    merge_acronyms(split_words(field)).into_iter().map(label).collect::<Vec<String>>().join(" ")
}

/// Splits where letters change from lower to upper case, and before the last capital of several.
fn split_words(field: &str) -> Vec<String> {
    let class = |c: char| match c {
        c if c.is_lowercase() => 1,
        c if c.is_uppercase() => 2,
        _ => 3,
    };
    let mut words: Vec<(i32, String)> = Vec::new();
    for c in field.chars() {
        match words.last_mut() {
            Some((kind, word)) if *kind == class(c) => word.push(c),
            _ => words.push((class(c), c.to_string())),
        }
    }
    for at in 0..words.len().saturating_sub(1) {
        if words[at].0 == 2
            && words[at + 1].0 == 1
            && let Some(capital) = words[at].1.pop()
        {
            words[at + 1].1.insert(0, capital);
        }
    }
    words.into_iter().map(|(_, word)| word).filter(|word| !word.is_empty()).collect()
}

/// Joins capitals with the word after them, so that `URLs` stays one word.
fn merge_acronyms(words: Vec<String>) -> Vec<String> {
    let mut merged = Vec::new();
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        let capitals = word.len() >= 2 && word.chars().all(|c| !c.is_alphabetic() || c.is_uppercase());
        match rest.next_if(|next| capitals && next.starts_with(char::is_uppercase)) {
            Some(next) => merged.push(word + &next),
            None => merged.push(word),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::label_of;

    #[test]
    fn labels_are_split_at_capitals() {
        assert_eq!(label_of("apiVersion"), "API Version");
        assert_eq!(label_of("creationTimestamp"), "Creation Timestamp");
        assert_eq!(label_of("nonResourceURLs"), "Non Resource URLs");
        assert_eq!(label_of("my-key"), "My - Key");
        assert_eq!(label_of("a.b"), "a.b");
    }
}
