//! A call of one plug-in.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{plugin_error::PluginError, plugins::find_plugin, request::CniCommand};

/// A network could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// There is no valid configuration.
    #[error("{0}")]
    NoNetwork(String),
    /// There is no such plug-in.
    #[error("failed to find plugin {plugin:?} in path [{path}]")]
    NoPlugin {
        /// The plug-in.
        plugin: String,
        /// The directories that were searched.
        path: String,
    },
    /// The plug-in failed.
    #[error("plugin type={plugin:?} failed: {error}")]
    Plugin {
        /// The plug-in.
        plugin: String,
        /// The error that it reported.
        error: PluginError,
    },
    /// The plug-in could not be run.
    #[error("plugin {}: {source}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A result could not be kept.
    #[error("cached result: {0}")]
    Cache(io::Error),
    /// The container is not attached.
    #[error("container {0} is not attached to the network")]
    NotAttached(String),
}

/// A call.
pub struct PluginCall<'a> {
    /// The program.
    pub program: &'a Path,
    /// The command.
    pub command: CniCommand,
    /// The variables.
    pub environment: Vec<(&'static str, String)>,
    /// The configuration.
    pub input: Vec<u8>,
}

/// Calls a plug-in; returns its result, if the command has one.
pub fn call_plugin(call: &PluginCall<'_>) -> Result<Option<Value>, CniError> {
    let name = call.program.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let failed = |error: PluginError| CniError::Plugin { plugin: name.clone(), error };
    let output = match find_plugin(&name).filter(|_| is_this_program(call.program)) {
        Some(plugin) => {
            let variable = |wanted: &str| {
                let found = call.environment.iter().find(|(name, _)| *name == wanted);
                found.map(|(_, value)| value.clone())
            };
            crate::respond(plugin, &call.input, variable).map_err(failed)?.into_bytes()
        }
        None => run_program(call, &name)?,
    };
    if call.command != CniCommand::Add || output.is_empty() {
        return Ok(None);
    }
    let result = serde_json::from_slice(&output)
        .map_err(|error| failed(PluginError::new(PluginError::DECODING_FAILURE, format!("invalid result: {error}"))))?;
    Ok(Some(result))
}

/// Whether a plug-in is a link to the program that runs.
fn is_this_program(program: &Path) -> bool {
    let own = std::env::current_exe().and_then(|path| path.canonicalize());
    matches!((own, program.canonicalize()), (Ok(own), Ok(program)) if own == program)
}

fn run_program(call: &PluginCall<'_>, name: &str) -> Result<Vec<u8>, CniError> {
    let failed = |source: io::Error| CniError::Run { program: call.program.to_owned(), source };
    let mut command = Command::new(call.program);
    command.envs(call.environment.iter().map(|(name, value)| (*name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A plug-in that does not read its configuration says why in its error.
        let _ = input.write_all(&call.input);
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let error: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let text = |field: &str| error.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let code = error.get("code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
    let message = match text("msg") {
        message if message.is_empty() => {
            format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
        }
        message => message,
    };
    let error = PluginError { code: code.unwrap_or(PluginError::INTERNAL), message, details: text("details") };
    Err(CniError::Plugin { plugin: name.into(), error })
}
