//! Pod security levels and versions, and how a namespace's labels select them.

use std::{cmp::Ordering, fmt};

use api::{Value, meta, validate::FieldError};

use crate::PluginError;

/// A pod security level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSecurityLevel {
    /// Unrestricted.
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Enforces current hardening practices.
    Restricted,
}

/// The version of the pod security standards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardsVersion {
    /// The newest version that this server supports; the default.
    Latest,
    /// Version 1.x.
    Minor(u32),
}

/// A level in a version, written `baseline:v1.30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelVersion {
    /// The level.
    pub level: PodSecurityLevel,
    /// The version.
    pub version: StandardsVersion,
}

/// The levels of the modes `enforce`, `audit` and `warn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSecurityPolicy {
    /// Violating pods are rejected.
    pub enforce: LevelVersion,
    /// Violating pods get an audit annotation.
    pub audit: LevelVersion,
    /// Clients get a warning for violating pods.
    pub warn: LevelVersion,
}

impl PodSecurityLevel {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl StandardsVersion {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let number = |text: &str| {
            let plain = text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| plain)
        };
        match (text, text.strip_prefix("v1.").and_then(number)) {
            ("latest", _) => Ok(Self::Latest),
            (_, Some(minor)) => Ok(Self::Minor(minor)),
            _ => Err("must be \"latest\" or \"v1.x\""),
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            PodSecurityLevel::Privileged => "privileged",
            PodSecurityLevel::Baseline => "baseline",
            PodSecurityLevel::Restricted => "restricted",
        };
        match self.version {
            StandardsVersion::Latest => write!(f, "{level}:latest"),
            StandardsVersion::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

impl LevelVersion {
    const PRIVILEGED: Self = Self { level: PodSecurityLevel::Privileged, version: StandardsVersion::Latest };

    /// Parses one mode of a configuration's defaults.
    fn from_defaults(defaults: &Value, mode: &str) -> Result<Self, PluginError> {
        let read = |field: &str, absent: &'static str| match meta::string_at(defaults, &[field]) {
            "" => absent.to_owned(),
            text => text.to_owned(),
        };
        let (level, version) = (read(mode, "privileged"), read(&format!("{mode}-version"), "latest"));
        let invalid = |field: String, value: &str, why| {
            PluginError::Config(format!("defaults.{field}: Invalid value: {value:?}: {why}"))
        };
        Ok(Self {
            level: PodSecurityLevel::parse(&level).map_err(|why| invalid(mode.to_owned(), &level, why))?,
            version: StandardsVersion::parse(&version)
                .map_err(|why| invalid(format!("{mode}-version"), &version, why))?,
        })
    }
}

impl PodSecurityPolicy {
    /// Parses the defaults of a configuration.
    pub fn from_config(config: &Value) -> Result<Self, PluginError> {
        let defaults = meta::value_at(config, &["defaults"]).unwrap_or(&Value::Null);
        let of = |mode: &str| LevelVersion::from_defaults(defaults, mode);
        Ok(Self { enforce: of("enforce")?, audit: of("audit")?, warn: of("warn")? })
    }

    /// Whether all modes are `privileged`.
    pub fn is_fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|bound| bound.level == PodSecurityLevel::Privileged)
    }

    /// Applies a namespace's labels to the defaults; returns the policy and the label errors. An invalid level is
    /// `restricted` for `enforce`, and `privileged` for `audit` and `warn`.
    pub fn with_namespace_labels(mut self, labels: &Value) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let enforced = read_level(labels, "enforce", &mut errors);
        if let Some(level) = enforced {
            self.enforce.level = level.unwrap_or(PodSecurityLevel::Restricted);
        }
        read_version(labels, "enforce", &mut self.enforce, &mut errors);
        if let Some(level) = read_level(labels, "audit", &mut errors) {
            self.audit.level = level.unwrap_or(PodSecurityLevel::Privileged);
        }
        read_version(labels, "audit", &mut self.audit, &mut errors);
        let warned = read_level(labels, "warn", &mut errors);
        if let Some(level) = warned {
            self.warn.level = level.unwrap_or(PodSecurityLevel::Privileged);
        }
        let versioned = read_version(labels, "warn", &mut self.warn, &mut errors);
        // Without a `warn` label, clients are warned at the enforced level.
        let stricter = self.enforce.level.cmp(&self.warn.level) == Ordering::Greater;
        if warned.is_none() && matches!(enforced, Some(Some(_))) && stricter {
            self.warn.level = self.enforce.level;
            if !versioned {
                self.warn.version = self.enforce.version;
            }
        }
        (self, errors)
    }
}

impl Default for PodSecurityPolicy {
    fn default() -> Self {
        Self { enforce: LevelVersion::PRIVILEGED, audit: LevelVersion::PRIVILEGED, warn: LevelVersion::PRIVILEGED }
    }
}

/// The label key of a mode, such as `enforce` or `enforce-version`.
pub fn mode_label(mode: &str) -> String {
    format!("pod-security.kubernetes.io/{mode}")
}

/// Reads a level label: `None` if it is absent, `Some(None)` if it is invalid.
fn read_level(labels: &Value, mode: &str, errors: &mut Vec<FieldError>) -> Option<Option<PodSecurityLevel>> {
    let text = meta::value_at(labels, &[&mode_label(mode)])?.as_str().unwrap_or_default();
    Some(PodSecurityLevel::parse(text).map_err(|why| errors.push(invalid_label(mode, text, why))).ok())
}

/// Reads a version label; returns whether it is present.
fn read_version(labels: &Value, mode: &str, bound: &mut LevelVersion, errors: &mut Vec<FieldError>) -> bool {
    let mode = format!("{mode}-version");
    let Some(text) = meta::value_at(labels, &[&mode_label(&mode)]).and_then(Value::as_str) else { return false };
    bound.version = StandardsVersion::parse(text).unwrap_or_else(|why| {
        errors.push(invalid_label(&mode, text, why));
        StandardsVersion::Latest
    });
    true
}

fn invalid_label(mode: &str, value: &str, why: &str) -> FieldError {
    FieldError::invalid(format!("metadata.labels[{}]", mode_label(mode)), value, why)
}
