//! `ferry status`: what runs, where things are, and what is wrong.

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, api::ListParams};
use sys::process::ProcessHandle;

use crate::{
    arguments::StatusArguments, containerd, instance::ClusterInstance, join, node_readiness, pidfile, pki,
    runtime_check, screen::StepScreen, state::InstanceState,
};

/// Time for a response of the API server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Certificates that end within this time are worth a word.
const SOON: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const NOT_RUNNING: u8 = 3;

/// Shows the state of a cluster.
pub fn run_status(arguments: StatusArguments) -> anyhow::Result<ExitCode> {
    let instance = ClusterInstance::at(&arguments.data_dir).context("--data-dir")?;
    let state = InstanceState::load(&instance)?;
    let mut report = StatusReport::default();
    let running = pidfile::running_pid(&instance);
    report.line("cluster", format!("{} in {}", instance.cluster_name(), instance.data().display()));
    match &running {
        Some(process) => report.line("ferry", describe(process)),
        None => report.problem("ferry", "not running", "start it with `ferry up`"),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        report.runtime(&instance, &state).await;
        if running.is_some() {
            report.cluster(&instance, &state).await;
        }
    });
    report.certificates(&instance);
    report.places(&instance, &state);
    report.problems.extend(state.warnings);
    report.show(running.is_some())
}

/// The report: facts, then problems.
#[derive(Default)]
struct StatusReport {
    lines: Vec<(&'static str, String)>,
    problems: Vec<String>,
}

impl StatusReport {
    fn line(&mut self, name: &'static str, text: impl Into<String>) {
        self.lines.push((name, text.into()));
    }

    fn problem(&mut self, name: &'static str, what: &str, remedy: &str) {
        self.line(name, what);
        self.problems.push(format!("{name}: {what}; {remedy}"));
    }

    async fn runtime(&mut self, instance: &ClusterInstance, state: &InstanceState) {
        let Some(endpoint) = &state.runtime_endpoint else { return };
        let process = if state.own_runtime { containerd::process(instance) } else { None };
        let who = process.map(|process| format!(", {}", describe(&process))).unwrap_or_default();
        let answer =
            async { Ok::<_, anyhow::Error>(runtime_check::connect_cri(endpoint).await?.fetch_version().await?) };
        match answer.await {
            Ok(version) => {
                let version = format!("{} {}", version.runtime_name, version.runtime_version);
                self.line("runtime", format!("{version} at {endpoint}{who}"));
            }
            Err(error) => {
                let remedy = if state.own_runtime { "`ferry up` starts it again" } else { "start it" };
                self.problem("runtime", &format!("does not answer at {endpoint}: {error:#}"), remedy);
            }
        }
    }

    async fn cluster(&mut self, instance: &ClusterInstance, state: &InstanceState) {
        let asked = tokio::time::timeout(PATIENCE, ask(instance, state)).await;
        match asked.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", PATIENCE.as_secs()))) {
            Ok((nodes, pods)) => {
                for node in &nodes {
                    self.node(node, state);
                }
                if nodes.is_empty() {
                    self.problem("node", "none has registered", "see the log");
                }
                let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
                let running = pods.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
                self.line("pods", format!("{running} of {} running", pods.len()));
            }
            Err(error) => self.problem("API server", &format!("does not answer: {error:#}"), "see the log"),
        }
    }

    fn node(&mut self, node: &Node, state: &InstanceState) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let here = if state.node_name.as_ref() == Some(&name) { ", this machine" } else { "" };
        match node_readiness::node_readiness(Some(node)) {
            (true, _) => self.line("node", format!("{name} Ready{here}")),
            (false, message) => self.problem("node", &format!("{name} not Ready: {message}"), "see the log"),
        }
    }

    fn certificates(&mut self, instance: &ClusterInstance) {
        match pki::certificate_expiries(&instance.pki()) {
            Err(error) => self.problem("certificates", &error.to_string(), ""),
            Ok(all) => {
                let Some((name, end)) = all.first() else { return };
                let text = format!("valid until {} ({name} ends first)", pidfile::format_time(*end));
                if *end < SystemTime::now() + SOON {
                    self.problem("certificates", &text, "`ferry down` and `ferry up` issue new ones");
                } else {
                    self.line("certificates", text);
                }
            }
        }
    }

    fn places(&mut self, instance: &ClusterInstance, state: &InstanceState) {
        if let (Some(file), Some(context)) = (&state.kubeconfig, &state.context) {
            self.line("kubeconfig", format!("{}, context {context}", file.display()));
        }
        if instance.log().exists() {
            self.line("log", instance.log().display().to_string());
        }
    }

    fn show(self, running: bool) -> anyhow::Result<ExitCode> {
        let screen = StepScreen::new();
        for (name, text) in &self.lines {
            screen.line(&format!("{} {text}", screen.paint("1", &format!("{name:<13}"))));
        }
        for problem in &self.problems {
            screen.warning(problem.trim_end_matches("; "));
        }
        Ok(match (running, self.problems.is_empty()) {
            (false, _) => ExitCode::from(NOT_RUNNING),
            (true, true) => ExitCode::SUCCESS,
            (true, false) => ExitCode::FAILURE,
        })
    }
}

async fn ask(instance: &ClusterInstance, state: &InstanceState) -> anyhow::Result<(Vec<Node>, Vec<Pod>)> {
    let client = match &state.joined_server {
        None => client::transport::client_from_kubeconfig(&instance.admin_kubeconfig()).await?,
        Some(server) => join::node_client(instance, server)?,
    };
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
    let pods = Api::<Pod>::all(client).list(&ListParams::default()).await?.items;
    Ok((nodes, pods))
}

fn describe(process: &ProcessHandle) -> String {
    let memory = process.resident_memory().map(|bytes| format!(", {} MB resident", bytes / 1_000_000));
    format!("pid {}, since {}{}", process.pid, pidfile::format_start_time(process), memory.unwrap_or_default())
}
