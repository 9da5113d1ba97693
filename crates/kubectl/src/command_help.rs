//! Help and usage texts of commands.

use crate::command_table::{CommandDefinition, FlagDefinition, command_table};

const GROUPS: [(&str, &[&str]); 7] = [
    ("Basic Commands (Beginner):", &["create", "expose", "run", "set"]),
    ("Basic Commands (Intermediate):", &["explain", "get", "edit", "delete"]),
    ("Deploy Commands:", &["rollout", "scale", "autoscale"]),
    ("Cluster Management Commands:", &["certificate", "cluster-info", "top", "cordon", "uncordon", "drain", "taint"]),
    (
        "Troubleshooting and Debugging Commands:",
        &["describe", "logs", "attach", "exec", "port-forward", "proxy", "cp", "auth", "debug", "events"],
    ),
    ("Advanced Commands:", &["diff", "apply", "patch", "replace", "wait", "kustomize"]),
    ("Settings Commands:", &["label", "annotate", "completion"]),
];

/// The help text of a command.
pub fn help_text(command: &CommandDefinition, plugins: &[(String, String)]) -> String {
    let about = if command.long.is_empty() { &command.short } else { &command.long };
    format!("{}{}", about.trim(), usage_text(command, plugins))
}

/// The usage text of a command, which help has after the description.
pub fn usage_text(command: &CommandDefinition, plugins: &[(String, String)]) -> String {
    if command.path == "kubectl options" {
        return options_text();
    }
    let mut text = "\n\n".to_owned();
    if !command.aliases.is_empty() {
        text += &format!("Aliases:\n{}, {}\n\n", command.name(), command.aliases.join(", "));
    }
    if !command.example.is_empty() {
        text += &format!("Examples:\n{}\n\n", command.example.trim_end());
    }
    let subcommands = command_table().subcommands(&command.path);
    if subcommands.iter().any(|child| is_available(child)) {
        text += &format!("{}\n\n", subcommand_groups(command, &subcommands, plugins));
    }
    let flags: Vec<&FlagDefinition> = command.flags.iter().filter(|flag| !flag.hidden).collect();
    if !command.flags.is_empty() {
        text += &format!("Options:\n{}\n\n", flag_usages(&flags).trim_end());
    }
    if command.has_option("runnable") {
        text += &format!("Usage:\n  {}\n\n", usage_line(command));
    }
    if !subcommands.is_empty() {
        text += &format!("Use \"{} <command> --help\" for more information about a given command.\n", command.path);
    }
    if command.has_option("runnable") {
        text += "Use \"kubectl options\" for a list of global command-line options (applies to all commands).\n";
    }
    text
}

fn is_available(command: &CommandDefinition) -> bool {
    !command.has_option("hidden") && command.has_option("runnable")
}

/// The usage line with `[flags]` and `[options]`.
fn usage_line(command: &CommandDefinition) -> String {
    let parent = command.parent_path();
    let mut line = if parent.is_empty() { command.usage.clone() } else { format!("{parent} {}", command.usage) };
    if !command.has_option("bare-use") && !line.contains("[flags]") {
        line += " [flags]";
    }
    if !line.contains("[options]") {
        line += " [options]";
    }
    line
}

fn subcommand_groups(
    command: &CommandDefinition,
    subcommands: &[&CommandDefinition],
    plugins: &[(String, String)],
) -> String {
    let padding = subcommands.iter().map(|child| child.name().len()).max().unwrap_or(0).max(11);
    let line = |name: &str, short: &str| format!("  {name:padding$}   {short}");
    let row = |child: &&CommandDefinition| line(child.name(), &child.short);
    let mut sorted = subcommands.to_vec();
    sorted.sort_by(|a, b| a.name().cmp(b.name()));
    sorted.retain(|child| is_available(child) && child.name() != "options");
    if command.path != "kubectl" {
        let rows: Vec<String> = sorted.iter().map(row).collect();
        return format!("Available Commands:\n{}", rows.join("\n"));
    }
    let mut groups = Vec::new();
    let mut grouped: Vec<&str> = Vec::new();
    for (title, names) in GROUPS {
        let rows: Vec<String> =
            names.iter().filter_map(|name| subcommands.iter().find(|child| child.name() == *name)).map(row).collect();
        grouped.extend(names);
        groups.push(format!("{title}\n{}", rows.join("\n")));
    }
    let plugin_rows: String = plugins.iter().map(|(name, path)| format!("\n{}", line(name, path))).collect();
    groups.push(format!("Subcommands provided by plugins:{plugin_rows}"));
    sorted.retain(|child| !grouped.contains(&child.name()) && child.name() != "alpha" && child.name() != "help");
    let rows: Vec<String> = sorted.iter().map(row).collect();
    groups.push(format!("Other Commands:\n{}", rows.join("\n")));
    groups.join("\n\n")
}

/// The flags with their defaults and descriptions.
fn flag_usages(flags: &[&FlagDefinition]) -> String {
    let mut text = String::new();
    for flag in flags {
        let short = flag.short.map(|short| format!("-{short}, ")).unwrap_or_default();
        let default = expand_home(&flag.default);
        let default = if flag.kind == "string" { format!("'{default}'") } else { default };
        let deprecated =
            if flag.deprecated.is_empty() { String::new() } else { format!(" (DEPRECATED: {})", flag.deprecated) };
        let usage = format!("{}{deprecated}", flag.usage).replace('\n', " ");
        text += &format!("    {short}--{}={default}:\n\t{usage}\n\n", flag.name);
    }
    text
}

/// Puts the home directory in a default.
pub fn expand_home(text: &str) -> String {
    if !text.starts_with("$HOME") {
        return text.to_owned();
    }
    text.replace("$HOME", &std::env::var("HOME").unwrap_or_default())
}

/// The flags that every command has.
fn options_text() -> String {
    let root = command_table().command("kubectl");
    let flags: Vec<&FlagDefinition> =
        root.map(|root| root.persistent.iter().filter(|flag| !flag.hidden).collect()).unwrap_or_default();
    format!("The following options can be passed to any command:\n\n{}", flag_usages(&flags))
}
