//! Replacements: values of one object's field in fields of others.

use api::{Map, Value, json::go_quote};

use super::{kustomization::Kustomization, patches::is_selected, resources::BuildResource};
use crate::{
    errors::{CommandError, CommandResult},
    manifest::decode_yaml12_documents,
    object::{ObjectFields, group_version_kind},
};

/// Applies the replacements of a kustomization: inline, or lists of them in files.
pub fn apply_replacements(kustomization: &Kustomization, resources: &mut [BuildResource]) -> CommandResult {
    for entry in kustomization.list("replacements") {
        match entry.text("path") {
            "" => apply(entry, resources)?,
            path => {
                for document in decode_yaml12_documents(&kustomization.read(path)?, path)? {
                    match &document {
                        Value::Array(entries) => entries.iter().try_for_each(|entry| apply(entry, resources))?,
                        entry => apply(entry, resources)?,
                    }
                }
            }
        }
    }
    Ok(())
}

fn apply(entry: &Value, resources: &mut [BuildResource]) -> CommandResult {
    let source = entry.get("source").filter(|source| source.is_object());
    let literal = entry.get("sourceValue").filter(|value| !value.is_null());
    let targets = entry.list("targets");
    if source.is_none() && literal.is_none() || targets.is_empty() {
        crate::bail!("replacements must specify a source and at least one target");
    }
    let value = match (source, literal) {
        (Some(_), Some(_)) => crate::bail!("value and resource selectors are mutually exclusive"),
        (None, Some(literal)) => literal.clone(),
        (Some(source), _) => source_value(source, resources)?,
        (None, None) => Value::Null,
    };
    for target in targets {
        let Some(select) = target.get("select").filter(|select| select.is_object()) else {
            crate::bail!("target must specify resources to select");
        };
        for resource in resources.iter_mut() {
            let mut rejected = false;
            for reject in target.list("reject") {
                rejected |= is_selected(resource, reject)?;
            }
            if !rejected && is_selected(resource, select)? {
                copy_value(target, resource, &value)?;
            }
        }
    }
    Ok(())
}

fn selector_text(selector: &Value) -> String {
    let part = |field: &str, none: &str| match selector.text(field) {
        "" => none.to_owned(),
        text => text.to_owned(),
    };
    format!(
        "{}.{}.{}/{}.{}",
        part("kind", "[noKind]"),
        part("version", "[noVer]"),
        part("group", "[noGrp]"),
        part("name", "[noName]"),
        part("namespace", "[noNs]")
    )
}

fn source_value(source: &Value, resources: &[BuildResource]) -> CommandResult<Value> {
    let fits = |resource: &&BuildResource| {
        let (group, version, _) = group_version_kind(&resource.object);
        let same = |field: &str, text: &str| source.text(field).is_empty() || source.text(field) == text;
        same("group", &group)
            && same("version", &version)
            && resource
                .identities()
                .any(|(kind, name, namespace)| same("kind", kind) && same("name", name) && same("namespace", namespace))
    };
    let matches: Vec<&BuildResource> = resources.iter().filter(fits).collect();
    let [one] = matches.as_slice() else {
        if matches.is_empty() {
            crate::bail!("nothing selected by {}", source_text(source));
        }
        crate::bail!("multiple matches for selector {}", source_text(source));
    };
    let path = match source.text("fieldPath") {
        "" => "metadata.name",
        path => path,
    };
    let mut object = one.object.clone();
    let mut found = None;
    visit_path(&mut object, &split_field_path(path), None, &mut |value| {
        found.get_or_insert_with(|| value.clone());
    });
    let Some(value) = found.filter(|value| !value.is_null()) else {
        crate::bail!("fieldPath `{path}` is missing for replacement source {}", selector_text(source));
    };
    let options = &source["options"];
    let delimiter = options.text("delimiter");
    if delimiter.is_empty() {
        return Ok(value);
    }
    let Some(text) = scalar_text(&value) else {
        crate::bail!("delimiter option can only be used with scalar nodes");
    };
    let index = options.integer("index").unwrap_or(0);
    let part = usize::try_from(index).ok().and_then(|index| text.split(delimiter).nth(index));
    match part {
        Some(part) => Ok(part.into()),
        None => crate::bail!("options.index {index} is out of bounds for value {text}"),
    }
}

fn source_text(source: &Value) -> String {
    match source.text("fieldPath") {
        "" => selector_text(source),
        path => format!("{}:{path}", selector_text(source)),
    }
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null => Some(String::new()),
        _ => None,
    }
}

