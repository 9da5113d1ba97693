//! Eviction or deletion of a node's pods, all at once, and waiting until they are gone.

use std::time::{Duration, Instant};

use api::{Value, json::go_quote};
use serde_json::json;

use super::wait_condition::WaitDeadline;
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of, namespace_of},
    outln,
    resource::DryRun,
    rest::RestRequest,
    session::Session,
};

const RETRY_DELAY: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The stage of a pod's eviction.
enum EvictionState {
    /// It is to be evicted.
    Evict,
    /// Its eviction was accepted.
    Leaving,
}

struct PodEviction {
    pod: Value,
    state: EvictionState,
    due: Instant,
}

/// Evicts or deletes pods.
pub fn remove_pods(session: &Session, pods: &[Value], dry_run: DryRun) -> CommandResult {
    let evicts = !session.flags.bool("disable-eviction");
    if dry_run == DryRun::Client {
        let word = if evicts { "evicting" } else { "deleting" };
        for pod in pods {
            outln!("{word} pod {}/{}{}", namespace_of(pod), name_of(pod), dry_run.suffix());
        }
        return Ok(());
    }
    let timeout = session.flags.duration("timeout");
    let deadline = WaitDeadline::after(if timeout == 0 { -1 } else { timeout });
    let drain = PodRemoval { session, dry_run, evicts, timeout, deadline };
    if evicts { drain.evict(pods) } else { drain.delete(pods) }
}

struct PodRemoval<'a> {
    session: &'a Session,
    dry_run: DryRun,
    evicts: bool,
    timeout: i64,
    deadline: WaitDeadline,
}

