//! Commands that are upstream components: `ferry kube-apiserver`, `ferry kube-controller-manager`, ….
//!
//! Each has a table of upstream's flags. Help, version, logging, the list of flags without effect and the exit code are
//! the same for all.

use std::process::ExitCode;

use crate::{
    flags::{FlagTable, ParsedFlags},
    log, screen,
};

/// An upstream component that this binary runs by name.
pub struct ComponentCommand {
    /// Upstream's name.
    pub name: &'static str,
    /// The first paragraph of `--help`.
    pub about: &'static str,
    /// The table of flags.
    pub flags: &'static str,
}

impl ComponentCommand {
    /// Parses the arguments and calls `run` with them, unless they ask for help or the version.
    pub fn run(
        &self,
        arguments: impl IntoIterator<Item = String>,
        run: impl FnOnce(&ParsedFlags<'_>) -> anyhow::Result<()>,
    ) -> ExitCode {
        match self.try_run(arguments, run) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                screen::error(&error);
                ExitCode::FAILURE
            }
        }
    }

    fn try_run(
        &self,
        arguments: impl IntoIterator<Item = String>,
        run: impl FnOnce(&ParsedFlags<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let table = FlagTable::parse(self.flags);
        let given = table.read(arguments)?;
        if given.is_given("help") {
            screen::StepScreen::new().line(table.help(self.name, self.about).trim_end());
            return Ok(());
        }
        if given.is_given("version") {
            screen::StepScreen::new().line(&format!("Kubernetes {}+ferry", api::KUBERNETES_VERSION));
            return Ok(());
        }
        run(&given)
    }
}

/// Starts logging and names the given flags that have no effect.
pub fn start_logging(given: &ParsedFlags<'_>) -> anyhow::Result<()> {
    log::init_logging(given.value("v")?.unwrap_or_default());
    let without_effect = given.without_effect();
    if !without_effect.is_empty() {
        tracing::warn!(flags = without_effect.join(" "), "these flags have no effect");
    }
    Ok(())
}
