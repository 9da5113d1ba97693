//! What the flags say of the audit log: the policy file, the log and the webhook, with the same flags for either.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use apiserver::{Audit, AuditMode, AuditPolicy, BatchSettings, LogSettings, Truncation, WebhookSettings};

use super::{authentication::read, options::path};
use crate::flags::Given;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What is audited, and where that goes.
pub fn settings(given: &Given<'_>) -> anyhow::Result<Audit> {
    let policy = read(given, "audit-policy-file", AuditPolicy::parse)?;
    let (log, webhook) = (log(given)?, webhook(given)?);
    if policy.is_none() && (log.is_some() || webhook.is_some()) {
        tracing::warn!("no audit policy file provided, no events will be recorded");
    }
    Ok(Audit { policy, log, webhook })
}

fn log(given: &Given<'_>) -> anyhow::Result<Option<LogSettings>> {
    let Some(file) = given.text("audit-log-path") else { return Ok(None) };
    if let Some(format) = given.text("audit-log-format").filter(|format| format != "json") {
        bail!("--audit-log-format {format} is not supported: events are written as json");
    }
    let Shared { mode, batch, truncation } = Shared::of(given, "audit-log")?;
    let megabytes: u64 = number(given, "audit-log-maxsize")?;
    let days: u32 = number(given, "audit-log-maxage")?;
    Ok(Some(LogSettings {
        path: PathBuf::from(file),
        mode,
        batch,
        truncation,
        max_size: megabytes << 20,
        max_backups: number(given, "audit-log-maxbackup")?,
        max_age: DAY * days,
        compress: given.bool("audit-log-compress")?,
    }))
}

fn webhook(given: &Given<'_>) -> anyhow::Result<Option<WebhookSettings>> {
    const FILE: &str = "audit-webhook-config-file";
    let Some(file) = path(given, FILE) else { return Ok(None) };
    let endpoint = apiserver::from_kubeconfig(&file).with_context(|| format!("--{FILE} {}", file.display()))?;
    let Shared { mode, batch, truncation } = Shared::of(given, "audit-webhook")?;
    let pause = given.duration("audit-webhook-initial-backoff")?;
    Ok(Some(WebhookSettings { endpoint: Arc::new(endpoint), mode, batch, truncation, pause }))
}

/// What either output is told.
struct Shared {
    mode: AuditMode,
    batch: BatchSettings,
    truncation: Truncation,
}

impl Shared {
    fn of(given: &Given<'_>, output: &str) -> anyhow::Result<Self> {
        let flag = |name: &str| format!("{output}-{name}");
        if let Some(version) = given.text(&flag("version")).filter(|version| version != "audit.k8s.io/v1") {
            bail!("--{} {version}: invalid group version, allowed versions are [\"audit.k8s.io/v1\"]", flag("version"));
        }
        let mode = match given.text(&flag("mode")).as_deref() {
            Some("batch") => AuditMode::Batch,
            Some("blocking") => AuditMode::Blocking,
            Some("blocking-strict") => AuditMode::BlockingStrict,
            other => {
                let other = other.unwrap_or_default();
                bail!("--{} {other}: allowed modes are batch, blocking and blocking-strict", flag("mode"))
            }
        };
        let throttled = given.bool(&flag("batch-throttle-enable"))?;
        let throttle = (number(given, &flag("batch-throttle-qps"))?, number(given, &flag("batch-throttle-burst"))?);
        let batch = BatchSettings {
            buffer: number(given, &flag("batch-buffer-size"))?,
            size: number(given, &flag("batch-max-size"))?,
            wait: given.duration(&flag("batch-max-wait"))?,
            throttle: throttled.then_some(throttle),
        };
        if mode == AuditMode::Batch {
            ensure!(batch.buffer > 0, "invalid audit batch {output} buffer size 0, must be a positive number");
            ensure!(batch.size > 0, "invalid audit batch {output} max batch size 0, must be a positive number");
        }
        let truncation = Truncation {
            enabled: given.bool(&flag("truncate-enabled"))?,
            event: number(given, &flag("truncate-max-event-size"))?,
            batch: number(given, &flag("truncate-max-batch-size"))?,
        };
        Ok(Self { mode, batch, truncation })
    }
}

fn number<T: std::str::FromStr + Default>(given: &Given<'_>, flag: &str) -> anyhow::Result<T>
where
    T::Err: ToString,
{
    Ok(given.value(flag)?.unwrap_or_default())
}
