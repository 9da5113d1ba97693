//! `kubectl wait`

use api::{Value, json::go_quote};

use super::wait_condition::{WaitDeadline, list_single, timed_out, wait_for_deletion, watch_single};
use crate::{
    errors::{CommandError, CommandResult},
    jsonpath::{JsonPath, relaxed_expression, value_text},
    object::ObjectFields,
    printers::ObjectPrinter,
    resource::{ResourceBuilder, ResourceInfo},
    session::Session,
};

/// A condition to wait for.
enum WaitFor {
    Delete,
    Create,
    Condition(String, String),
    Path(Box<JsonPath>, Option<String>),
}

/// Waits for conditions of objects, for one after the other; for the creation first.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let mut printer = ObjectPrinter::from_flags(flags, "condition met")?;
    printer.set_operation("condition met");
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = session.arguments().to_vec();
    builder.flatten = true;
    builder.latest = true;
    builder.continue_on_error = true;
    // `--all` and a selector go together here.
    builder.allow_empty_selector = builder.select_all;
    builder.select_all = false;
    let conditions =
        flags.strings("for").iter().map(|text| parse_condition(text)).collect::<CommandResult<Vec<_>>>()?;
    if conditions.is_empty() {
        crate::bail!("unrecognized condition: []");
    }
    if flags.bool("local") && !builder.has_files() {
        crate::bail!("{}", super::set::LOCAL_RESOURCES.trim_start_matches("error: "));
    }
    let timeout = flags.duration("timeout");
    let deadline = WaitDeadline::after(if timeout < 0 { -1 } else { timeout });
    let for_delete = conditions.iter().any(|condition| matches!(condition, WaitFor::Delete));
    if conditions.iter().any(|condition| matches!(condition, WaitFor::Create)) {
        wait_for_creation(session, &builder, deadline)?;
    } else {
        builder.skip_fetch = for_delete && conditions.len() == 1;
    }
    let mut result = builder.build(session)?;
    if for_delete {
        result.errors.retain(|error| !error.is_not_found());
    }
    CommandError::join(result.errors)?;
    let (mut errors, visited) = (Vec::new(), result.infos.len());
    for mut info in result.infos {
        for condition in &conditions {
            match wait_for_one(session, &mut info, condition, deadline, timeout == 0) {
                Ok(true) => printer.print(&info.object)?,
                Ok(false) => {}
                Err(error) => {
                    errors.push(error);
                    break;
                }
            }
        }
    }
    CommandError::join(errors)?;
    if visited == 0 && !for_delete {
        crate::bail!("no matching resources found");
    }
    Ok(())
}

fn parse_condition(text: &str) -> CommandResult<WaitFor> {
    let lower = text.to_lowercase();
    if lower == "delete" {
        return Ok(WaitFor::Delete);
    }
    if lower == "create" {
        return Ok(WaitFor::Create);
    }
    if let Some(rest) = text.strip_prefix("condition=") {
        let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
        return Ok(WaitFor::Condition(name.to_owned(), value.to_owned()));
    }
    if let Some(rest) = text.strip_prefix("jsonpath=") {
        return parse_path(rest);
    }
    Err(CommandError::new(format!("unrecognized condition: {}", go_quote(text))))
}

/// Splits at single equals signs; two in a row belong to the expression.
fn split_path_input(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '=' && characters.peek() != Some(&'=') {
            parts.push(String::new());
            continue;
        }
        if let Some(part) = parts.last_mut() {
            part.push(character);
            if character == '=' {
                part.extend(characters.next());
            }
        }
    }
    parts
}

