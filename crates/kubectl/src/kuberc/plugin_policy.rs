//! Which credential plug-ins may run.

use api::json::go_quote;

use super::preference_file::{AllowlistEntry, Preference};
use crate::{errors::CommandResult, plugins::find_program};

/// Which credential plug-ins may run.
#[derive(Clone, Debug, Default)]
pub struct PluginPolicy {
    policy: String,
    allowlist: Option<Vec<AllowlistEntry>>,
}

impl PluginPolicy {
    /// The policy of a preference.
    pub fn from_preference(preference: &Preference) -> Self {
        PluginPolicy {
            policy: preference.credential_plugin_policy.clone(),
            allowlist: preference.credential_plugin_allowlist.clone(),
        }
    }

    /// Checks that policy and list fit together.
    pub fn check(&self) -> CommandResult {
        match self.policy.as_str() {
            "" | "AllowAll" | "DenyAll" if self.allowlist.is_none() => Ok(()),
            "" | "AllowAll" | "DenyAll" => crate::bail!(
                "misconfigured credential plugin allowlist: plugin policy is {} but allowlist is non-nil",
                go_quote(&self.policy)
            ),
            "Allowlist" => self.check_allowlist(),
            other => crate::bail!("unknown plugin policy: {}", go_quote(other)),
        }
    }

    fn check_allowlist(&self) -> CommandResult {
        let Some(list) = &self.allowlist else {
            crate::bail!("credential plugin policy set to \"Allowlist\", but allowlist is unspecified");
        };
        if list.is_empty() {
            crate::bail!(
                "credential plugin policy set to \"Allowlist\", but allowlist is empty; use \"DenyAll\" policy instead"
            );
        }
        for (at, entry) in list.iter().enumerate() {
            if *entry == AllowlistEntry::default() {
                crate::bail!("misconfigured credential plugin allowlist: empty allowlist entry #{}", at + 1);
            }
            let cleaned = crate::files::clean_path(std::path::Path::new(&entry.command));
            let cleaned = cleaned.to_string_lossy();
            if cleaned != entry.command {
                crate::bail!("non-normalized file path: {} vs {}", go_quote(&entry.command), go_quote(&cleaned));
            }
        }
        Ok(())
    }

    /// Whether a plug-in may run; the error says why not.
    pub fn check_plugin(&self, command: &str) -> CommandResult {
        match self.policy.as_str() {
            "DenyAll" => crate::bail!("plugin {} not allowed: policy set to \"DenyAll\"", go_quote(command)),
            "Allowlist" => {
                let entries = || self.allowlist.iter().flatten();
                if entries().any(|entry| entry.command == command) {
                    return Ok(());
                }
                let quoted = go_quote(command);
                let Some(path) = find_program(command) else {
                    crate::bail!(
                        "plugin path {quoted} cannot be resolved for credential plugin allowlist check: exec: {quoted}: \
                         executable file not found in $PATH"
                    );
                };
                if entries().any(|entry| find_program(&entry.command).as_ref() == Some(&path)) {
                    return Ok(());
                }
                let shown = go_quote(&path.to_string_lossy());
                crate::bail!("plugin path {shown} is not permitted by the credential plugin allowlist")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(policy: &str, commands: Option<&[&str]>) -> PluginPolicy {
        let entry = |command: &&str| AllowlistEntry { command: (*command).to_owned(), ..Default::default() };
        PluginPolicy { policy: policy.into(), allowlist: commands.map(|all| all.iter().map(entry).collect()) }
    }

    #[test]
    fn only_listed_plugins_run() {
        let listed = policy("Allowlist", Some(&["/bin/sh", "helper"]));
        listed.check().unwrap();
        listed.check_plugin("/bin/sh").unwrap();
        listed.check_plugin("helper").unwrap();
        assert!(listed.check_plugin("/bin/other").is_err());
        assert!(policy("DenyAll", None).check_plugin("x").is_err());
        policy("", None).check_plugin("x").unwrap();
    }

    #[test]
    fn misspelt_policies_are_rejected() {
        for wrong in [
            policy("Some", None),
            policy("AllowAll", Some(&[])),
            policy("Allowlist", None),
            policy("Allowlist", Some(&["./a"])),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
