//! `kubectl set env`

use api::{Value, json::go_quote};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{SetRun, pod_spec_mut, visit_containers};
use crate::{
    environment_name::check_environment_name,
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of},
    outln,
    resource::ResourceBuilder,
    rest::RestRequest,
    session::Session,
};

/// Changes of environment variables.
#[derive(Default)]
struct EnvChange {
    set: Vec<Value>,
    remove: Vec<String>,
}

fn is_env(argument: &str) -> bool {
    argument == "-" || argument.contains('=') || argument.ends_with('-') && !argument.contains('/')
}

/// Sets environment variables of containers.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    if flags.bool("all") && !flags.string("selector").is_empty() {
        crate::bail!("cannot set --all and --selector at the same time");
    }
    let arguments = session.arguments();
    let first = arguments.iter().position(|argument| is_env(argument)).unwrap_or(arguments.len());
    let (resources, pairs) = arguments.split_at(first);
    if pairs.iter().any(|argument| !is_env(argument)) {
        crate::bail!("all resources must be specified before environment changes: {}", arguments.join(" "));
    }
    if pairs.iter().any(|pair| pair == "-") {
        if flags.strings("filename").iter().any(|name| name == "-") {
            crate::bail!("standard input cannot be used for multiple arguments");
        }
        session.stdin_used.set(true);
    }
    let mut run = SetRun::new(session, "env updated", "failed to patch env update to pod template: ")?;
    run.refuses_local_arguments = false;
    if resources.is_empty() && flags.strings("filename").is_empty() {
        crate::bail!("one or more resources must be specified as <resource> <name> or <resource>/<name>");
    }
    let (list, from, keys) = (flags.bool("list"), flags.string("from"), flags.strings("keys"));
    if list && !flags.string("output").is_empty() {
        crate::bail!("--list and --output may not be specified together");
    }
    if !keys.is_empty() && from.is_empty() {
        crate::bail!("when specifying --keys, a configmap or secret must be provided with --from");
    }
    let mut change = parse_changes(flags.strings("env").iter().chain(pairs))?;
    if !from.is_empty() {
        change.set.extend(variables_from(session, &from, &keys)?);
    }
    let prefix = flags.string("prefix");
    for variable in &mut change.set {
        variable["name"] = format!("{prefix}{}", variable.text("name")).into();
    }
    let infos = run.load(resources)?;
    let (pattern, overwrite) = (flags.string("containers"), flags.bool("overwrite"));
    let outcome = run.change(infos, &mut |object, _| {
        let (kind, name) = (object.text("kind").to_owned(), name_of(object).to_owned());
        let whole = object.clone();
        let spec = pod_spec_mut(object)?;
        let mut taken = Vec::new();
        let found = visit_containers(spec, &pattern, &mut |container| {
            if !overwrite {
                taken.extend(overwritten(container, &change.set));
            }
            update_env(container, &change);
            if list {
                print_env(session, &whole, &kind, &name, container);
            }
        });
        if let Some(taken) = taken.into_iter().next() {
            return Err(taken);
        }
        if !found {
            errln!("Warning: {kind}/{name} does not have any containers matching {}", go_quote(&pattern));
        }
        Ok(found && !list)
    });
    // A list ends well, whatever has no containers.
    if list { Ok(()) } else { outcome }
}

fn parse_changes<'a>(texts: impl Iterator<Item = &'a String>) -> CommandResult<EnvChange> {
    let mut change = EnvChange::default();
    let mut named = Vec::new();
    for text in texts {
        if text == "-" {
            use std::io::Read;
            let mut input = String::new();
            // An unreadable stdin has no variables.
            let _ = std::io::stdin().lock().read_to_string(&mut input);
            for line in input.lines().map(|line| line.split('#').next().unwrap_or_default()) {
                if let Some((name, value)) = line.split_once('=') {
                    change.set.push(json!({"name": name, "value": value}));
                }
            }
        } else if let Some((name, value)) = text.split_once('=') {
            let faults = check_environment_name(name);
            if !faults.is_empty() {
                crate::bail!("{} is not a valid key name: {}", go_quote(name), faults.join(";"));
            }
            named.push(name);
            change.set.push(json!({"name": name, "value": value}));
        } else if let Some(name) = text.strip_suffix('-') {
            change.remove.push(name.to_owned());
        } else {
            crate::bail!("unknown environment variable: {text}");
        }
    }
    if change.remove.iter().any(|removed| named.contains(&removed.as_str())) {
        crate::bail!("can not both modify and remove the same environment variable in the same command");
    }
    Ok(change)
}

