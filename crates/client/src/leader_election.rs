//! Leader election over `coordination.k8s.io/v1` Leases, with client-go's timings and semantics.
//!
//! A candidate that holds the lease renews it every [`LeaderElectionConfig::retry_period`]; one that cannot renew within
//! the renew deadline stops leading. Another candidate takes the lease over once it has *observed* no renewal for the
//! lease duration, by its own clock: clock skew between candidates is harmless. Candidates read the lease several times in
//! a retry period, which upstream's do not: so a dead leader is replaced right after its lease has ended.
//!
//! # Guarantees
//! - At most one candidate leads at a time, as long as clocks run at about the same rate.
//! - A lease that does not exist, was released, or is held by this identity is acquired at once. [`stable_identity`]
//!   keeps the identity across restarts, so a restarted instance does not wait, even after `kill -9`.
//! - The lease is released after the led work has ended, so that the next leader never overlaps with it.
//! - Clients of the led work that are guarded by [`LeaderElector::fence`] write nothing once another candidate may lead.

use std::{fs, io, path::Path, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{errors::ApiErrorExt, event_recorder::EventRecorder, leader_fence::LeaderFence, metrics};

/// Reads of the lease in a retry period while another candidate holds it.
const READS_PER_RETRY_PERIOD: u32 = 4;
/// Upper bound of the random addition to the time between these reads, as a fraction of it.
const JITTER_FACTOR: f64 = 0.2;

/// First delay after a failed request while acquiring, doubled up to the retry period: a cluster that is starting up may
/// not have the namespace yet, and a single candidate should not wait a whole retry period for it.
const INITIAL_ERROR_DELAY: Duration = Duration::from_millis(50);

/// Configuration of a leader election; the defaults of the durations are upstream's.
#[derive(Clone, Debug)]
pub struct LeaderElectionConfig {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Identity of this candidate, unique among candidates.
    pub identity: String,
    /// Time without an observed renewal after which another candidate may take the lease.
    pub lease_duration: Duration,
    /// Time within which the leader must renew before it stops leading.
    pub renew_deadline: Duration,
    /// Interval between attempts to acquire or renew.
    pub retry_period: Duration,
}

impl LeaderElectionConfig {
    /// Creates a configuration for a lease in `kube-system` with upstream's durations: 15 s, 10 s and 2 s.
    pub fn new(name: &str, identity: &str) -> Self {
        Self {
            namespace: "kube-system".into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Returns the identity stored in `path`, creating `<host>_<random>` on first use.
///
/// The identity belongs to the instance whose data directory contains the file. Only one process may use it at a time:
/// candidates with the same identity do not exclude each other.
pub fn stable_identity(path: &Path, host: &str) -> io::Result<String> {
    match fs::read_to_string(path) {
        Ok(identity) if !identity.trim().is_empty() => return Ok(identity.trim().into()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let identity = new_identity(host);
    fs::write(path, &identity)?;
    Ok(identity)
}

/// Returns a new identity `<host>_<random>`.
pub fn new_identity(host: &str) -> String {
    format!("{host}_{:032x}", fastrand::u128(..))
}

/// A candidate of a leader election.
pub struct LeaderElector {
    leases: Api<Lease>,
    recorder: EventRecorder,
    config: LeaderElectionConfig,
    /// The last read or written lease, and when its spec was first observed by the local clock.
    observed: Option<(Lease, Instant)>,
    fence: LeaderFence,
}

impl LeaderElector {
    /// Creates a candidate; `component` is the source of its events.
    pub fn new(client: Client, component: &str, config: LeaderElectionConfig) -> Self {
        metrics::set_leader_status(&config.name, false);
        Self {
            leases: Api::namespaced(client.clone(), &config.namespace),
            recorder: EventRecorder::new(client, component, None),
            config,
            observed: None,
            fence: LeaderFence::default(),
        }
    }

    /// The fence that guards the clients of the led work.
    pub fn fence(&self) -> LeaderFence {
        self.fence.clone()
    }

    /// The name of the lease and its fence, for a health check.
    pub fn health(&self) -> (String, LeaderFence) {
        (self.config.name.clone(), self.fence())
    }

    /// Runs `lead` whenever this candidate is the leader, until `shutdown`. Its token is cancelled when leadership is
    /// lost or at shutdown; it must then stop its work and return. Returns early if `lead` returns by itself.
    pub async fn run<F, Fut>(mut self, shutdown: CancellationToken, lead: F)
    where
        F: Fn(CancellationToken) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        while shutdown.run_until_cancelled(self.acquire()).await.is_some() {
            self.report_transition("became leader", true);
            let term = CancellationToken::new();
            let mut work = tokio::spawn(lead(term.clone()));
            let ended = tokio::select! {
                ended = &mut work => Some(ended),
                () = self.renew_until_lost() => None,
                () = shutdown.cancelled() => None,
            };
            let returned_early = ended.is_some();
            term.cancel();
            if ended.is_none() {
                self.wait_for_work(work).await;
            }
            self.fence.close();
            self.report_transition("stopped leading", false);
            self.release().await;
            if returned_early {
                return;
            }
        }
    }

    /// Waits for the cancelled work to end, renewing the lease meanwhile.
    async fn wait_for_work(&mut self, mut work: tokio::task::JoinHandle<()>) {
        let ended = tokio::select! {
            ended = &mut work => ended,
            () = self.renew_until_lost() => work.await,
        };
        if let Err(error) = ended {
            tracing::error!(lease = self.config.name, %error, "leader election: led work panicked");
        }
    }

    /// Waits until the lease is acquired.
    async fn acquire(&mut self) {
        let mut error_delay = INITIAL_ERROR_DELAY;
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {
                    error_delay = INITIAL_ERROR_DELAY;
                    let period = self.config.retry_period / READS_PER_RETRY_PERIOD;
                    let delay = period.mul_f64(1.0 + JITTER_FACTOR * fastrand::f64());
                    tokio::time::sleep(delay.min(self.remaining_lease())).await;
                }
                Err(error) => {
                    self.log_failure(&error);
                    tokio::time::sleep(error_delay).await;
                    error_delay = (error_delay * 2).min(self.config.retry_period);
                }
            }
        }
    }

    /// Renews the lease periodically; returns once it was not renewed within the renew deadline.
    async fn renew_until_lost(&mut self) {
        loop {
            tokio::time::sleep(self.config.retry_period).await;
            if tokio::time::timeout(self.config.renew_deadline, self.renew()).await.is_err() {
                tracing::warn!(lease = self.config.name, "leader election: lease not renewed in time, stopping");
                return;
            }
            if !self.is_leader() {
                return;
            }
        }
    }

    /// Retries until the lease is renewed or held by another candidate.
    async fn renew(&mut self) {
        while !self.try_acquire_or_renew().await && self.is_leader() {
            tokio::time::sleep(self.config.retry_period).await;
        }
    }

    /// Makes one attempt, logging a failure; returns whether this candidate holds the lease.
    async fn try_acquire_or_renew(&mut self) -> bool {
        match self.attempt().await {
            Ok(leads) => leads,
            Err(error) => {
                self.log_failure(&error);
                false
            }
        }
    }

    /// Logs a failed request; a conflict means that another candidate was faster.
    fn log_failure(&self, error: &kube::Error) {
        if !error.is_conflict() && !error.is_already_exists() {
            tracing::warn!(lease = self.config.name, %error, "leader election: lease request failed, retrying");
        }
    }

    /// Acquires or renews the lease; `false` if another candidate holds it.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        // The holder of a valid lease updates it without reading it first, as client-go does.
        if self.is_leader()
            && self.is_lease_valid()
            && let Some((lease, _)) = self.observed.clone()
            && self.write(lease).await.is_ok()
        {
            return Ok(true);
        }
        let Some(lease) = self.leases.get_opt(&self.config.name).await? else {
            let spec = self.new_spec(None);
            let metadata = ObjectMeta { name: Some(self.config.name.clone()), ..Default::default() };
            let lease = Lease { metadata, spec: Some(spec) };
            let sent = Instant::now();
            let created = self.leases.create(&PostParams::default(), &lease).await?;
            self.fence.open_until(sent + self.config.lease_duration);
            self.observe(created);
            return Ok(true);
        };
        self.observe(lease.clone());
        let holder = holder(&lease);
        if !holder.is_empty() && !self.is_leader() && self.is_lease_valid() {
            return Ok(false);
        }
        self.write(lease).await?;
        Ok(true)
    }

    async fn write(&mut self, mut lease: Lease) -> Result<(), kube::Error> {
        lease.spec = Some(self.new_spec(lease.spec.as_ref()));
        let sent = Instant::now();
        let written = self.leases.replace(&self.config.name, &PostParams::default(), &lease).await?;
        self.fence.open_until(sent + self.config.lease_duration);
        self.observe(written);
        Ok(())
    }

    /// Builds the spec to write over `old`: a renewal keeps the acquire time, a transition is counted.
    fn new_spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mut spec = old.cloned().unwrap_or_default();
        let transitions = spec.lease_transitions.unwrap_or(0);
        let is_renewal = spec.holder_identity.as_deref() == Some(&self.config.identity);
        if !is_renewal {
            spec.acquire_time = Some(now.clone());
        }
        spec.lease_transitions = Some(if is_renewal || old.is_none() { transitions } else { transitions + 1 });
        spec.holder_identity = Some(self.config.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.config.lease_duration.as_secs()).ok();
        spec.renew_time = Some(now);
        spec
    }

    /// Records a lease. The observation time changes only with the spec, so that another clock's times do not matter.
    fn observe(&mut self, lease: Lease) {
        let at = match &self.observed {
            Some((known, at)) if known.spec == lease.spec => *at,
            _ => Instant::now(),
        };
        self.observed = Some((lease, at));
    }

    fn is_leader(&self) -> bool {
        self.observed.as_ref().is_some_and(|(lease, _)| holder(lease) == self.config.identity)
    }

    /// Whether the observed holder may still lead.
    fn is_lease_valid(&self) -> bool {
        !self.remaining_lease().is_zero()
    }

    /// The time for which the observed holder may still lead.
    fn remaining_lease(&self) -> Duration {
        let Some((lease, at)) = &self.observed else { return Duration::ZERO };
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(at.elapsed())
    }

    /// Clears the holder, if this candidate still is, so that the next one need not wait.
    async fn release(&mut self) {
        let Some((mut lease, _)) = self.observed.clone().filter(|_| self.is_leader()) else { return };
        let now = Some(MicroTime(Timestamp::now()));
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: now.clone(),
            renew_time: now,
            lease_transitions: lease.spec.and_then(|spec| spec.lease_transitions),
            ..Default::default()
        });
        match self.leases.replace(&self.config.name, &PostParams::default(), &lease).await {
            Ok(released) => self.observe(released),
            Err(error) => tracing::warn!(lease = self.config.name, %error, "leader election: lease not released"),
        }
    }

    fn report_transition(&self, what: &str, is_leader: bool) {
        let LeaderElectionConfig { namespace, name, identity, .. } = &self.config;
        tracing::info!(lease = name, identity, "leader election: {what}");
        metrics::set_leader_status(name, is_leader);
        let lease = self.observed.as_ref().map(|(lease, _)| &lease.metadata);
        let reference = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".into()),
            kind: Some("Lease".into()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: lease.and_then(|lease| lease.uid.clone()),
            ..Default::default()
        };
        self.recorder.record_normal(reference, "LeaderElection", format!("{identity} {what}"));
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or("")
}

#[cfg(test)]
mod tests;
