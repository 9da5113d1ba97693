//! Access to upstream's recorded documents and exchanges, which are outside of the repository; tests skip with a
//! message where they are absent.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{collections::BTreeSet, fs, path::PathBuf};

use ferry_api::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared")
}

/// The sorted file names of a folder; `None`, with a message, if it is absent.
pub fn fixtures(folder: &str) -> Option<Vec<String>> {
    let Ok(entries) = fs::read_dir(root().join(folder)) else {
        skip::skip_without_data(format_args!("{folder} is not here"));
        return None;
    };
    let names: BTreeSet<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".json"))
        .collect();
    Some(names.into_iter().collect())
}

/// Reads a JSON file.
pub fn fixture(path: &str) -> Value {
    let text = fs::read(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The recorded exchanges with an upstream server; `None`, with a message, if absent.
pub fn exchanges() -> Option<Vec<Value>> {
    let lines = lines("golden/exchanges.jsonl")?;
    Some(lines.iter().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect())
}

/// The lines of a file; `None`, with a message, if it is absent.
pub fn lines(path: &str) -> Option<Vec<String>> {
    let Ok(text) = fs::read_to_string(root().join(path)) else {
        skip::skip_without_data(format_args!("{path} is not here"));
        return None;
    };
    Some(text.lines().map(str::to_owned).collect())
}

/// Appends a line for every difference between two documents.
pub fn differences(path: &str, want: &Value, got: &Value, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for key in want.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
                let at = format!("{path}.{key}");
                match (want.get(key), got.get(key)) {
                    (Some(want), Some(got)) => differences(&at, want, got, out),
                    (Some(want), None) => out.push(format!("{at}: missing {}", short(want))),
                    (None, Some(got)) => out.push(format!("{at}: extra {}", short(got))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (at, (want, got)) in want.iter().zip(got).enumerate() {
                differences(&format!("{path}[{at}]"), want, got, out);
            }
        }
        _ if want == got => {}
        _ => out.push(format!("{path}: want {}, got {}", short(want), short(got))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(160).collect()
}

/// Prints the number of differences and fails if there are any.
pub fn report(what: &str, compared: usize, found: &[String]) {
    println!("{what}: {compared} documents compared, {} differences", found.len());
    let show = std::env::var("SHOW").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    found.iter().take(show).for_each(|line| println!("  {line}"));
    assert!(found.is_empty(), "{what}: {} differences", found.len());
}
