//! `kubectl config set-cluster`, `set-credentials` and `set-context`

use api::{Map, Value, json::go_quote};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{help_error, load};
use crate::{
    errors::CommandResult,
    files::{os_error, read_file},
    kubeconfig::{modify_config, relativize_entry},
    outln,
    session::Session,
};

/// Sets a text field, or removes it when the flag is empty.
fn set_text(entry: &mut Map, session: &Session, flag: &str, field: &str) {
    if session.flags.changed(flag) {
        match session.flags.string(flag) {
            value if value.is_empty() => drop(entry.remove(field)),
            value => drop(entry.insert(field.to_owned(), value.into())),
        }
    }
}

/// Sets a file's name, or its content with `--embed-certs`.
fn set_file(entry: &mut Map, session: &Session, field: &str) -> CommandResult {
    if !session.flags.changed(field) {
        return Ok(());
    }
    let path = session.flags.string(field);
    let data = format!("{field}-data");
    if session.flags.bool("embed-certs") {
        if let Err(error) = std::fs::metadata(&path) {
            crate::bail!("could not stat {field} file {path}: stat {path}: {}", os_error(&error));
        }
        let content = read_file(&path)?;
        entry.insert(data, STANDARD.encode(content).into());
        entry.remove(field);
    } else {
        entry.remove(&data);
        match path {
            path if path.is_empty() => drop(entry.remove(field)),
            path => {
                let path = std::path::absolute(&path).unwrap_or_else(|_| path.into());
                entry.insert(field.to_owned(), crate::files::clean_path(&path).display().to_string().into());
            }
        }
    }
    Ok(())
}

/// `config set-cluster`
pub fn run_set_cluster(session: &Session) -> CommandResult {
    let [name] = session.arguments() else {
        return Err(help_error(session, &format!("Unexpected args: [{}]", session.arguments().join(" "))));
    };
    let flags = &session.flags;
    if flags.bool("insecure-skip-tls-verify") && !flags.string("certificate-authority").is_empty() {
        crate::bail!("you cannot specify a certificate authority and insecure mode at the same time");
    }
    if flags.bool("embed-certs") && flags.changed("embed-certs") {
        let path = flags.string("certificate-authority");
        if path.is_empty() {
            crate::bail!("you must specify a --certificate-authority to embed");
        }
    }
    let (rules, config) = load(session)?;
    let mut changed = config.clone();
    let entry = changed.clusters.entry(name.clone()).or_default();
    set_text(entry, session, "server", "server");
    if flags.changed("server") {
        entry.remove("tls-server-name");
    }
    set_text(entry, session, "tls-server-name", "tls-server-name");
    // Upstream drops the setting unless the flag repeats it.
    entry.remove("insecure-skip-tls-verify");
    if flags.bool("insecure-skip-tls-verify") {
        entry.insert("insecure-skip-tls-verify".into(), true.into());
        entry.remove("certificate-authority");
        entry.remove("certificate-authority-data");
    }
    if flags.changed("certificate-authority") {
        set_file(entry, session, "certificate-authority")?;
        entry.remove("insecure-skip-tls-verify");
    }
    set_text(entry, session, "proxy-url", "proxy-url");
    relativize_entry(&mut changed, &rules, "clusters", name);
    modify_config(&rules, &config, &changed)?;
    outln!("Cluster {} set.", go_quote(name));
    Ok(())
}

/// `config set-context`
pub fn run_set_context(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let current = flags.bool("current");
    let (rules, config) = load(session)?;
    let name = match session.arguments() {
        [] if current => config.current_context.clone(),
        [] => crate::bail!("you must specify a non-empty context name or --current"),
        [name] if !current => name.clone(),
        [_] => crate::bail!("you cannot specify both a context name and --current"),
        _ => return Err(help_error(session, &format!("Unexpected args: [{}]", session.arguments().join(" ")))),
    };
    if name.is_empty() && !current {
        crate::bail!("you must specify a non-empty context name or --current");
    }
    if name.is_empty() {
        crate::bail!("no current context is set");
    }
    let exists = config.contexts.contains_key(&name);
    let mut changed = config.clone();
    let entry = changed.contexts.entry(name.clone()).or_insert_with(|| {
        let mut entry = Map::new();
        entry.insert("cluster".into(), "".into());
        entry.insert("user".into(), "".into());
        entry
    });
    for field in ["cluster", "user"] {
        if flags.changed(field) {
            entry.insert(field.to_owned(), flags.string(field).into());
        }
    }
    set_text(entry, session, "namespace", "namespace");
    modify_config(&rules, &config, &changed)?;
    outln!("Context {} {}.", go_quote(&name), if exists { "modified" } else { "created" });
    Ok(())
}

