//! `kubectl taint`

use api::{Value, json::go_quote};
use formats::names;
use serde_json::json;

use crate::{
    errors::{CommandError, CommandResult},
    merge_patch::{diff_strategic, type_of_object},
    object::{self, ObjectFields},
    printers::ObjectPrinter,
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder},
    session::Session,
};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Changes of taints.
#[derive(Default)]
struct TaintChange {
    add: Vec<Value>,
    remove: Vec<(String, String)>,
}

/// Changes the taints of nodes.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let arguments = session.arguments();
    let is_spec = |argument: &String| argument.contains('=') || argument.contains(':') || argument.ends_with('-');
    let first = arguments.iter().position(is_spec).unwrap_or(arguments.len());
    let (resources, specs) = arguments.split_at(first);
    if let Some(stray) = specs.iter().find(|argument| !is_spec(argument)) {
        crate::bail!("all resources must be specified before taint changes: {stray}");
    }
    if resources.is_empty() {
        crate::bail!("one or more resources must be specified as <resource> <name>");
    }
    if specs.is_empty() {
        crate::bail!("at least one taint update is required");
    }
    let change = parse_specs(specs).map_err(|error| crate::usage::usage_error(session, &error.to_string()))?;
    let resource = resources[0].to_lowercase();
    let found = session.look_up_resource(|data| data.find_argument(&resource))?;
    let kind = found
        .ok_or_else(|| CommandError::new(format!("the server doesn't have a resource type {}", go_quote(&resource))))?;
    if kind.kind != "Node" {
        crate::bail!("invalid resource type {}, only node types are supported", resources[0].to_lowercase());
    }
    check_conflicts(&change)?;
    let (all, selector) = (flags.bool("all"), flags.string("selector"));
    if all && !selector.is_empty() {
        crate::bail!("setting 'all' parameter with a non empty selector is prohibited");
    }
    if !all && selector.is_empty() && resources.len() < 2 {
        crate::bail!("at least one resource name must be specified since 'all' parameter is not set");
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = resources.to_vec();
    builder.flatten = true;
    builder.continue_on_error = true;
    let mut errors = Vec::new();
    let result = builder.build(session)?;
    errors.extend(result.errors);
    for mut info in result.infos {
        let before = info.object.clone();
        let operation = match apply_change(&mut info.object, &change, flags.bool("overwrite")) {
            Ok(operation) => operation,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let printer = ObjectPrinter::from_flags(flags, operation)?;
        if dry_run != DryRun::Client {
            let Some(ty) = type_of_object(&before) else { continue };
            let patch = diff_strategic(ty, &before, &info.object);
            let options =
                RequestOptions { dry_run, field_manager: flags.string("field-manager"), ..Default::default() };
            match info.patch(session.client()?, PatchKind::Strategic, patch.to_string(), &options) {
                Ok(patched) => info.object = patched,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            }
        }
        printer.print(&info.object)?;
    }
    CommandError::join(errors)
}

/// A taint as an argument names it.
struct TaintSpec {
    key: String,
    value: String,
    effect: String,
}

/// Parses `key=value:effect`, `key:effect` or `key`.
fn parse_taint(text: &str) -> CommandResult<TaintSpec> {
    let wrong = |faults: Vec<String>| match faults.as_slice() {
        [] => Ok(()),
        _ => Err(CommandError::new(format!("invalid taint spec: {text}, {}", faults.join("; ")))),
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (key, value, effect) = match parts.as_slice() {
        [key] => (*key, "", ""),
        [pair, effect] => {
            if !EFFECTS.contains(effect) {
                crate::bail!("invalid taint effect: {effect}, unsupported taint effect");
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if value.contains('=') {
                crate::bail!("invalid taint spec: {text}");
            }
            wrong(names::check_label_value(value))?;
            (key, value, *effect)
        }
        _ => crate::bail!("invalid taint spec: {text}"),
    };
    wrong(names::check_qualified_name(key))?;
    Ok(TaintSpec { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

fn parse_specs(specs: &[String]) -> CommandResult<TaintChange> {
    let mut change = TaintChange::default();
    for spec in specs {
        if let Some(text) = spec.strip_suffix('-') {
            let TaintSpec { key, effect, .. } = parse_taint(text)?;
            change.remove.push((key, effect));
            continue;
        }
        let TaintSpec { key, value, effect } = parse_taint(spec)?;
        if effect.is_empty() {
            crate::bail!("invalid taint spec: {spec}");
        }
        if change.add.iter().any(|known| known.text("key") == key && known.text("effect") == effect) {
            crate::bail!("duplicated taints with the same key and effect: {{{key} {value} {effect} <nil>}}");
        }
        let mut taint = json!({"key": key, "effect": effect});
        if !value.is_empty() {
            taint["value"] = value.into();
        }
        change.add.push(taint);
    }
    Ok(change)
}

/// Checks that no taint is both added and removed.
fn check_conflicts(change: &TaintChange) -> CommandResult {
    let mut both = Vec::new();
    for taint in &change.add {
        let same = |(key, effect): &&(String, String)| {
            key == taint.text("key") && (effect.is_empty() || effect == taint.text("effect"))
        };
        both.extend(change.remove.iter().filter(same).map(|(key, effect)| format!("{key}={effect}")));
    }
    if both.is_empty() {
        return Ok(());
    }
    crate::bail!("can not both modify and remove the following taint(s) in the same command: {}", both.join(", "));
}

fn apply_change(node: &mut Value, change: &TaintChange, overwrite: bool) -> CommandResult<&'static str> {
    let old = node.list("spec.taints").to_vec();
    let name = object::name_of(node).to_owned();
    if !overwrite {
        for taint in &change.add {
            let same =
                |known: &&Value| known.text("key") == taint.text("key") && known.text("effect") == taint.text("effect");
            if old.iter().any(|known| same(&known)) {
                crate::bail!(
                    "node {name} already has {} taint(s) with same effect(s) and --overwrite is false",
                    taint.text("key")
                );
            }
        }
    }
    let mut missing = Vec::new();
    let mut taints: Vec<Value> = change.add.clone();
    let replaced = |known: &Value| {
        change
            .add
            .iter()
            .any(|taint| taint.text("key") == known.text("key") && taint.text("effect") == known.text("effect"))
    };
    let removed = |known: &Value| {
        change
            .remove
            .iter()
            .any(|(key, effect)| known.text("key") == key && (effect.is_empty() || known.text("effect") == effect))
    };
    for known in &old {
        if !replaced(known) && !removed(known) {
            taints.push(known.clone());
        }
    }
    for (key, effect) in &change.remove {
        let found =
            old.iter().any(|known| known.text("key") == key && (effect.is_empty() || known.text("effect") == effect));
        if !found {
            missing.push(CommandError::new(format!(
                "taint {} not found",
                go_quote(&if effect.is_empty() { key.clone() } else { format!("{key}:{effect}") })
            )));
        }
    }
    CommandError::join(missing)?;
    object::set_path(node, "spec.taints", if taints.is_empty() { Value::Null } else { taints.into() });
    if node.pointer("/spec/taints").is_some_and(Value::is_null) {
        object::remove_path(node, "spec.taints");
    }
    Ok(match (change.add.is_empty(), change.remove.is_empty()) {
        (false, false) => "modified",
        (false, true) if overwrite => "modified",
        (true, false) => "untainted",
        _ => "tainted",
    })
}
