//! Which group-versions are served: what is stable, and what `--runtime-config` turns on or off.
//!
//! Paths of the others are not found, and discovery and OpenAPI do not show them.

use api::discovery;

/// The choices that were made, the most particular last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiResourceConfig {
    choices: Vec<(Choice, bool)>,
}

/// What a choice is about; the order is that of their weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    All,
    Stable,
    Beta,
    Alpha,
    Version(String, String),
}

/// A choice that makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing of that name.
    #[error(
        "{0:?} is no group and version of this server; use `group/version`, `v1`, `api/all`, `api/ga`, `api/beta` or `api/alpha`"
    )]
    Unknown(String),
    /// Neither true nor false.
    #[error("{0}={1:?} is neither true nor false")]
    Value(String, String),
}

impl ApiResourceConfig {
    /// Reads `api/beta=true,apps/v1=false`, given in pieces.
    pub fn of<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let mut choices = Vec::new();
        for (name, value) in given {
            let on = match value {
                "" | "true" => true,
                "false" => false,
                other => return Err(Error::Value(name.to_owned(), other.to_owned())),
            };
            choices.push((choice(name)?, on));
        }
        choices.sort();
        Ok(Self { choices })
    }

    /// With one more version of a group, unless somebody has chosen already.
    pub fn add(&mut self, group: &str, version: &str) {
        let choice = Choice::Version(group.to_owned(), version.to_owned());
        if !self.choices.iter().any(|(known, _)| *known == choice) {
            self.choices.push((choice, true));
        }
    }

    /// Whether a group-version is served.
    pub fn includes(&self, group: &str, version: &str) -> bool {
        let about = |choice: &Choice| match choice {
            Choice::All => true,
            Choice::Alpha => version.contains("alpha"),
            Choice::Beta => version.contains("beta"),
            Choice::Stable => discovery::enabled_by_default(group, version),
            Choice::Version(g, v) => g == group && v == version,
        };
        let chosen = self.choices.iter().rev().find(|(choice, _)| about(choice)).map(|(_, on)| *on);
        chosen.unwrap_or_else(|| discovery::enabled_by_default(group, version))
    }
}

fn choice(name: &str) -> Result<Choice, Error> {
    Ok(match name {
        "api/all" => Choice::All,
        "api/ga" => Choice::Stable,
        "api/beta" => Choice::Beta,
        "api/alpha" => Choice::Alpha,
        name => {
            let (group, version) = name.split_once('/').unwrap_or(("", name));
            let group = if group == "api" { "" } else { group };
            let known = discovery::served_group_versions(&|_, _| true).contains(&(group, version));
            if !known {
                return Err(Error::Unknown(name.to_owned()));
            }
            Choice::Version(group.to_owned(), version.to_owned())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, group: &str, version: &str) -> bool {
        let pieces = given.split(',').filter(|piece| !piece.is_empty());
        let pieces = pieces.map(|piece| piece.split_once('=').unwrap_or((piece, "")));
        ApiResourceConfig::of(pieces).unwrap().includes(group, version)
    }

    #[test]
    fn what_is_stable_is_served_and_the_particular_choice_wins() {
        assert!(check("", "apps", "v1"));
        assert!(!check("", "resource.k8s.io", "v1beta1"));
        assert!(check("api/beta=true", "resource.k8s.io", "v1beta1"));
        assert!(check("resource.k8s.io/v1beta1", "resource.k8s.io", "v1beta1"));
        assert!(!check("api/all=false,v1=true", "apps", "v1"));
        assert!(check("api/all=false,v1=true", "", "v1"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(ApiResourceConfig::of([("nope/v1", "true")]), Err(Error::Unknown("nope/v1".into())));
        assert_eq!(ApiResourceConfig::of([("apps/v1", "yes")]), Err(Error::Value("apps/v1".into(), "yes".into())));
    }
}