/// `config set-credentials`
pub fn run_set_credentials(session: &Session) -> CommandResult {
    let [name] = session.arguments() else {
        return Err(help_error(session, &format!("unexpected args: [{}]", session.arguments().join(" "))));
    };
    let flags = &session.flags;
    let basic = !flags.string("username").is_empty() || !flags.string("password").is_empty();
    let token = !flags.string("token").is_empty();
    if basic && token {
        crate::bail!(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password"
        );
    }
    if flags.bool("embed-certs")
        && flags.string("client-certificate").is_empty()
        && flags.string("client-key").is_empty()
    {
        crate::bail!("you must specify a --client-certificate or --client-key to embed");
    }
    let (provider_pairs, exec_pairs) = (pairs(session, "auth-provider-arg")?, pairs(session, "exec-env")?);
    let mode = flags.string("exec-interactive-mode");
    if flags.changed("exec-interactive-mode") && !["IfAvailable", "Never", "Always"].contains(&mode.as_str()) {
        crate::bail!("invalid interactive mode type, can be only IfAvailable, Never, Always");
    }
    let (rules, config) = load(session)?;
    let mut changed = config.clone();
    let entry = changed.users.entry(name.clone()).or_default();
    set_file(entry, session, "client-certificate")?;
    set_file(entry, session, "client-key")?;
    set_text(entry, session, "token", "token");
    set_text(entry, session, "username", "username");
    set_text(entry, session, "password", "password");
    if token {
        entry.remove("username");
        entry.remove("password");
        entry.remove("tokenFile");
    }
    if basic {
        entry.remove("token");
        entry.remove("tokenFile");
    }
    set_provider(entry, session, provider_pairs);
    set_exec(entry, session, exec_pairs);
    relativize_entry(&mut changed, &rules, "users", name);
    modify_config(&rules, &config, &changed)?;
    outln!("User {} set.", go_quote(name));
    Ok(())
}

fn pairs(session: &Session, flag: &str) -> CommandResult<Vec<(String, Option<String>)>> {
    let mut out = Vec::new();
    for text in session.flags.strings(flag) {
        if let Some((key, value)) = text.split_once('=') {
            out.push((key.to_owned(), Some(value.to_owned())));
        } else if let Some(key) = text.strip_suffix('-') {
            out.push((key.to_owned(), None));
        } else {
            return Err(help_error(session, &format!("invalid {flag} format: {text}")));
        }
    }
    Ok(out)
}

fn set_provider(entry: &mut Map, session: &Session, changes: Vec<(String, Option<String>)>) {
    if session.flags.changed("auth-provider") {
        let name = session.flags.string("auth-provider");
        if entry.get("auth-provider").is_none_or(|known| known["name"] != name.as_str()) {
            entry.insert("auth-provider".into(), json!({"name": name, "config": {}}));
        }
    }
    let Some(provider) = entry.get_mut("auth-provider").filter(|provider| provider.is_object()) else { return };
    if !provider["config"].is_object() {
        provider["config"] = json!({});
    }
    let Some(config) = provider["config"].as_object_mut() else { return };
    for (key, value) in changes {
        match value {
            Some(value) => drop(config.insert(key, value.into())),
            None => drop(config.remove(&key)),
        }
    }
}

fn set_exec(entry: &mut Map, session: &Session, changes: Vec<(String, Option<String>)>) {
    let flags = &session.flags;
    if flags.changed("exec-command") {
        let exec = entry.entry("exec").or_insert_with(|| json!({"env": null, "provideClusterInfo": false}));
        exec["command"] = flags.string("exec-command").into();
        // The arguments belong to the command.
        exec["args"] = Value::Null;
    }
    let Some(exec) = entry.get_mut("exec").filter(|exec| exec.is_object()) else { return };
    if flags.changed("exec-api-version") {
        exec["apiVersion"] = flags.string("exec-api-version").into();
    }
    if flags.has("exec-interactive-mode") && flags.changed("exec-interactive-mode") {
        exec["interactiveMode"] = flags.string("exec-interactive-mode").into();
    }
    if flags.has("exec-provide-cluster-info") && flags.changed("exec-provide-cluster-info") {
        exec["provideClusterInfo"] = flags.bool("exec-provide-cluster-info").into();
    }
    if flags.changed("exec-arg") {
        exec["args"] = flags.strings("exec-arg").into();
    }
    if changes.is_empty() {
        return;
    }
    let mut variables: Vec<Value> = exec["env"].as_array().cloned().unwrap_or_default();
    for (key, value) in changes {
        let Some(value) = value else {
            variables.retain(|variable| variable["name"] != key.as_str());
            continue;
        };
        match variables.iter_mut().find(|variable| variable["name"] == key.as_str()) {
            Some(known) => known["value"] = value.into(),
            None => variables.push(json!({"name": key, "value": value})),
        }
    }
    exec["env"] = variables.into();
}