fn copy_value(target: &Value, resource: &mut BuildResource, value: &Value) -> CommandResult {
    let options = &target["options"];
    let create = options.flag("create");
    let mut paths: Vec<String> =
        target.list("fieldPaths").iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
    if paths.is_empty() {
        paths.push("metadata.name".to_owned());
    }
    resource.remember();
    for path in paths {
        let mut found = 0;
        let mut failure = None;
        let empty = if value.is_object() { Value::Object(Map::new()) } else { Value::Null };
        visit_path(&mut resource.object, &split_field_path(&path), create.then_some(&empty), &mut |field| {
            found += 1;
            match changed_field(field, value, options) {
                Ok(changed) => *field = changed,
                Err(error) => failure = Some(error),
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        if found == 0 {
            let how = if create { "find or create" } else { "find" };
            crate::bail!("unable to {how} field {} in replacement target", go_quote(&path));
        }
    }
    Ok(())
}

/// The field with the value in it; the type of a scalar stays.
fn changed_field(field: &Value, value: &Value, options: &Value) -> CommandResult<Value> {
    let delimiter = options.text("delimiter");
    let mut value = value.clone();
    if !delimiter.is_empty() {
        let (Some(current), Some(new)) = (scalar_text(field), scalar_text(&value)) else {
            return Err(CommandError::new("delimiter option can only be used with scalar nodes"));
        };
        let mut parts: Vec<String> = current.split(delimiter).map(str::to_owned).collect();
        match usize::try_from(options.integer("index").unwrap_or(0)) {
            Err(_) => parts.insert(0, new),
            Ok(index) if index >= parts.len() => parts.push(new),
            Ok(index) => parts[index] = new,
        }
        value = parts.join(delimiter).into();
    }
    Ok(match (field, scalar_text(&value)) {
        (Value::String(_), Some(text)) => text.into(),
        // A field that was made for the value has no type yet.
        (Value::Null, Some(text)) => match api::yaml::parse_yaml12(text.as_bytes()) {
            Ok(document) if document.value.is_number() || document.value.is_boolean() => document.value,
            _ => text.into(),
        },
        (Value::Number(_) | Value::Bool(_), Some(text)) => serde_json::from_str(&text).unwrap_or_else(|_| text.into()),
        _ => value,
    })
}

/// Splits `spec.containers.[name=a].image`; dots in brackets and escaped ones belong to a step.
fn split_field_path(path: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut depth = 0;
    let mut characters = path.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(step) = steps.last_mut() else { break };
        match character {
            '\\' if characters.peek() == Some(&'.') => {
                characters.next();
                step.push('.');
            }
            '.' if depth == 0 => steps.push(String::new()),
            other => {
                depth += i32::from(other == '[') - i32::from(other == ']');
                step.push(other);
            }
        }
    }
    let unwrap = |step: String| match step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
        Some(inner) if !inner.contains('=') => inner.to_owned(),
        _ => step,
    };
    steps.into_iter().map(unwrap).collect()
}

fn visit_path(value: &mut Value, steps: &[String], create: Option<&Value>, visit: &mut dyn FnMut(&mut Value)) {
    let Some((step, rest)) = steps.split_first() else { return visit(value) };
    if step == "*" {
        let items = value.as_array_mut().into_iter().flatten();
        return items.for_each(|item| visit_path(item, rest, create, visit));
    }
    if let Some(condition) = step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
        let (key, wanted) = condition.split_once('=').unwrap_or((condition, ""));
        let Value::Array(items) = value else { return };
        let fits = |item: &Value| match key {
            "" => scalar_text(item).as_deref() == Some(wanted),
            key => item.get(key).and_then(scalar_text).as_deref() == Some(wanted),
        };
        let mut found = false;
        for item in items.iter_mut().filter(|item| fits(item)) {
            found = true;
            visit_path(item, rest, create, visit);
        }
        if !found && create.is_some() && !key.is_empty() {
            let mut item = serde_json::json!({key: wanted});
            visit_path(&mut item, rest, create, visit);
            items.push(item);
        }
        return;
    }
    if let Value::Array(items) = value {
        match step.parse::<usize>() {
            Ok(index) => {
                if let Some(item) = items.get_mut(index) {
                    visit_path(item, rest, create, visit);
                }
            }
            Err(_) => items.iter_mut().for_each(|item| visit_path(item, steps, create, visit)),
        }
        return;
    }
    if value.is_null() && create.is_some() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { return };
    match (map.get_mut(step), create) {
        (Some(inner), _) => visit_path(inner, rest, create, visit),
        (None, Some(empty)) => {
            let mut made = if rest.is_empty() { empty.clone() } else { Value::Object(Map::new()) };
            visit_path(&mut made, rest, create, visit);
            map.insert(step.clone(), made);
        }
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_paths_are_split_at_dots_outside_brackets() {
        let split = |path: &str| split_field_path(path).join("|");
        assert_eq!(split("spec.containers.[name=a.b].image"), "spec|containers|[name=a.b]|image");
        assert_eq!(split("metadata.annotations.[a.b/c]"), "metadata|annotations|a.b/c");
        assert_eq!(split("a.b\\.c"), "a|b.c");
    }
}
