//! `ferry down`: stops the cluster and removes every trace of it from the machine, whatever state it was left in.
//!
//! Each step works when the one before had nothing to do, and is safe to repeat. The kind way comes first (ask ferry, ask
//! the runtime), then what is left is found by name in `/proc`, the mount table, the network and the control groups.

mod cgroups;
mod mounts;
mod purge;
mod sandboxes;

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, bail};

use crate::{
    arguments::DownArguments,
    containerd,
    instance::ClusterInstance,
    network,
    pidfile::{self, InstanceLock},
    preflight,
    screen::StepScreen,
    state::InstanceState,
    steps::StepReporter,
    user_error::user_error,
};

/// Time for ferry and its containerd to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// Takes a cluster down.
pub fn run_down(arguments: DownArguments) -> anyhow::Result<ExitCode> {
    preflight::check_root()?;
    let instance = ClusterInstance::at(&arguments.data_dir).context("--data-dir")?;
    if instance.data().exists() && !instance.is_cluster()? && instance.data().read_dir()?.next().is_some() {
        return Err(user_error(
            format!("{} is not a cluster of ferry's", instance.data().display()),
            "Name the cluster's own directory with --data-dir.",
        ));
    }
    let mut take_down = TakeDown { steps: StepReporter::on_terminal(), removed: false, failed: false };
    take_down.everything(&instance, arguments.purge)?;
    let screen = StepScreen::new();
    match (take_down.failed, take_down.removed) {
        (true, _) => bail!("not everything could be removed; `ferry down` can be repeated"),
        (false, false) => screen.line("Nothing is up."),
        (false, true) => screen.line(&format!("\nThe cluster is down after {:.2} s.", take_down.steps.seconds())),
    }
    Ok(ExitCode::SUCCESS)
}

/// The way down so far.
struct TakeDown {
    steps: StepReporter,
    /// Something was there.
    removed: bool,
    /// Something is still there.
    failed: bool,
}

impl TakeDown {
    fn everything(&mut self, instance: &ClusterInstance, purge: bool) -> anyhow::Result<()> {
        self.step("ferry", || stop_ferry(instance));
        if self.failed {
            bail!("ferry still runs; nothing else was touched");
        }
        // The lock prevents a start while the cluster is taken down.
        let lock = if instance.data().exists() { InstanceLock::take(instance)? } else { None };
        if lock.is_none() && instance.data().exists() {
            return Err(preflight::already_running(instance));
        }
        // A damaged state file must not prevent the cleanup.
        let mut state = InstanceState::load(instance).unwrap_or_default();
        self.step("pods", || sandboxes::remove_sandboxes(instance, &state));
        self.step("container runtime", || stop_containerd(instance));
        self.step("control groups", || cgroups::remove_cgroups(&instance.cgroup()));
        self.step("mounts", || mounts::unmount_under(instance.data()));
        self.step("network", || Ok(network::tear_down(instance, &mut state)?.join(", ")));
        if instance.data().exists() {
            self.step("runtime state", || purge::runtime_state(instance));
            state.save(instance)?;
        }
        if purge && !self.failed {
            self.step("data", || purge::purge_data(instance, &state));
        }
        Ok(())
    }

    /// Does one step; it says what it removed, or nothing. A failure does not keep the next from being tried.
    fn step(&mut self, name: &str, work: impl FnOnce() -> anyhow::Result<String>) {
        self.steps.begin(name);
        match work() {
            Ok(removed) if removed.is_empty() => self.steps.skip(),
            Ok(removed) => {
                self.removed = true;
                self.steps.done(&removed);
            }
            Err(error) => {
                self.failed = true;
                self.steps.failed(&error);
                crate::screen::error(&error);
            }
        }
    }
}

fn stop_ferry(instance: &ClusterInstance) -> anyhow::Result<String> {
    let Some(process) = pidfile::running_pid(instance) else { return Ok(String::new()) };
    process.terminate(GRACE).with_context(|| format!("cannot end pid {}", process.pid))?;
    Ok(format!("ended pid {}", process.pid))
}

fn stop_containerd(instance: &ClusterInstance) -> anyhow::Result<String> {
    let mut ended = Vec::new();
    if let Some(process) = containerd::process(instance) {
        process.terminate(GRACE).with_context(|| format!("cannot end containerd, pid {}", process.pid))?;
        ended.push("containerd".to_owned());
    }
    let shims = containerd::shims(instance);
    for shim in &shims {
        shim.kill().with_context(|| format!("cannot end the shim, pid {}", shim.pid))?;
    }
    if !shims.is_empty() {
        ended.push(format!("{} shims", shims.len()));
    }
    Ok(ended.join(", "))
}
