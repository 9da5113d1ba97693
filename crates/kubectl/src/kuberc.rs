//! User preferences (`kuberc`): aliases and defaults of flags.

use crate::{errors::CommandResult, flag_set::FlagSet};

/// The preferences of the user.
#[derive(Clone, Debug, Default)]
pub struct Preferences {}

/// Loads the preferences that the arguments or the environment name.
pub fn load_preferences(_arguments: &[String]) -> CommandResult<Preferences> {
    Ok(Preferences::default())
}

impl Preferences {
    /// Replaces an alias by its command.
    pub fn expand_alias(&self, arguments: &[String]) -> Vec<String> {
        arguments.to_vec()
    }

    /// Sets flags that were not given.
    pub fn apply_defaults(&self, _path: &str, _flags: &mut FlagSet) -> CommandResult {
        Ok(())
    }
}