fn parse_path(text: &str) -> CommandResult<WaitFor> {
    let parts = split_path_input(text);
    let (expression, value) = match parts.as_slice() {
        [expression] => (expression, None),
        [expression, value] => (expression, Some(value.trim_matches(['\'', '"']).to_owned())),
        _ => crate::bail!(
            "jsonpath wait format must be --for=jsonpath='{{.status.readyReplicas}}'=3 or \
             --for=jsonpath='{{.status.readyReplicas}}'"
        ),
    };
    let wrong = |error: crate::jsonpath::JsonPathError| CommandError::new(error.to_string());
    let expression = relaxed_expression(expression).map_err(wrong)?;
    if value.as_deref() == Some("") {
        crate::bail!(
            "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{{.status.readyReplicas}}'=3"
        );
    }
    if expression.is_empty() {
        crate::bail!("jsonpath expression cannot be empty");
    }
    let path = JsonPath::parse(&expression).map_err(wrong)?;
    Ok(WaitFor::Path(Box::new(path), value))
}

fn wait_for_creation(session: &Session, builder: &ResourceBuilder, deadline: WaitDeadline) -> CommandResult {
    loop {
        let result = builder.build(session)?;
        if result.errors.is_empty() && !result.infos.is_empty() {
            return Ok(());
        }
        if let Some(error) = result.errors.into_iter().find(|error| !error.is_not_found()) {
            return Err(error);
        }
        let Some(left) = deadline.left() else {
            crate::bail!("timed out waiting for the condition");
        };
        std::thread::sleep(left.min(std::time::Duration::from_millis(500)));
    }
}

/// Waits for one object; `false` if there is nothing to report.
fn wait_for_one(
    session: &Session,
    info: &mut ResourceInfo,
    condition: &WaitFor,
    deadline: WaitDeadline,
    once: bool,
) -> CommandResult<bool> {
    let client = session.client()?;
    let unmet = |info: &ResourceInfo| {
        CommandError::new(format!("condition not met for {}/{}", info.mapping.resource, info.name))
    };
    if let WaitFor::Create = condition {
        return Ok(true);
    }
    if let WaitFor::Delete = condition {
        let (item, _) = list_single(client, info)?;
        let Some(item) = item else { return Ok(false) };
        info.object = item;
        if once {
            return Err(unmet(info));
        }
        let uid = info.object.text("metadata.uid").to_owned();
        wait_for_deletion(client, info, &uid, deadline)?;
        return Ok(true);
    }
    loop {
        let (item, version) = list_single(client, info)?;
        if let Some(item) = item {
            if is_met(condition, &item)? {
                info.object = item;
                return Ok(true);
            }
            info.object = item;
        }
        if once {
            return Err(unmet(info));
        }
        if deadline.left().is_none() {
            return Err(timed_out(info));
        }
        let met = watch_single(client, info, &version, deadline, &mut |kind, object| {
            Ok((kind != "DELETED" && is_met(condition, object)?).then(|| object.clone()))
        })?;
        if let Some(object) = met {
            info.object = object;
            return Ok(true);
        }
    }
}

fn is_met(condition: &WaitFor, object: &Value) -> CommandResult<bool> {
    match condition {
        WaitFor::Delete | WaitFor::Create => Ok(true),
        WaitFor::Condition(name, value) => {
            let found = object
                .list("status.conditions")
                .iter()
                .find(|condition| condition.text("type").eq_ignore_ascii_case(name));
            let Some(found) = found else { return Ok(false) };
            let generation = object.integer("metadata.generation");
            let observed = found.integer("observedGeneration").or_else(|| object.integer("status.observedGeneration"));
            if let (Some(generation), Some(observed)) = (generation, observed)
                && observed < generation
            {
                return Ok(false);
            }
            Ok(found.text("status").eq_ignore_ascii_case(value))
        }
        WaitFor::Path(path, value) => {
            let results = match path.find_results(object) {
                Ok(results) => results,
                Err(error) => return Err(CommandError::new(error.to_string())),
            };
            let values: Vec<&Value> = results.iter().flatten().collect();
            match (values.as_slice(), value) {
                ([], _) => Ok(false),
                (_, None) => Ok(true),
                ([one], Some(wanted)) if !one.is_object() && !one.is_array() => Ok(value_text(one) == *wanted),
                ([_], Some(_)) => {
                    Err(CommandError::new("jsonpath leads to a nested object or list which is not supported"))
                }
                _ => Err(CommandError::new("given jsonpath expression matches more than one value")),
            }
        }
    }
}
