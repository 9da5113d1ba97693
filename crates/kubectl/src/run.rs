//! From arguments to an exit code: finds the command, parses its flags, runs it and reports its error.

use crate::{
    command_help::{help_text, usage_text},
    command_table::{CommandDefinition, command_table},
    commands, completion,
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
    kuberc,
    output::{write_err, write_out},
    plugins,
    session::Session,
    suggestions::{find_command, first_positional, unknown_command},
};

/// Runs `kubectl` with the arguments after its name; returns the exit code.
pub fn run_command(arguments: &[String]) -> i32 {
    // Fails only if a provider is installed already, and then there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match execute(arguments) {
        Ok(()) => 0,
        Err(error) => report_error(&error),
    }
}

/// Prints an error; returns its exit code.
fn report_error(error: &CommandError) -> i32 {
    let (mut text, code) = error.report();
    if !text.is_empty() {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        write_err(&text);
    }
    code
}

fn execute(arguments: &[String]) -> CommandResult {
    let preferences = kuberc::load_preferences(arguments).map_err(report_preferences)?;
    let expansion = preferences.expand_alias(arguments).map_err(report_preferences)?;
    let arguments = &expansion.arguments;
    if matches!(arguments.first().map(String::as_str), Some("__complete" | "__completeNoDesc")) {
        return completion::complete_arguments(&arguments[1..], arguments[0] == "__complete");
    }
    let found = find_command(arguments).ok_or(CommandError::Exit)?;
    plugins::run_plugin_for(arguments, &found)?;
    if found.command.path == "kubectl"
        && let Some(word) = first_positional(&found.arguments, &command_table().flags_of("kubectl"))
    {
        return Err(CommandError::new(unknown_command(&word)));
    }
    if found.command.path == "kubectl help" {
        return print_topic(&found.arguments);
    }
    let mut flags = FlagSet::new(&command_table().flags_of(&found.command.path));
    preferences.apply_defaults(&expansion, found.command, &mut flags).map_err(report_preferences)?;
    if let Err(error) = flags.parse(&found.arguments) {
        // Its exit code 1 means a difference.
        if found.command.path == "kubectl diff" {
            return Err(CommandError::ExitCode(
                2,
                format!("error: {error}\nSee 'kubectl diff -h' for help and examples"),
            ));
        }
        let hint = match found.command.name() {
            "options" => format!("{error}\nRun '{}' without flags.", found.command.path),
            _ => format!("{error}\nSee '{} --help' for usage.", found.command.path),
        };
        return Err(CommandError::new(hint));
    }
    if flags.help || !found.command.has_option("runnable") {
        return print_help(found.command);
    }
    check_profile(&flags.string("profile"), &found.command.path)?;
    let warnings_as_errors = flags.bool("warnings-as-errors");
    let session = Session::new(found.command, flags, preferences.plugin_policy());
    commands::run(&session)?;
    match session.warning_count() {
        0 => Ok(()),
        1 if warnings_as_errors => Err(CommandError::new("1 warning received")),
        count if warnings_as_errors => Err(CommandError::new(format!("{count} warnings received"))),
        _ => Ok(()),
    }
}

/// Refuses `--profile`: there are no profiles of Go's runtime here. `debug` has a flag of that name with another meaning.
fn check_profile(profile: &str, path: &str) -> CommandResult {
    match profile {
        _ if path == "kubectl debug" => Ok(()),
        "none" | "" => Ok(()),
        "cpu" | "heap" | "goroutine" | "threadcreate" | "block" | "mutex" | "trace" => {
            Err(CommandError::new(format!("--profile={profile} is not supported by this kubectl")))
        }
        other => Err(CommandError::new(format!("unknown profile '{other}'"))),
    }
}

/// Reports an error of the preferences.
fn report_preferences(error: CommandError) -> CommandError {
    write_err(&format!("error occurred while applying preferences {error}\n"));
    CommandError::Exit
}

/// Prints the help of a command.
fn print_help(command: &CommandDefinition) -> CommandResult {
    if command.path == "kubectl alpha" {
        write_err("No alpha commands are available in this version of kubectl\n");
        return Ok(());
    }
    write_out(&help_text(command, &plugins::list_for_help(command)));
    Ok(())
}

/// `kubectl help TOPIC…`
fn print_topic(arguments: &[String]) -> CommandResult {
    let words: Vec<String> = arguments.iter().filter(|argument| !argument.starts_with('-')).cloned().collect();
    let found = find_command(&words).ok_or(CommandError::Exit)?;
    if !found.arguments.is_empty() && found.command.path == "kubectl" {
        let shown: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        write_err(&format!("Unknown help topic [{}]\n", shown.join(" ")));
        write_err(&usage_text(found.command, &plugins::list_for_help(found.command)));
        return Ok(());
    }
    print_help(found.command)
}
