//! Which groups and versions are served: those that are stable, and what `--runtime-config` adds or takes away.

use std::collections::BTreeMap;

use api::discovery;

/// The choice of an administrator; empty: upstream's.
#[derive(Clone, Debug, Default)]
pub struct Served {
    choices: BTreeMap<String, bool>,
}

/// A choice that means nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not group/version=true|false, api/all, api/ga, api/beta or api/alpha")]
pub struct NotAChoice(String);

impl Served {
    /// Reads `group/version=true` and the like.
    pub fn parse<'a>(choices: impl IntoIterator<Item = &'a str>) -> Result<Self, NotAChoice> {
        let mut served = Self::default();
        for choice in choices {
            let (name, value) = choice.split_once('=').unwrap_or((choice, "true"));
            let value = match value {
                "" | "true" => true,
                "false" => false,
                _ => return Err(NotAChoice(choice.to_owned())),
            };
            if !served.is_known(name) {
                return Err(NotAChoice(choice.to_owned()));
            }
            served.choices.insert(name.to_owned(), value);
        }
        Ok(served)
    }

    fn is_known(&self, name: &str) -> bool {
        let of_group = |(group, version): (&str, &str)| match group {
            "" => name == version,
            group => name == format!("{group}/{version}"),
        };
        matches!(name, "api/all" | "api/ga" | "api/beta" | "api/alpha")
            || discovery::group_versions(&|_, _| true).into_iter().any(of_group)
    }

    /// Whether a group and version is served.
    pub fn has(&self, group: &str, version: &str) -> bool {
        let own = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let stage = match version {
            beta if beta.contains("beta") => "api/beta",
            alpha if alpha.contains("alpha") => "api/alpha",
            _ => "api/ga",
        };
        let choice = [own.as_str(), stage, "api/all"].into_iter().find_map(|name| self.choices.get(name));
        choice.copied().unwrap_or_else(|| discovery::enabled_by_default(group, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_choice_counts() {
        let served = Served::parse(["api/all=false", "api/beta=true", "apps/v1=true", "v1"]).unwrap();
        assert!(served.has("apps", "v1") && served.has("", "v1") && served.has("networking.k8s.io", "v1beta1"));
        assert!(!served.has("batch", "v1") && !served.has("resource.k8s.io", "v1alpha3"));
        let usual = Served::default();
        assert!(usual.has("autoscaling", "v2") && !usual.has("networking.k8s.io", "v1beta1"));
        assert!(Served::parse(["nope/v1=true"]).is_err() && Served::parse(["v1=maybe"]).is_err());
    }
}
