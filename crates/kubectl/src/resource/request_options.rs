//! Options of changing requests: dry run, field manager, field validation.

use crate::{
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
    rest::RestRequest,
};

/// The value of `--dry-run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    /// Changes are made.
    #[default]
    None,
    /// No request is sent.
    Client,
    /// The server checks and answers, but stores nothing.
    Server,
}

impl DryRun {
    /// Reads `--dry-run`.
    pub fn from_flags(flags: &FlagSet) -> CommandResult<Self> {
        let value = flags.string("dry-run");
        match value.as_str() {
            "" | "none" => Ok(DryRun::None),
            "client" => Ok(DryRun::Client),
            "server" => Ok(DryRun::Server),
            "unchanged" => {
                warn_deprecated("--dry-run is deprecated and can be replaced with --dry-run=client.");
                Ok(DryRun::Client)
            }
            "true" | "1" | "t" | "T" | "TRUE" | "True" => {
                warn_deprecated(&format!(
                    "--dry-run={value} is deprecated (boolean value) and can be replaced with --dry-run=client."
                ));
                Ok(DryRun::Client)
            }
            "false" | "0" | "f" | "F" | "FALSE" | "False" => {
                warn_deprecated(&format!(
                    "--dry-run={value} is deprecated (boolean value) and can be replaced with --dry-run=none."
                ));
                Ok(DryRun::None)
            }
            other => Err(CommandError::new(format!(
                "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
            ))),
        }
    }

    /// The suffix of messages.
    pub fn suffix(self) -> &'static str {
        match self {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }
}

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// JSON patch.
    Json,
    /// JSON merge patch.
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// The content type.
    pub fn content_type(self) -> &'static str {
        match self {
            PatchKind::Json => "application/json-patch+json",
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Strategic => "application/strategic-merge-patch+json",
            PatchKind::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Options of a changing request.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// The dry run strategy.
    pub dry_run: DryRun,
    /// The field manager.
    pub field_manager: String,
    /// `Strict`, `Warn`, `Ignore` or empty.
    pub field_validation: String,
    /// Whether apply takes fields from other managers.
    pub force: bool,
}

impl RequestOptions {
    /// Adds the options to a request.
    pub fn apply_to(&self, request: RestRequest) -> RestRequest {
        let request = request
            .with_optional("fieldManager", &self.field_manager)
            .with_optional("fieldValidation", &self.field_validation);
        let request = if self.force { request.with_query("force", "true") } else { request };
        if self.dry_run == DryRun::Server { request.with_query("dryRun", "All") } else { request }
    }
}

/// Logs a warning about an old form of `--dry-run`.
fn warn_deprecated(text: &str) {
    crate::rest::log_line('W', "helpers.go:719", text);
}
