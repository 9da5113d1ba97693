//! KYAML: YAML in flow style with quoted strings and trailing commas.

use api::Value;

/// Formats an object as a document.
pub fn format_kyaml(object: &Value) -> String {
    let mut out = "---\n".to_owned();
    write_value(&mut out, object, 0);
    out.push('\n');
    out
}

fn write_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if map.is_empty() => out.push_str("{}"),
        Value::Object(map) => {
            out.push_str("{\n");
            for (key, value) in map {
                indent(out, depth + 1);
                out.push_str(&format_key(key));
                out.push_str(": ");
                write_value(out, value, depth + 1);
                out.push_str(",\n");
            }
            indent(out, depth);
            out.push('}');
        }
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        Value::Array(items) => write_list(out, items, depth),
        Value::String(text) => write_text(out, text, depth),
        other => out.push_str(&other.to_string()),
    }
}

fn write_list(out: &mut String, items: &[Value], depth: usize) {
    // Lists of objects hug their brackets; scalars stand on lines of their own.
    let hugs = items.iter().all(|item| item.is_object() || item.is_array());
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if hugs {
            if at > 0 {
                out.push_str(", ");
            }
            write_value(out, item, depth);
        } else {
            out.push('\n');
            indent(out, depth + 1);
            write_value(out, item, depth + 1);
            out.push(',');
        }
    }
    if !hugs {
        out.push('\n');
        indent(out, depth);
    }
    out.push(']');
}

fn write_text(out: &mut String, text: &str, depth: usize) {
    let inner = text.trim_end_matches('\n');
    if !inner.contains('\n') {
        out.push_str(&quote(text));
        return;
    }
    out.push_str("\"\\\n");
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(end);
        indent(out, depth + 1);
        let quoted = quote(line);
        let body = quoted.trim_matches('"');
        let lead = if line.starts_with([' ', '\t']) { "\\" } else { " " };
        out.push_str(lead);
        out.push_str(body);
        out.push_str("\\\n");
        rest = after;
    }
    indent(out, depth + 1);
    out.push('"');
}

fn indent(out: &mut String, depth: usize) {
    (0..depth).for_each(|_| out.push_str("  "));
}

fn quote(text: &str) -> String {
    api::json::go_quote(text)
}

/// A key, quoted when YAML would read it as something else.
fn format_key(key: &str) -> String {
    let plain = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let lower = key.to_lowercase();
    let word = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"].contains(&lower.as_str());
    if plain && !word { key.to_owned() } else { quote(key) }
}
