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

/// Waits for a condition of objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let Some(condition_text) = flags.strings("for").pop() else { crate::bail!("unrecognized condition: []") };
    let mut printer = ObjectPrinter::from_flags(flags, "condition met")?;
    printer.set_operation("condition met");
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = session.arguments().to_vec();
    builder.flatten = true;
    builder.latest = true;
    builder.continue_on_error = true;
    let conditions = parse_condition(&condition_text)?;
    builder.skip_fetch = matches!(conditions, WaitFor::Delete | WaitFor::Create);
    let timeout = flags.duration("timeout");
    let deadline = WaitDeadline::after(if timeout < 0 { -1 } else { timeout });
    if matches!(conditions, WaitFor::Create) {
        return wait_for_creation(session, &builder, deadline, &printer);
    }
    let mut result = builder.build(session)?;
    if matches!(conditions, WaitFor::Delete) {
        result.errors.retain(|error| !error.is_not_found());
    }
    CommandError::join(result.errors)?;
    let mut errors = Vec::new();
    let mut visited = 0;
    for mut info in result.infos {
        visited += 1;
        match wait_for_one(session, &mut info, &conditions, deadline) {
            Ok(true) => printer.print(&info.object)?,
            Ok(false) => {}
            Err(error) => errors.push(error),
        }
    }
    CommandError::join(errors)?;
    if visited == 0 && !matches!(conditions, WaitFor::Delete) {
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

fn parse_path(text: &str) -> CommandResult<WaitFor> {
    let quoted = text.trim_matches('\'');
    let (expression, value) = match quoted.find("}=") {
        Some(at) => (&quoted[..=at], Some(&quoted[at + 2..])),
        None => match quoted.split_once('=').filter(|_| !quoted.starts_with('{')) {
            Some((expression, value)) => (expression, Some(value)),
            None => (quoted, None),
        },
    };
    if value == Some("") {
        crate::bail!(
            "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{{.status.readyReplicas}}'=3"
        );
    }
    let wrong = |error: crate::jsonpath::JsonPathError| CommandError::new(error.to_string());
    let expression = relaxed_expression(expression).map_err(wrong)?;
    let path = JsonPath::parse(&expression).map_err(wrong)?;
    Ok(WaitFor::Path(Box::new(path), value.map(|value| value.trim_matches(['\'', '"']).to_owned())))
}

fn wait_for_creation(
    session: &Session,
    builder: &ResourceBuilder,
    deadline: WaitDeadline,
    printer: &ObjectPrinter,
) -> CommandResult {
    let mut probe = builder.clone();
    probe.skip_fetch = false;
    loop {
        let result = probe.build(session)?;
        if result.errors.is_empty() && !result.infos.is_empty() {
            return result.infos.iter().try_for_each(|info| printer.print(&info.object));
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
) -> CommandResult<bool> {
    let client = session.client()?;
    if let WaitFor::Delete = condition {
        let (item, _) = list_single(client, info)?;
        let Some(item) = item else { return Ok(false) };
        info.object = item;
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
