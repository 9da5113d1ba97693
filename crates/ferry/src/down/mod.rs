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
    cli::Down,
    containerd,
    instance::Instance,
    network,
    pidfile::{self, Lock},
    preflight,
    refusal::refusal,
    screen::Screen,
    state::State,
    steps::Steps,
};

/// How long ferry and its containerd may take to end by themselves.
const GRACE: Duration = Duration::from_secs(10);

/// Takes a cluster down.
pub fn down(arguments: Down) -> anyhow::Result<ExitCode> {
    preflight::root()?;
    let instance = Instance::at(&arguments.data_dir).context("--data-dir")?;
    if instance.data().exists() && !instance.is_cluster()? && instance.data().read_dir()?.next().is_some() {
        return Err(refusal(
            format!("{} is not a cluster of ferry's", instance.data().display()),
            "Name the cluster's own directory with --data-dir.",
        ));
    }
    let mut take_down = TakeDown { steps: Steps::on_terminal(), removed: false, failed: false };
    take_down.everything(&instance, arguments.purge)?;
    let screen = Screen::new();
    match (take_down.failed, take_down.removed) {
        (true, _) => bail!("not everything could be removed; `ferry down` can be repeated"),
        (false, false) => screen.line("Nothing is up."),
        (false, true) => screen.line(&format!("\nThe cluster is down after {:.2} s.", take_down.steps.seconds())),
    }
    Ok(ExitCode::SUCCESS)
}

/// The way down so far.
struct TakeDown {
    steps: Steps,
    /// Something was there.
    removed: bool,
    /// Something is still there.
    failed: bool,
}

impl TakeDown {
    fn everything(&mut self, instance: &Instance, purge: bool) -> anyhow::Result<()> {
        self.step("ferry", || stop_ferry(instance));
        if self.failed {
            bail!("ferry still runs; nothing else was touched");
        }
        // Nobody can start the cluster while it is taken down.
        let lock = if instance.data().exists() { Lock::take(instance)? } else { None };
        if lock.is_none() && instance.data().exists() {
            return Err(preflight::already_running(instance));
        }
        // A damaged state must not keep anybody from cleaning up.
        let mut state = State::load(instance).unwrap_or_default();
        self.step("pods", || sandboxes::remove(instance, &state));
        self.step("container runtime", || stop_containerd(instance));
        self.step("control groups", || cgroups::remove(&instance.cgroup()));
        self.step("mounts", || mounts::unmount_under(instance.data()));
        self.step("network", || Ok(network::tear_down(instance, &mut state)?.join(", ")));
        if instance.data().exists() {
            self.step("runtime state", || purge::runtime_state(instance));
            state.save(instance)?;
        }
        if purge && !self.failed {
            self.step("data", || purge::data(instance, &state));
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

fn stop_ferry(instance: &Instance) -> anyhow::Result<String> {
    let Some(process) = pidfile::running(instance) else { return Ok(String::new()) };
    process.terminate(GRACE).with_context(|| format!("cannot end pid {}", process.pid))?;
    Ok(format!("ended pid {}", process.pid))
}

fn stop_containerd(instance: &Instance) -> anyhow::Result<String> {
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
