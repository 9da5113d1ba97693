//! Calls of another plug-in, such as the IPAM plug-in of a configuration.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{plugin_error::PluginError, request::CniRequest, result::CniResult};

/// Calls the IPAM plug-in with the request's own command and configuration.
///
/// # Errors
/// The plug-in's own error, or that it cannot be called.
pub fn call_ipam(request: &CniRequest) -> Result<Option<CniResult>, PluginError> {
    let Some(name) = request.ipam_type() else { return Err(PluginError::invalid("no IPAM plugin is configured")) };
    let program = find_plugin(name, &request.path)?;
    let output = call(request, &program)?;
    if output.is_empty() {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(&output).map_err(|error| {
        PluginError::new(PluginError::DECODING_FAILURE, format!("netplugin {name}: invalid result: {error}"))
    })?;
    CniResult::from_value(&value).map(Some)
}

fn find_plugin(name: &str, path: &[PathBuf]) -> Result<PathBuf, PluginError> {
    if name.contains('/') {
        return Err(PluginError::invalid(format!("invalid plugin name: {name}")));
    }
    let found = path.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let shown: Vec<_> = path.iter().map(|path| path.display().to_string()).collect();
        PluginError::invalid(format!("failed to find plugin {name:?} in path [{}]", shown.join(" ")))
    })
}

fn call(request: &CniRequest, program: &PathBuf) -> Result<Vec<u8>, PluginError> {
    let failed = |error: &std::io::Error| PluginError::io(program.display(), error);
    let path: Vec<String> = request.path.iter().map(|path| path.display().to_string()).collect();
    let mut child = Command::new(program)
        .env("CNI_COMMAND", request.command.name())
        .env("CNI_CONTAINERID", &request.container_id)
        .env("CNI_NETNS", &request.namespace)
        .env("CNI_IFNAME", &request.interface)
        .env("CNI_ARGS", &request.raw_arguments)
        .env("CNI_PATH", path.join(":"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| failed(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A plug-in that does not read its configuration says why in its error.
        let _ = stdin.write_all(&request.input);
    }
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let error: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let text = |field: &str| error.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let code = error.get("code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
    Err(PluginError {
        code: code.unwrap_or(PluginError::INTERNAL),
        message: match text("msg") {
            message if message.is_empty() => format!("{}: {}", program.display(), output.status),
            message => message,
        },
        details: text("details"),
    })
}
