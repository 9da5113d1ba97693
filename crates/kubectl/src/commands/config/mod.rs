//! `kubectl config`: the kubeconfig files.

mod entries;
mod property;
mod view;

use api::json::go_quote;

pub use entries::{run_set_cluster, run_set_context, run_set_credentials};
pub use property::{run_set, run_unset};
pub use view::run as run_view;

use crate::{
    command_help::help_text,
    errln,
    errors::{CommandError, CommandResult},
    kubeconfig::{Kubeconfig, LoadingRules, modify_config, text_of},
    outln,
    output::write_out,
    session::Session,
    tab_writer::TabWriter,
    usage::usage_error,
};

/// The configuration with paths as they are in the files; a missing `--kubeconfig` file is an empty one.
fn load(session: &Session) -> CommandResult<(LoadingRules, Kubeconfig)> {
    let rules = session.loading_rules();
    if rules.explicit.as_ref().is_some_and(|path| !path.exists()) {
        return Ok((rules, Kubeconfig::default()));
    }
    let config = rules.load_raw(false)?;
    Ok((rules, config))
}

/// An error after the command's help.
fn help_error(session: &Session, message: &str) -> CommandError {
    write_out(&help_text(session.command, &[]));
    CommandError::new(message)
}

/// `config current-context`
pub fn run_current_context(session: &Session) -> CommandResult {
    let (_, config) = load(session)?;
    if config.current_context.is_empty() {
        crate::bail!("current-context is not set");
    }
    outln!("{}", config.current_context);
    Ok(())
}

/// `config use-context`
pub fn run_use_context(session: &Session) -> CommandResult {
    let [name] = session.arguments() else {
        return Err(help_error(session, &format!("Unexpected args: [{}]", session.arguments().join(" "))));
    };
    let (rules, config) = load(session)?;
    if !config.contexts.contains_key(name) {
        crate::bail!("no context exists with the name: {}", go_quote(name));
    }
    let mut changed = config.clone();
    changed.current_context.clone_from(name);
    modify_config(&rules, &config, &changed)?;
    outln!("Switched to context {}.", go_quote(name));
    Ok(())
}

/// `config get-contexts`
pub fn run_get_contexts(session: &Session) -> CommandResult {
    let (_, config) = load(session)?;
    let output = session.flags.string("output");
    if !["", "name"].contains(&output.as_str()) {
        crate::bail!(
            "--output {output} is not available in kubectl config get-contexts; resetting to default output format"
        );
    }
    let mut errors = Vec::new();
    let mut names: Vec<String> = session.arguments().to_vec();
    if names.is_empty() {
        names = config.contexts.keys().cloned().collect();
    }
    names.retain(|name| {
        let known = config.contexts.contains_key(name);
        if !known {
            errors.push(CommandError::new(format!("context {name} not found")));
        }
        known
    });
    names.sort();
    let mut writer = TabWriter::for_tables();
    if output.is_empty() && !session.flags.bool("no-headers") {
        writer.push_row(&["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"]);
    }
    for name in &names {
        if output == "name" {
            writer.push(&format!("{name}\n"));
            continue;
        }
        let context = config.contexts.get(name).cloned().unwrap_or_default();
        let marker = if *name == config.current_context { "*" } else { "" };
        writer.push_row(&[
            marker,
            name,
            text_of(&context, "cluster"),
            text_of(&context, "user"),
            text_of(&context, "namespace"),
        ]);
    }
    write_out(&writer.flush());
    CommandError::join(errors)
}

/// `config get-clusters` and `config get-users`
pub fn run_get_names(session: &Session, section: &str) -> CommandResult {
    let (_, config) = load(session)?;
    outln!("NAME");
    for name in config.section(section).keys() {
        outln!("{name}");
    }
    Ok(())
}

/// `config delete-context`, `delete-cluster` and `delete-user`
pub fn run_delete(session: &Session, section: &'static str, word: &str) -> CommandResult {
    let [name] = session.arguments() else {
        if section == "users" {
            return Err(usage_error(session, "user to delete is required"));
        }
        write_out(&help_text(session.command, &[]));
        return Ok(());
    };
    let (rules, config) = load(session)?;
    let file = rules.default_file();
    if !config.section(section).contains_key(name) {
        crate::bail!("cannot delete {word} {name}, not in {}", file.display());
    }
    if section == "contexts" && config.current_context == *name {
        errln!(
            "warning: this removed your active context, use \"kubectl config use-context\" to select a different one"
        );
    }
    let mut changed = config.clone();
    changed.section_mut(section).remove(name);
    modify_config(&rules, &config, &changed)?;
    outln!("deleted {word} {name} from {}", file.display());
    Ok(())
}

/// `config rename-context`
pub fn run_rename_context(session: &Session) -> CommandResult {
    let [old, new] = session.arguments() else {
        return Err(help_error(session, &format!("Unexpected args: [{}]", session.arguments().join(" "))));
    };
    let (rules, config) = load(session)?;
    let file = rules.default_file();
    let Some(context) = config.contexts.get(old).cloned() else {
        crate::bail!("cannot rename the context {}, it's not in {}", go_quote(old), file.display());
    };
    if config.contexts.contains_key(new) {
        crate::bail!(
            "cannot rename the context {}, the context {} already exists in {}",
            go_quote(old),
            go_quote(new),
            file.display()
        );
    }
    let mut changed = config.clone();
    changed.contexts.remove(old);
    changed.contexts.insert(new.clone(), context);
    if changed.current_context == *old {
        changed.current_context.clone_from(new);
    }
    modify_config(&rules, &config, &changed)?;
    outln!("Context {} renamed to {}.", go_quote(old), go_quote(new));
    Ok(())
}
