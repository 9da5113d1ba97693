//! Help of commands that only have subcommands, and errors that point to a command's help.

use crate::{
    command_help::help_text,
    errors::{CommandError, CommandResult},
    output::{write_err, write_out},
    session::Session,
};

/// Runs a command that only has subcommands: prints its help to stderr.
pub fn run_parent_command(session: &Session) -> CommandResult {
    if !session.arguments().is_empty() {
        let words = session.arguments().join(" ");
        return Err(usage_error(session, &format!("unknown command {}", api::json::go_quote(&words))));
    }
    let text = help_text(session.command, &[]);
    // `rollout` alone writes its help to stdout.
    if session.command.path == "kubectl rollout" {
        write_out(&text);
    } else {
        write_err(&text);
    }
    Err(CommandError::Exit)
}

/// An error with a hint to the command's help.
pub fn usage_error(session: &Session, message: &str) -> CommandError {
    CommandError::new(format!("{message}\nSee '{} -h' for help and examples", session.command.path))
}
