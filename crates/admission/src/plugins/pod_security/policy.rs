//! Levels of pod security, and how a namespace's labels choose them.

use std::{cmp::Ordering, fmt};

use api::{Value, meta, validate::FieldError};

/// How much a pod may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    Privileged,
    /// What is not known to be dangerous.
    Baseline,
    /// What is known to be harmless.
    Restricted,
}

/// Which version of the rules; the newest where it is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Whatever this server knows.
    Latest,
    /// As of 1.x.
    Minor(u32),
}

/// A level in a version, written `baseline:v1.30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// How much.
    pub level: Level,
    /// By which rules.
    pub version: Version,
}

/// What is refused, noted and warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Pods beyond it are refused.
    pub enforce: Bound,
    /// Pods beyond it are noted in the audit.
    pub audit: Bound,
    /// Whoever creates pods beyond it is warned.
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

    /// Of a configuration's defaults.
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
    /// Of a configuration.
    pub fn defaults(config: &Value) -> Result<Self, String> {
        let defaults = meta::value_at(config, &["defaults"]).unwrap_or(&Value::Null);
        let of = |mode: &str| Bound::of(defaults, mode);
        Ok(Self { enforce: of("enforce")?, audit: of("audit")?, warn: of("warn")? })
    }

    /// Whether nothing is to be checked.
    pub fn is_free(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|bound| bound.level == Level::Privileged)
    }

    /// What a namespace's labels make of the defaults, and what is wrong with them. A label that cannot be read enforces the
    /// most, and notes and warns of nothing.
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
        // Who is about to be refused is at least warned in other words.
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

/// The label of a mode, such as `enforce` or `enforce-version`.
pub fn label(mode: &str) -> String {
    format!("pod-security.kubernetes.io/{mode}")
}

/// `None`: there is no such label; `Some(None)`: it cannot be read.
fn read_level(labels: &Value, mode: &str, faults: &mut Vec<FieldError>) -> Option<Option<Level>> {
    let text = meta::value_at(labels, &[&label(mode)])?.as_str().unwrap_or_default();
    Some(Level::parse(text).map_err(|why| faults.push(fault(mode, text, why))).ok())
}

/// Whether there is such a label.
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
