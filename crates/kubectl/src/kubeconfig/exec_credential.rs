//! Credentials from exec plug-ins (`client.authentication.k8s.io` v1 and v1beta1).

use std::{
    io::{IsTerminal, Read},
    process::{Command, Stdio},
};

use api::{Map, Value, json::go_quote};

use super::{ClientSettings, text_of};
use crate::errors::{CommandError, CommandResult};

/// Runs the plug-in of the user, if it has one, and fills in the credentials that it prints.
pub fn load_exec_credentials(settings: &mut ClientSettings) -> CommandResult {
    let Some(exec) = settings.user.exec.clone() else { return Ok(()) };
    let user = &settings.user;
    let has_others = [&user.token, &user.username, &user.password].iter().any(|text| !text.is_empty());
    // Credentials that are given come first.
    if has_others || user.certificate.is_some() {
        settings.user.exec = None;
        return Ok(());
    }
    let status = run_plugin(&exec, settings)?;
    let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (token, certificate, key) = (text("token"), text("clientCertificateData"), text("clientKeyData"));
    if token.is_empty() && certificate.is_empty() && key.is_empty() {
        return Err(exec_error("exec plugin didn't return a token or cert/key pair"));
    }
    if certificate.is_empty() != key.is_empty() {
        return Err(exec_error("exec plugin returned only certificate or key, not both"));
    }
    settings.user.token = token;
    if !certificate.is_empty() {
        settings.user.certificate = Some(certificate.into_bytes());
        settings.user.key = Some(key.into_bytes());
    }
    Ok(())
}

fn exec_error(message: impl std::fmt::Display) -> CommandError {
    CommandError::new(format!("getting credentials: {message}"))
}

fn run_plugin(exec: &Map, settings: &ClientSettings) -> CommandResult<Map> {
    let command = text_of(exec, "command");
    let version = text_of(exec, "apiVersion");
    if !["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"].contains(&version) {
        return Err(exec_error(format!("exec plugin: invalid apiVersion {}", go_quote(version))));
    }
    let interactive = match text_of(exec, "interactiveMode") {
        "Never" => false,
        "Always" if settings.stdin_used => {
            return Err(exec_error(
                "exec plugin cannot support interactive mode: standard input is unavailable: used by stdin resource manifest \
                 reader",
            ));
        }
        _ if settings.stdin_used => false,
        "Always" if !std::io::stdin().is_terminal() => {
            return Err(exec_error("exec plugin cannot support interactive mode: standard input is not a terminal"));
        }
        _ => std::io::stdin().is_terminal(),
    };
    let mut spec = serde_json::json!({"interactive": interactive});
    if exec.get("provideClusterInfo") == Some(&Value::Bool(true)) {
        spec["cluster"] = cluster_info(settings);
    }
    let info = serde_json::json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec});
    settings.plugin_policy.check_plugin(command).map_err(exec_error)?;
    let mut process = Command::new(command);
    for argument in exec.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        process.arg(argument);
    }
    for variable in exec.get("env").and_then(Value::as_array).into_iter().flatten() {
        let text = |field: &str| variable.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        process.env(text("name"), text("value"));
    }
    process.env("KUBERNETES_EXEC_INFO", info.to_string());
    process.stdout(Stdio::piped()).stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
    let output = collect_output(process, exec, command)?;
    let credential: Value = serde_json::from_slice(&output).map_err(|error| {
        let cause = api::json::parse(&output).err().map_or_else(|| error.to_string(), |error| error.to_string());
        exec_error(format!("decoding stdout: couldn't get version/kind; json parse error: {cause}"))
    })?;
    let found = text_of(credential.as_object().unwrap_or(&Map::new()), "apiVersion").to_owned();
    if found != version {
        let message =
            format!("exec plugin is configured to use API version {version}, plugin returned version {found}");
        return Err(exec_error(message));
    }
    let status = credential.get("status").and_then(Value::as_object).cloned();
    status.ok_or_else(|| exec_error("exec plugin didn't return a status field"))
}

fn collect_output(mut process: Command, exec: &Map, command: &str) -> CommandResult<Vec<u8>> {
    let hint = |message: String| {
        let hint = text_of(exec, "installHint");
        exec_error(if hint.is_empty() { message } else { format!("{message}\n\n{hint}") })
    };
    let missing = |_| {
        hint(format!(
            "exec: executable {command} not found\n\nIt looks like you are trying to use a client-go credential plugin \
             that is not installed.\n\nTo learn more about this feature, consult the documentation available at:\n      \
             https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins"
        ))
    };
    let mut child = process.spawn().map_err(missing)?;
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // A plug-in's credential is small; a runaway one is cut off.
        stdout.take(1 << 20).read_to_end(&mut output).map_err(|error| exec_error(error.to_string()))?;
    }
    let status = child.wait().map_err(|error| exec_error(error.to_string()))?;
    if !status.success() {
        let code = status.code().unwrap_or(-1);
        return Err(hint(format!("exec: executable {command} failed with exit code {code}")));
    }
    Ok(output)
}

fn cluster_info(settings: &ClientSettings) -> Value {
    use base64::Engine;
    let mut info = serde_json::json!({"server": settings.host});
    if let Some(authority) = &settings.authority {
        info["certificate-authority-data"] = base64::engine::general_purpose::STANDARD.encode(authority).into();
    }
    if settings.insecure {
        info["insecure-skip-tls-verify"] = true.into();
    }
    if !settings.server_name.is_empty() {
        info["tls-server-name"] = settings.server_name.clone().into();
    }
    info["config"] = settings.exec_cluster_config.clone();
    info
}
