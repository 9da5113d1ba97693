//! Audit flags: the policy file, and the log and webhook backends, which share most flags.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use apiserver::{
    AuditMode, AuditOptions, AuditPolicy, BatchConfig, LogBackendConfig, TruncateConfig, WebhookBackendConfig,
};

use super::flag_files::{flag_path, read_flag_file};
use crate::flags::ParsedFlags;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Builds the audit options.
pub fn audit_options(given: &ParsedFlags<'_>) -> anyhow::Result<AuditOptions> {
    let policy = read_flag_file(given, "audit-policy-file", AuditPolicy::parse)?;
    let (log, webhook) = (log_options(given)?, webhook_options(given)?);
    if policy.is_none() && (log.is_some() || webhook.is_some()) {
        tracing::warn!("no audit policy file provided, no events will be recorded");
    }
    Ok(AuditOptions { policy, log, webhook })
}

fn log_options(given: &ParsedFlags<'_>) -> anyhow::Result<Option<LogBackendConfig>> {
    let Some(file) = given.text("audit-log-path") else { return Ok(None) };
    if let Some(format) = given.text("audit-log-format").filter(|format| format != "json") {
        bail!("--audit-log-format {format} is not supported: events are written as json");
    }
    let SinkOptions { mode, batch, truncation } = SinkOptions::from_flags(given, "audit-log")?;
    let megabytes: u64 = parse_number(given, "audit-log-maxsize")?;
    let days: u32 = parse_number(given, "audit-log-maxage")?;
    Ok(Some(LogBackendConfig {
        path: PathBuf::from(file),
        mode,
        batch,
        truncation,
        max_size: megabytes << 20,
        max_backups: parse_number(given, "audit-log-maxbackup")?,
        max_age: DAY * days,
        compress: given.bool("audit-log-compress")?,
    }))
}

fn webhook_options(given: &ParsedFlags<'_>) -> anyhow::Result<Option<WebhookBackendConfig>> {
    const FILE: &str = "audit-webhook-config-file";
    let Some(file) = flag_path(given, FILE) else { return Ok(None) };
    let endpoint =
        apiserver::endpoint_from_kubeconfig(&file).with_context(|| format!("--{FILE} {}", file.display()))?;
    let SinkOptions { mode, batch, truncation } = SinkOptions::from_flags(given, "audit-webhook")?;
    let pause = given.duration("audit-webhook-initial-backoff")?;
    Ok(Some(WebhookBackendConfig { endpoint: Arc::new(endpoint), mode, batch, truncation, pause }))
}

/// Options that both backends have.
struct SinkOptions {
    mode: AuditMode,
    batch: BatchConfig,
    truncation: TruncateConfig,
}

impl SinkOptions {
    fn from_flags(given: &ParsedFlags<'_>, output: &str) -> anyhow::Result<Self> {
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
        let throttle =
            (parse_number(given, &flag("batch-throttle-qps"))?, parse_number(given, &flag("batch-throttle-burst"))?);
        let batch = BatchConfig {
            buffer: parse_number(given, &flag("batch-buffer-size"))?,
            size: parse_number(given, &flag("batch-max-size"))?,
            wait: given.duration(&flag("batch-max-wait"))?,
            throttle: throttled.then_some(throttle),
        };
        if mode == AuditMode::Batch {
            ensure!(batch.buffer > 0, "invalid audit batch {output} buffer size 0, must be a positive number");
            ensure!(batch.size > 0, "invalid audit batch {output} max batch size 0, must be a positive number");
        }
        let truncation = TruncateConfig {
            enabled: given.bool(&flag("truncate-enabled"))?,
            event: parse_number(given, &flag("truncate-max-event-size"))?,
            batch: parse_number(given, &flag("truncate-max-batch-size"))?,
        };
        Ok(Self { mode, batch, truncation })
    }
}

fn parse_number<T: std::str::FromStr + Default>(given: &ParsedFlags<'_>, flag: &str) -> anyhow::Result<T>
where
    T::Err: ToString,
{
    Ok(given.value(flag)?.unwrap_or_default())
}
