//! The values that environment variables take from fields of their pod and from resources of their container, for
//! `set env --list --resolve`.

use api::{Value, json::go_quote, quantity::Quantity};
use formats::names;

use crate::{
    errors::{CommandError, CommandResult},
    object::ObjectFields,
};

/// The text of a field of an object that the downward API offers.
pub fn field_text(object: &Value, path: &str) -> CommandResult<String> {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|text| text.split_once("['")) {
        if !["metadata.annotations", "metadata.labels"].contains(&map) {
            crate::bail!("fieldPath {} does not support subscript", go_quote(path));
        }
        let checked = if map == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
        let faults = names::check_qualified_name(&checked);
        if !faults.is_empty() {
            crate::bail!("invalid key subscript in {path}: {}", faults.join(";"));
        }
        let value = object.map(map).and_then(|map| map.get(key)).and_then(Value::as_str);
        return Ok(value.unwrap_or_default().to_owned());
    }
    match path {
        "metadata.annotations" | "metadata.labels" => {
            let pairs = object.map(path).into_iter().flatten();
            let lines = pairs.map(|(key, value)| format!("{key}={}", go_quote(value.as_str().unwrap_or_default())));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        }
        "metadata.name" | "metadata.namespace" | "metadata.uid" => Ok(object.text(path).to_owned()),
        _ => Err(CommandError::new(format!("unsupported fieldPath: {path}"))),
    }
}

/// The amount of a resource of a container in units of the divisor, rounded up.
pub fn resource_text(container: &Value, reference: &Value) -> CommandResult<String> {
    let resource = reference.text("resource");
    let known = ["cpu", "memory", "ephemeral-storage"];
    let Some((list, name)) = resource.split_once('.').filter(|(list, name)| {
        ["limits", "requests"].contains(list) && (known.contains(name) || name.starts_with("hugepages-"))
    }) else {
        crate::bail!("Unsupported container resource : {resource}");
    };
    let amount = container.map(&format!("resources.{list}")).and_then(|amounts| amounts.get(name));
    let read = |text: &str| Quantity::parse(text).map_or(0.0, |quantity| quantity.as_approximate_float());
    let divisor = match read(reference.text("divisor")) {
        0.0 => 1.0,
        divisor => divisor,
    };
    let amount = amount.and_then(Value::as_str).map_or(0.0, read);
    Ok(format!("{:.0}", (amount / divisor).ceil()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_in_units_of_the_divisor_rounded_up() {
        let container = json!({"resources": {"limits": {"cpu": "1500m", "memory": "100Mi"}}});
        let check = |resource: &str, divisor: &str, wanted: &str| {
            let reference = json!({"resource": resource, "divisor": divisor});
            assert_eq!(resource_text(&container, &reference).unwrap(), wanted, "{resource} {divisor}");
        };
        check("limits.cpu", "0", "2");
        check("limits.cpu", "1m", "1500");
        check("limits.memory", "1Mi", "100");
        check("requests.memory", "0", "0");
        resource_text(&container, &json!({"resource": "limits.pods"})).unwrap_err();
    }

    #[test]
    fn fields_of_metadata_are_texts() {
        let pod = json!({"metadata": {"name": "a", "labels": {"k": "v\"", "b": "c"}}});
        assert_eq!(field_text(&pod, "metadata.labels").unwrap(), "b=\"c\"\nk=\"v\\\"\"");
        assert_eq!(field_text(&pod, "metadata.labels['b']").unwrap(), "c");
        field_text(&pod, "status.podIP").unwrap_err();
    }
}
