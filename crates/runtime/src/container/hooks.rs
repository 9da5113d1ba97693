//! Hooks: programs that the specification has run at points of a container's life.

use std::{
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{ContainerError, Operation, spec::HookSpec};

/// Runs hooks one after the other with the state on standard input; the first failure ends it.
pub fn run_hooks(hooks: &[HookSpec], state: &str) -> Result<(), ContainerError> {
    hooks.iter().try_for_each(|hook| run_hook(hook, state))
}

fn run_hook(hook: &HookSpec, state: &str) -> Result<(), ContainerError> {
    let name = || format!("hook {}", hook.path.display());
    let mut command = Command::new(&hook.path);
    if let Some((first, rest)) = hook.args.split_first() {
        command.arg0(first).args(rest);
    }
    command.env_clear().envs(hook.env.iter().filter_map(|pair| pair.split_once('=')));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().during(name)?;
    if let Some(mut input) = child.stdin.take() {
        // A hook that does not read its input may still do its work.
        let _ = input.write_all(state.as_bytes());
    }
    let deadline = hook.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let status = loop {
        match child.try_wait().during(name)? {
            Some(status) => break status,
            None if deadline.is_some_and(|deadline| Instant::now() > deadline) => {
                // It may end at this moment; either way it is gone then.
                let _ = child.kill();
                let _ = child.wait();
                return Err(ContainerError::Invalid(format!("{} did not end in time", name())));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    Err(ContainerError::Invalid(format!("{} failed ({status}): {}", name(), said.trim())))
}
