//! CNI: the runner that runtimes call plug-ins with, and plug-ins, each this binary under another name, as the container
//! network interface specification describes.
//!
//! A plug-in gets its configuration on standard input and what to do in the environment; it writes its result or an error
//! as JSON to standard output. It knows nothing of Kubernetes and keeps no state but in files and in the kernel.

mod delegate;
mod plugin_error;
mod plugins;
mod request;
mod result;
pub mod runner;
mod version;

use std::{
    io::{self, Read, Write},
    process::ExitCode,
};

pub use plugin_error::PluginError;
pub use plugins::{remove_host_ports, remove_masquerade};

use request::{CniCommand, CniRequest};

/// The names of the plug-ins.
pub const PLUGINS: [&str; 7] = ["bridge", "host-local", "loopback", "portmap", "ptp", "static", "tuning"];

/// The largest configuration that is read.
const LARGEST_CONFIGURATION: u64 = 8 << 20;

/// Runs the plug-in `name`, whose request is in the environment and on standard input; `None` if there is no such
/// plug-in.
pub fn run_plugin(name: &str) -> Option<ExitCode> {
    let plugin = plugins::find_plugin(name)?;
    let mut input = Vec::new();
    let outcome = match io::stdin().lock().take(LARGEST_CONFIGURATION).read_to_end(&mut input) {
        Ok(_) => respond(plugin, &input, |variable| std::env::var(variable).ok()),
        Err(error) => Err(PluginError::io("cannot read the configuration", &error)),
    };
    let (text, code) = match outcome {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(error) => (error.to_json(&version::version_of_input(&input)), ExitCode::FAILURE),
    };
    // Without standard output no runtime hears the result; the exit code still tells.
    let written = io::stdout().lock().write_all(text.as_bytes());
    Some(if written.is_ok() { code } else { ExitCode::FAILURE })
}

/// Does what a request asks; returns what is written to standard output.
fn respond(
    plugin: &dyn plugins::CniPlugin,
    input: &[u8],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, PluginError> {
    let command = CniCommand::from_environment(&variable)?;
    if command == CniCommand::Version {
        return Ok(version::render_versions(input));
    }
    let request = CniRequest::parse(command, input, &variable)?;
    match command {
        CniCommand::Add => {
            let result = plugin.add(&request)?;
            Ok(result.to_json(&request.version))
        }
        CniCommand::Delete => plugin.delete(&request).map(|()| String::new()),
        CniCommand::Check => plugin.check(&request).map(|()| String::new()),
        CniCommand::GarbageCollect => plugin.collect_garbage(&request).map(|()| String::new()),
        CniCommand::Status => plugin.status(&request).map(|()| String::new()),
        CniCommand::Version => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_configurations_are_errors() {
        let valid = br#"{"cniVersion":"1.0.0","name":"n","type":"static","ipam":{"type":"static","addresses":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]},"prevResult":{"ips":[{"address":"10.0.0.2/24"}]}}"#;
        let mut random = fastrand::Rng::with_seed(16);
        let variable = |name: &str| match name {
            "CNI_CONTAINERID" => Some("c".to_owned()),
            "CNI_NETNS" => Some("/nonexistent".to_owned()),
            "CNI_IFNAME" => Some("eth0".to_owned()),
            _ => None,
        };
        for command in ["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"] {
            let plugin = plugins::find_plugin("static").unwrap();
            let with_command =
                |name: &str| if name == "CNI_COMMAND" { Some(command.to_owned()) } else { variable(name) };
            assert!(respond(plugin, valid, with_command).is_ok(), "{command}");
            for _ in 0..5_000 {
                let mut input = valid.to_vec();
                for _ in 0..random.usize(1..8) {
                    let at = random.usize(..input.len());
                    input[at] = random.u8(..);
                }
                if let Err(error) = respond(plugin, &input, with_command) {
                    assert!(error.code > 0 && !error.message.is_empty());
                }
            }
        }
    }
}