impl PodRemoval<'_> {
    fn delete(&self, pods: &[Value]) -> CommandResult {
        for pod in pods {
            match self.send_removal(pod) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        if self.dry_run != DryRun::None {
            return Ok(());
        }
        let mut pending: Vec<&Value> = pods.iter().collect();
        loop {
            let mut left = Vec::new();
            for pod in pending {
                if !self.is_gone(pod)? {
                    left.push(pod);
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            let Some(time) = self.deadline.left() else { crate::bail!("context deadline exceeded") };
            std::thread::sleep(time.min(POLL_INTERVAL));
            pending = left;
        }
    }

    /// Drives all evictions until none is left: a pod that a disruption budget protects does not hold up the others.
    fn evict(&self, pods: &[Value]) -> CommandResult {
        let start = |pod: &Value| PodEviction { pod: pod.clone(), state: EvictionState::Evict, due: Instant::now() };
        let mut pending: Vec<PodEviction> = pods.iter().map(start).collect();
        let mut errors = Vec::new();
        while !pending.is_empty() {
            let mut left = Vec::new();
            for mut eviction in pending {
                if eviction.due > Instant::now() {
                    left.push(eviction);
                    continue;
                }
                match self.advance(&mut eviction) {
                    Ok(true) => {}
                    Ok(false) => left.push(eviction),
                    Err(error) => errors.push(error),
                }
            }
            pending = left;
            if let Some(due) = pending.iter().map(|eviction| eviction.due).min() {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
        CommandError::join(errors)
    }

    /// Takes the next step with a pod; returns whether it is done.
    fn advance(&self, eviction: &mut PodEviction) -> CommandResult<bool> {
        let (namespace, name) = (namespace_of(&eviction.pod).to_owned(), name_of(&eviction.pod).to_owned());
        let place = format!("pods/{} -n {}", go_quote(&name), go_quote(&namespace));
        let shown = api::duration::format(self.timeout);
        if matches!(eviction.state, EvictionState::Leaving) {
            let waiting = |error: CommandError| {
                let pod = format!("pod {} in namespace {}", go_quote(&name), go_quote(&namespace));
                CommandError::new(format!("error when waiting for {pod} to terminate: {error}"))
            };
            if self.is_gone(&eviction.pod).map_err(waiting)? {
                return Ok(true);
            }
            if self.deadline.left().is_none() {
                return Err(waiting(CommandError::new(format!("global timeout reached: {shown}"))));
            }
            eviction.due = Instant::now() + POLL_INTERVAL;
            return Ok(false);
        }
        outln!("evicting pod {namespace}/{name}{}", self.dry_run.suffix());
        if self.deadline.left().is_none() {
            crate::bail!("error when evicting {place}: global timeout reached: {shown}");
        }
        match self.send_removal(&eviction.pod) {
            Ok(()) => {
                eviction.state = EvictionState::Leaving;
                return Ok(self.dry_run != DryRun::None);
            }
            Err(error) if error.is_not_found() => return Ok(true),
            Err(error) if error.reason() == "TooManyRequests" => {
                errln!("error when evicting {place} (will retry after 5s): {error}");
            }
            Err(error) if is_namespace_terminating(&error) => {
                if !eviction.pod.text("metadata.deletionTimestamp").is_empty() {
                    eviction.state = EvictionState::Leaving;
                    return Ok(self.dry_run != DryRun::None);
                }
                let pod = format!("pod {} from terminating namespace {}", go_quote(&name), go_quote(&namespace));
                errln!("error when evicting {pod} (will retry after 5s): {error}");
            }
            Err(error) => crate::bail!("error when evicting {place}: {error}"),
        }
        eviction.due = Instant::now() + RETRY_DELAY;
        if let Ok(pod) = self.session.client()?.send_json(RestRequest::get(pod_path(&eviction.pod))) {
            eviction.pod = pod;
        }
        Ok(false)
    }

    /// Whether the pod is gone or need not be waited for; says so.
    fn is_gone(&self, pod: &Value) -> CommandResult<bool> {
        let (done, failed) = if self.evicts { ("evicted", "eviction failed") } else { ("deleted", "deletion failed") };
        let name = name_of(pod);
        match self.session.client()?.send_json(RestRequest::get(pod_path(pod))) {
            Ok(found) if found.text("metadata.uid") == pod.text("metadata.uid") => {
                let limit = self.session.flags.int("skip-wait-for-delete-timeout");
                let skipped = limit > 0 && seconds_since(found.text("metadata.deletionTimestamp")) > limit;
                if skipped {
                    outln!("pod {} has DeletionTimestamp older than {limit} seconds, skipping", go_quote(name));
                }
                Ok(skipped)
            }
            Err(error) if !error.is_not_found() => {
                outln!("pod/{name} {failed}");
                Err(error)
            }
            _ => {
                outln!("pod/{name} {done}");
                Ok(true)
            }
        }
    }

    fn send_removal(&self, pod: &Value) -> CommandResult {
        let mut options = json!({});
        let grace = self.session.flags.int("grace-period");
        if grace >= 0 {
            options["gracePeriodSeconds"] = grace.into();
        }
        if self.dry_run == DryRun::Server {
            options["dryRun"] = json!(["All"]);
        }
        let path = pod_path(pod);
        let request = if self.evicts {
            let metadata = json!({"name": name_of(pod), "namespace": namespace_of(pod)});
            let body =
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options});
            RestRequest::new(http::Method::POST, format!("{path}/eviction")).with_json(&body)
        } else {
            options["kind"] = "DeleteOptions".into();
            options["apiVersion"] = "v1".into();
            RestRequest::new(http::Method::DELETE, path).with_json(&options)
        };
        self.session.client()?.send(request).map(drop)
    }
}

fn pod_path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", namespace_of(pod), name_of(pod))
}

fn is_namespace_terminating(error: &CommandError) -> bool {
    let CommandError::Status(status) = error else { return false };
    let causes = status.status.list("details.causes");
    error.reason() == "Forbidden" && causes.iter().any(|cause| cause.text("reason") == "NamespaceTerminating")
}

/// Seconds since a time; 0 if there is none.
fn seconds_since(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().map_or(0, |time| jiff::Timestamp::now().as_second() - time.as_second())
}
