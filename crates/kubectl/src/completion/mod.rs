//! Shell completion: the hidden `__complete` command, which the scripts of `kubectl completion` call.
//!
//! The last argument is the word to complete. Completions go to stdout, one a line with a description after a tab, then a
//! line with a colon and a number that tells the shell what to do beyond them.

mod cluster_names;
mod flag_completion;
mod resource_words;

use flag_completion::FlagTarget;

use crate::{
    command_table::{CommandDefinition, command_table},
    errln,
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
    kuberc::PluginPolicy,
    outln, plugins,
    session::Session,
    suggestions::find_command,
};

/// Directives to the shell about completions; values can be combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CompletionDirective(u8);

impl CompletionDirective {
    const DEFAULT: Self = CompletionDirective(0);
    const NO_SPACE: Self = CompletionDirective(2);
    const NO_FILES: Self = CompletionDirective(4);
    const FILE_EXTENSIONS: Self = CompletionDirective(8);

    fn and(self, other: Self) -> Self {
        CompletionDirective(self.0 | other.0)
    }

    fn describe(self) -> String {
        let names = [
            (2, "ShellCompDirectiveNoSpace"),
            (4, "ShellCompDirectiveNoFileComp"),
            (8, "ShellCompDirectiveFilterFileExt"),
        ];
        let found: Vec<&str> = names.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| *name).collect();
        if found.is_empty() { "ShellCompDirectiveDefault".to_owned() } else { found.join(", ") }
    }
}

/// Completions and the directive.
#[derive(Debug, Default)]
struct CompletionList {
    words: Vec<String>,
    directive: CompletionDirective,
}

impl CompletionList {
    fn new(words: Vec<String>, directive: CompletionDirective) -> Self {
        CompletionList { words, directive }
    }
}

/// Prints the completions of the last argument.
pub fn complete_arguments(arguments: &[String], with_descriptions: bool) -> CommandResult {
    let Some((last, before)) = arguments.split_last() else {
        return Err(CommandError::new("requires at least 1 arg(s), only received 0"));
    };
    let found = complete(before, last);
    for word in found.words {
        let line = word.lines().next().unwrap_or_default();
        let line = if with_descriptions { line } else { line.split('\t').next().unwrap_or_default() };
        outln!("{}", line.trim());
    }
    outln!(":{}", found.directive.0);
    errln!("Completion ended with directive: {}", found.directive.describe());
    Ok(())
}

fn complete(before: &[String], last: &str) -> CompletionList {
    let Some(found) = find_command(before) else { return CompletionList::default() };
    let command = found.command;
    if command.path == "kubectl help" {
        return complete_topic(&found.arguments, last);
    }
    let definitions = command_table().flags_of(&command.path);
    let target = flag_completion::find_target(&definitions, &found.arguments, last);
    let mut flags = FlagSet::new(&definitions);
    // What cannot be parsed is not completed either; what was parsed before it still counts.
    let parsed = flags.parse(target.arguments(&found.arguments));
    if parsed.is_err() && !matches!(target, FlagTarget::Name(_)) {
        return CompletionList::default();
    }
    if command.path == "kubectl" && !flags.arguments.is_empty() {
        errln!("[Debug] Cleared global flags for plugin completion");
        errln!("[Debug] [Error] unable to find a command for arguments: [{}]", before.join(" "));
        return CompletionList::default();
    }
    let dashes = flags.dash_position.is_some();
    let session = Session::new(command, flags, PluginPolicy::default());
    match target {
        FlagTarget::Value { flag, text } => flag_completion::complete_value(&session, flag, text),
        FlagTarget::Name(text) if !dashes => flag_completion::complete_names(&session, &definitions, text),
        _ => complete_positional(&session, command, last),
    }
}

/// The subcommands of what `help` names.
fn complete_topic(words: &[String], last: &str) -> CompletionList {
    let list = find_command(words).map(|found| complete_subcommands(found.command, last)).unwrap_or_default();
    CompletionList { directive: CompletionDirective::NO_FILES, ..list }
}

fn complete_positional(session: &Session, command: &CommandDefinition, text: &str) -> CompletionList {
    let mut list = CompletionList::default();
    let own_flag = session.flags.given().any(|(name, _)| command.flags.iter().any(|flag| flag.name == name));
    if session.arguments().is_empty() && !own_flag {
        list = complete_subcommands(command, text);
    }
    list.words.extend(flag_completion::required_names(session, text));
    if !command.arguments.is_empty() {
        if session.arguments().is_empty() {
            list.words.extend(command.arguments.iter().filter(|word| word.starts_with(text)).cloned());
            list.directive = CompletionDirective::NO_FILES;
        }
        return list;
    }
    if let Some(found) = resource_words::complete_words(session, text) {
        list.words.extend(found.words);
        list.directive = found.directive;
    }
    list
}

fn complete_subcommands(command: &CommandDefinition, text: &str) -> CompletionList {
    let mut rows: Vec<(String, String)> = command_table()
        .subcommands(&command.path)
        .into_iter()
        .filter(|child| child.has_option("runnable") && !child.has_option("hidden"))
        .map(|child| (child.name().to_owned(), child.short.clone()))
        .collect();
    rows.extend(plugins::list_for_help(command));
    rows.sort();
    rows.retain(|(name, _)| name.starts_with(text));
    let directive = if rows.is_empty() { CompletionDirective::DEFAULT } else { CompletionDirective::NO_FILES };
    CompletionList::new(rows.into_iter().map(|(name, short)| format!("{name}\t{short}")).collect(), directive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(before: &str, last: &str) -> (Vec<String>, u8) {
        let before: Vec<String> = before.split_whitespace().map(str::to_owned).collect();
        let found = complete(&before, last);
        (found.words, found.directive.0)
    }

    #[test]
    fn subcommands_are_completed_with_descriptions() {
        let wanted = vec!["deployment\tCreate a deployment with the specified name".to_owned()];
        assert_eq!(words("create", "d"), (wanted, 4));
        assert_eq!(words("nothing", "x"), (Vec::new(), 0));
    }

    #[test]
    fn flags_that_were_given_are_left_out() {
        let (found, directive) = words("get pods --sort-by=x", "--so");
        assert_eq!((found.len(), directive), (0, 4));
        let (found, _) = words("get pods", "--sort");
        assert!(found[0].starts_with("--sort-by\t"), "{found:?}");
    }

    #[test]
    fn values_are_completed_after_space_and_equals_sign() {
        assert_eq!(words("get pods -o", "js").0, ["json", "jsonpath", "jsonpath-as-json", "jsonpath-file"]);
        assert_eq!(words("get pods", "--output=wi").0, ["wide"]);
        assert_eq!(words("apply -f", ""), (vec!["json".into(), "yaml".into(), "yml".into()], 8));
        assert_eq!(words("completion", "z"), (vec!["zsh".into()], 4));
    }
}