/// The variables that refer to the keys of a config map or secret.
fn variables_from(session: &Session, from: &str, keys: &[String]) -> CommandResult<Vec<Value>> {
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = vec![from.to_owned()];
    builder.flatten = true;
    builder.filenames.clear();
    builder.select_all = false;
    let mut variables = Vec::new();
    for info in builder.infos(session)? {
        let field = match info.object.text("kind") {
            "Secret" => "secretKeyRef",
            "ConfigMap" => "configMapKeyRef",
            _ => crate::bail!("unsupported resource specified in --from"),
        };
        for key in info.object.map("data").into_iter().flat_map(|data| data.keys()) {
            if !keys.is_empty() && !keys.contains(key) {
                continue;
            }
            let clean: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            let name = clean.to_uppercase();
            if name != *key {
                errln!("Warning: key {key} transferred to {name}");
            }
            variables.push(json!({"name": name, "valueFrom": {field: {"name": info.name, "key": key}}}));
        }
    }
    Ok(variables)
}

fn overwritten(container: &Value, set: &[Value]) -> Option<CommandError> {
    // References count as empty values.
    let differs = |known: &Value| {
        let mut new = set.iter().filter(|new| new.text("name") == known.text("name"));
        new.any(|new| new.text("value") != known.text("value"))
    };
    let known = container.list("env").iter().find(|known| differs(known))?;
    Some(CommandError::new(format!(
        "'{}' already has a value ({}), and --overwrite is false",
        known.text("name"),
        known.text("value")
    )))
}

fn update_env(container: &mut Value, change: &EnvChange) {
    let mut out: Vec<Value> = Vec::new();
    for variable in container.list("env") {
        let name = variable.text("name");
        match change.set.iter().rev().find(|new| new.text("name") == name) {
            Some(new) => out.push(new.clone()),
            None if change.remove.iter().any(|removed| removed == name) => {}
            None => out.push(variable.clone()),
        }
    }
    for new in &change.set {
        if !out.iter().any(|known| known.text("name") == new.text("name")) {
            out.push(new.clone());
        }
    }
    match (out.is_empty(), container) {
        (true, Value::Object(map)) => drop(map.remove("env")),
        (false, container) => container["env"] = out.into(),
        _ => {}
    }
}

fn reference_text(source: &Value) -> String {
    let named = |field: &str, what: &str| {
        source
            .get(field)
            .filter(|value| !value.is_null())
            .map(|reference| format!("{what} {}, key {}", reference.text("name"), reference.text("key")))
    };
    named("configMapKeyRef", "configmap")
        .or_else(|| named("secretKeyRef", "secret"))
        .or_else(|| source.at("fieldRef").map(|field| format!("field path {}", field.text("fieldPath"))))
        .or_else(|| {
            source.at("resourceFieldRef").map(|field| {
                let prefix = field.text("containerName");
                let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
                format!("resource field {prefix}{}", field.text("resource"))
            })
        })
        .unwrap_or_else(|| "invalid valueFrom".to_owned())
}

fn print_env(session: &Session, object: &Value, kind: &str, name: &str, container: &Value) {
    outln!("# {kind} {name}, container {}", container.text("name"));
    let mut failures: std::collections::BTreeMap<String, Vec<String>> = Default::default();
    for variable in container.list("env") {
        let variable_name = variable.text("name");
        let Some(source) = variable.at("valueFrom") else {
            outln!("{variable_name}={}", variable.text("value"));
            continue;
        };
        if session.flags.bool("resolve") {
            match resolve_reference(session, object, container, source) {
                Ok(value) => {
                    outln!("{variable_name}={value}");
                    continue;
                }
                Err(error) => failures.entry(error.to_string()).or_default().push(variable_name.to_owned()),
            }
        }
        outln!("# {variable_name} from {}", reference_text(source));
    }
    for (error, names) in &failures {
        errln!("error retrieving reference for {}: {error}", names.join(", "));
    }
}

fn resolve_reference(session: &Session, object: &Value, container: &Value, source: &Value) -> CommandResult<String> {
    let namespace = session.namespace()?.0;
    for (field, resource) in [("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")] {
        let Some(reference) = source.at(field) else { continue };
        let path = format!("/api/v1/namespaces/{namespace}/{resource}/{}", reference.text("name"));
        let holder = session.client()?.send_json(RestRequest::get(path))?;
        let key = reference.text("key");
        let Some(value) = holder.map("data").and_then(|data| data.get(key)).and_then(Value::as_str) else {
            crate::bail!(
                "key {key} not found in {} {}",
                if field == "secretKeyRef" { "secret" } else { "config map" },
                reference.text("name")
            );
        };
        if field == "configMapKeyRef" {
            return Ok(value.to_owned());
        }
        let decoded = STANDARD.decode(value).unwrap_or_default();
        return Ok(String::from_utf8_lossy(&decoded).into_owned());
    }
    if let Some(field) = source.at("fieldRef") {
        return super::downward_api::field_text(object, field.text("fieldPath"));
    }
    match source.at("resourceFieldRef") {
        Some(reference) => super::downward_api::resource_text(container, reference),
        None => Err(CommandError::new("invalid valueFrom")),
    }
}
