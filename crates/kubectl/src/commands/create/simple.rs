//! Generators of namespaces, quotas, service accounts, disruption budgets and priority classes.

use api::{Value, quantity::Quantity};
use serde_json::json;

use super::Generator;
use crate::errors::{CommandError, CommandResult};

/// `create namespace`
pub fn namespace(generator: &Generator) -> CommandResult {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": generator.name}});
    generator.finish(object, "namespaces", false, "")
}

/// `create serviceaccount`
pub fn service_account(generator: &Generator) -> CommandResult {
    let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": generator.metadata()});
    generator.finish(object, "serviceaccounts", true, "failed to create serviceaccount: ")
}

/// `create quota`
pub fn quota(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let mut spec = json!({});
    let hard = flags.string("hard");
    if !hard.is_empty() {
        spec["hard"] = parse_resource_list(&hard)?;
    }
    let scopes = flags.string("scopes");
    if !scopes.is_empty() {
        let scopes: Vec<&str> = scopes.split(',').collect();
        if scopes.contains(&"") {
            crate::bail!("invalid resource quota scope \"\"");
        }
        spec["scopes"] = scopes.into();
    }
    let object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": generator.metadata(), "spec": spec});
    generator.finish(object, "resourcequotas", true, "failed to create quota: ")
}

/// Parses `cpu=1,memory=2Gi`.
pub fn parse_resource_list(text: &str) -> CommandResult<Value> {
    let mut list = json!({});
    for statement in text.split(',') {
        let parts: Vec<&str> = statement.split('=').collect();
        let [name, amount] = parts.as_slice() else {
            crate::bail!("Invalid argument syntax {statement}, expected <resource>=<value>");
        };
        let quantity = Quantity::canonicalize(amount).map_err(|error| CommandError::new(error.to_string()))?;
        list[*name] = quantity.into();
    }
    Ok(list)
}

/// `create poddisruptionbudget`
pub fn disruption_budget(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let (selector, minimum, maximum) =
        (flags.string("selector"), flags.string("min-available"), flags.string("max-unavailable"));
    if selector.is_empty() {
        crate::bail!("a selector must be specified");
    }
    if minimum.is_empty() && maximum.is_empty() {
        crate::bail!("one of min-available or max-unavailable must be specified");
    }
    if !minimum.is_empty() && !maximum.is_empty() {
        crate::bail!("min-available and max-unavailable cannot be both specified");
    }
    let (field, text) = if minimum.is_empty() { ("maxUnavailable", &maximum) } else { ("minAvailable", &minimum) };
    let digits = text.strip_suffix('%').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let name = if minimum.is_empty() { "max-unavailable" } else { "min-available" };
        crate::bail!("invalid format specified for {name}");
    }
    let value = text.parse::<i64>().map_or_else(|_| Value::from(text.as_str()), Value::from);
    let spec = json!({field: value, "selector": parse_label_selector(&selector)?});
    let object = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": generator.metadata(), "spec": spec});
    generator.finish(object, "poddisruptionbudgets", true, "failed to create poddisruptionbudgets: ")
}

/// Parses a selector into `matchLabels` and `matchExpressions`.
pub fn parse_label_selector(text: &str) -> CommandResult<Value> {
    let parsed = api::selector::LabelSelector::parse(text)
        .map_err(|error| CommandError::new(format!("couldn't parse the selector string \"{text}\": {error}")))?;
    let (mut labels, mut expressions) = (json!({}), Vec::new());
    for (key, operator, values) in parsed.requirements() {
        match (operator, values) {
            (_, [value]) if is_equality(text, key) => labels[key] = value.as_str().into(),
            _ => {
                let name = match operator {
                    "in" | "In" | "=" | "==" => "In",
                    "notin" | "NotIn" | "!=" => "NotIn",
                    "exists" | "Exists" => "Exists",
                    "!" | "DoesNotExist" => "DoesNotExist",
                    other => crate::bail!("{} is not a valid label selector operator", api::json::go_quote(other)),
                };
                let mut expression = json!({"key": key, "operator": name});
                if !values.is_empty() {
                    expression["values"] = values.into();
                }
                expressions.push(expression);
            }
        }
    }
    let mut selector = json!({});
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        selector["matchLabels"] = labels;
    }
    if !expressions.is_empty() {
        selector["matchExpressions"] = expressions.into();
    }
    Ok(selector)
}

/// Whether a selector has `key=value`, and not `key in (value)`.
fn is_equality(text: &str, key: &str) -> bool {
    let after_key = |piece: &str| piece.trim().strip_prefix(key).map(|rest| rest.trim_start().starts_with('='));
    text.split(',').any(|piece| after_key(piece) == Some(true))
}

/// `create priorityclass`
pub fn priority_class(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let mut object = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": generator.name},
        "value": flags.int("value"), "preemptionPolicy": flags.string("preemption-policy")});
    if flags.bool("global-default") {
        object["globalDefault"] = true.into();
    }
    let description = flags.string("description");
    if !description.is_empty() {
        object["description"] = description.into();
    }
    generator.finish(object, "priorityclasses", false, "failed to create priorityclass: ")
}
