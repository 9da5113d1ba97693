//! The served group-versions: stable ones, and those that `--runtime-config` turns on or off.
//!
//! Other group-versions are not found, and are absent from discovery and OpenAPI.

use api::discovery;

/// The `--runtime-config` settings, the most specific last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiResourceConfig {
    overrides: Vec<(OverrideScope, bool)>,
}

/// The scope of an override, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OverrideScope {
    All,
    Stable,
    Beta,
    Alpha,
    Version(String, String),
}

/// An invalid `--runtime-config` entry.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// The group-version is unknown.
    #[error(
        "{0:?} is no group and version of this server; use `group/version`, `v1`, `api/all`, `api/ga`, `api/beta` or `api/alpha`"
    )]
    Unknown(String),
    /// The value is not a boolean.
    #[error("{0}={1:?} is neither true nor false")]
    InvalidValue(String, String),
}

impl ApiResourceConfig {
    /// Parses the entries of `--runtime-config`, such as `api/beta=true,apps/v1=false`.
    pub fn from_runtime_config<'a>(
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, RuntimeConfigError> {
        let mut overrides = Vec::new();
        for (name, value) in entries {
            let enabled = match value {
                "" | "true" => true,
                "false" => false,
                other => return Err(RuntimeConfigError::InvalidValue(name.to_owned(), other.to_owned())),
            };
            overrides.push((parse_scope(name)?, enabled));
        }
        overrides.sort();
        Ok(Self { overrides })
    }

    /// Enables a group-version, unless it is configured explicitly.
    pub fn enable_version(&mut self, group: &str, version: &str) {
        let scope = OverrideScope::Version(group.to_owned(), version.to_owned());
        if !self.overrides.iter().any(|(known, _)| *known == scope) {
            self.overrides.push((scope, true));
        }
    }

    /// Whether a group-version is served.
    pub fn includes(&self, group: &str, version: &str) -> bool {
        let matches = |scope: &OverrideScope| match scope {
            OverrideScope::All => true,
            OverrideScope::Alpha => version.contains("alpha"),
            OverrideScope::Beta => version.contains("beta"),
            OverrideScope::Stable => discovery::enabled_by_default(group, version),
            OverrideScope::Version(override_group, override_version) => {
                override_group == group && override_version == version
            }
        };
        let enabled = self.overrides.iter().rev().find(|(scope, _)| matches(scope)).map(|(_, enabled)| *enabled);
        enabled.unwrap_or_else(|| discovery::enabled_by_default(group, version))
    }
}

fn parse_scope(name: &str) -> Result<OverrideScope, RuntimeConfigError> {
    Ok(match name {
        "api/all" => OverrideScope::All,
        "api/ga" => OverrideScope::Stable,
        "api/beta" => OverrideScope::Beta,
        "api/alpha" => OverrideScope::Alpha,
        name => {
            let (group, version) = name.split_once('/').unwrap_or(("", name));
            let group = if group == "api" { "" } else { group };
            let known = discovery::served_group_versions(&|_, _| true).contains(&(group, version));
            if !known {
                return Err(RuntimeConfigError::Unknown(name.to_owned()));
            }
            OverrideScope::Version(group.to_owned(), version.to_owned())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_served(config: &str, group: &str, version: &str) -> bool {
        let pieces = config.split(',').filter(|piece| !piece.is_empty());
        let pieces = pieces.map(|piece| piece.split_once('=').unwrap_or((piece, "")));
        ApiResourceConfig::from_runtime_config(pieces).unwrap().includes(group, version)
    }

    #[test]
    fn most_specific_override_wins() {
        assert!(is_served("", "apps", "v1"));
        assert!(!is_served("", "resource.k8s.io", "v1beta1"));
        assert!(is_served("api/beta=true", "resource.k8s.io", "v1beta1"));
        assert!(is_served("resource.k8s.io/v1beta1", "resource.k8s.io", "v1beta1"));
        assert!(!is_served("api/all=false,v1=true", "apps", "v1"));
        assert!(is_served("api/all=false,v1=true", "", "v1"));
    }

    #[test]
    fn unknown_group_versions_and_values_are_rejected() {
        assert_eq!(
            ApiResourceConfig::from_runtime_config([("nope/v1", "true")]),
            Err(RuntimeConfigError::Unknown("nope/v1".into()))
        );
        assert_eq!(
            ApiResourceConfig::from_runtime_config([("apps/v1", "yes")]),
            Err(RuntimeConfigError::InvalidValue("apps/v1".into(), "yes".into()))
        );
    }
}
