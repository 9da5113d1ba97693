//! `kubectl completion`: scripts that make shells ask the `__complete` command.

use crate::{errors::CommandResult, output::write_out, session::Session, usage::usage_error};

/// Prints the script of a shell.
pub fn run(session: &Session) -> CommandResult {
    let script = match session.arguments() {
        [] => return Err(usage_error(session, "Shell not specified.")),
        [shell] => match shell.as_str() {
            "bash" => include_str!("../completion/scripts/kubectl.bash"),
            "zsh" => include_str!("../completion/scripts/kubectl.zsh"),
            "fish" => include_str!("../completion/scripts/kubectl.fish"),
            "powershell" => include_str!("../completion/scripts/kubectl.ps1"),
            other => {
                let message = format!("Unsupported shell type {}.", api::json::go_quote(other));
                return Err(usage_error(session, &message));
            }
        },
        _ => return Err(usage_error(session, "Too many arguments. Expected only the shell type.")),
    };
    write_out(script);
    Ok(())
}
