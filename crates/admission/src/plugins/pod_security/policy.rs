//! Pod security levels and versions, and how a namespace's labels select them.

use std::{cmp::Ordering, fmt};

use api::{Value, meta, validate::FieldError};

/// A pod security level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Unrestricted.
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Enforces current hardening practices.
    Restricted,
}

/// The version of the pod security standards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest version that this server supports; the default.
    Latest,
    /// Version 1.x.
    Minor(u32),
}

/// A level in a version, written `baseline:v1.30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

/// The levels of the modes `enforce`, `audit` and `warn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Violating pods are rejected.
    pub enforce: Bound,
    /// Violating pods get an audit annotation.
    pub audit: Bound,
    /// Clients get a warning for violating pods.
    pub warn: Bound,
}

impl Level {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl Version {
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

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

impl Bound {
    const FREE: Self = Self { level: Level::Privileged, version: Version::Latest };

    /// Parses one mode of a configuration's defaults.
    fn of(defaults: &Value, mode: &str) -> Result<Self, String> {
        let read = |field: &str, absent: &'static str| match meta::string_at(defaults, &[field]) {
            "" => absent.to_owned(),
            text => text.to_owned(),
        };
        let (level, version) = (read(mode, "privileged"), read(&format!("{mode}-version"), "latest"));
        let invalid = |field: String, value: &str, why| format!("defaults.{field}: Invalid value: {value:?}: {why}");
        Ok(Self {
            level: Level::parse(&level).map_err(|why| invalid(mode.to_owned(), &level, why))?,
            version: Version::parse(&version).map_err(|why| invalid(format!("{mode}-version"), &version, why))?,
        })
    }
}

impl Policy {
    /// Parses the defaults of a configuration.
    pub fn defaults(config: &Value) -> Result<Self, String> {
        let defaults = meta::value_at(config, &["defaults"]).unwrap_or(&Value::Null);
        let of = |mode: &str| Bound::of(defaults, mode);
        Ok(Self { enforce: of("enforce")?, audit: of("audit")?, warn: of("warn")? })
    }

    /// Whether all modes are `privileged`.
    pub fn is_free(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|bound| bound.level == Level::Privileged)
    }

    /// Applies a namespace's labels to the defaults; returns the policy and the label errors. An invalid level is
    /// `restricted` for `enforce`, and `privileged` for `audit` and `warn`.
    pub fn of_labels(mut self, labels: &Value) -> (Self, Vec<FieldError>) {
        let mut faults = Vec::new();
        let enforced = read_level(labels, "enforce", &mut faults);
        if let Some(level) = enforced {
            self.enforce.level = level.unwrap_or(Level::Restricted);
        }
        read_version(labels, "enforce", &mut self.enforce, &mut faults);
        if let Some(level) = read_level(labels, "audit", &mut faults) {
            self.audit.level = level.unwrap_or(Level::Privileged);
        }
        read_version(labels, "audit", &mut self.audit, &mut faults);
        let warned = read_level(labels, "warn", &mut faults);
        if let Some(level) = warned {
            self.warn.level = level.unwrap_or(Level::Privileged);
        }
        let versioned = read_version(labels, "warn", &mut self.warn, &mut faults);
        // Without a `warn` label, clients are warned at the enforced level.
        let stricter = self.enforce.level.cmp(&self.warn.level) == Ordering::Greater;
        if warned.is_none() && matches!(enforced, Some(Some(_))) && stricter {
            self.warn.level = self.enforce.level;
            if !versioned {
                self.warn.version = self.enforce.version;
            }
        }
        (self, faults)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { enforce: Bound::FREE, audit: Bound::FREE, warn: Bound::FREE }
    }
}

/// The label key of a mode, such as `enforce` or `enforce-version`.
pub fn label(mode: &str) -> String {
    format!("pod-security.kubernetes.io/{mode}")
}

/// Reads a level label: `None` if it is absent, `Some(None)` if it is invalid.
fn read_level(labels: &Value, mode: &str, faults: &mut Vec<FieldError>) -> Option<Option<Level>> {
    let text = meta::value_at(labels, &[&label(mode)])?.as_str().unwrap_or_default();
    Some(Level::parse(text).map_err(|why| faults.push(fault(mode, text, why))).ok())
}

/// Reads a version label; returns whether it is present.
fn read_version(labels: &Value, mode: &str, bound: &mut Bound, faults: &mut Vec<FieldError>) -> bool {
    let mode = format!("{mode}-version");
    let Some(text) = meta::value_at(labels, &[&label(&mode)]).and_then(Value::as_str) else { return false };
    bound.version = Version::parse(text).unwrap_or_else(|why| {
        faults.push(fault(&mode, text, why));
        Version::Latest
    });
    true
}

fn fault(mode: &str, value: &str, why: &str) -> FieldError {
    FieldError::invalid(format!("metadata.labels[{}]", label(mode)), value, why)
}
