//! `kubectl delete`

use std::io::BufRead;

use api::Value;
use serde_json::json;

use super::{
    raw,
    wait_condition::{WaitDeadline, wait_for_deletion},
};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    outln,
    output::write_out,
    resource::{DryRun, ResourceBuilder, ResourceInfo},
    rest::{RestClient, RestRequest},
    session::Session,
};

/// Options of a deletion; other commands delete with it too.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The grace period in seconds; negative for the default.
    pub grace_period: i64,
    /// `Background`, `Foreground` or `Orphan`.
    pub propagation: String,
    /// The dry run strategy.
    pub dry_run: DryRun,
    /// Whether only names are printed.
    pub names: bool,
    /// Whether nothing is printed.
    pub quiet: bool,
}

/// Reads `--cascade`.
pub fn propagation_of(session: &Session) -> CommandResult<String> {
    let value = session.flags.string("cascade");
    let deprecated = |new: &str| {
        errln!("warning: --cascade={value} is deprecated (boolean value) and can be replaced with --cascade={new}.");
    };
    match value.as_str() {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => {
            deprecated("background");
            Ok("Background".to_owned())
        }
        "0" | "f" | "F" | "FALSE" | "false" | "False" => {
            deprecated("orphan");
            Ok("Orphan".to_owned())
        }
        "background" => Ok("Background".to_owned()),
        "orphan" => Ok("Orphan".to_owned()),
        "foreground" => Ok("Foreground".to_owned()),
        other => Err(CommandError::new(format!(
            "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
        ))),
    }
}

/// Deletes objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let propagation = propagation_of(session)?;
    let mut builder = ResourceBuilder::from_session(session)?;
    let warn_scope = builder.enforce_namespace && !builder.all_namespaces;
    let selects = builder.select_all || !builder.label_selector.is_empty() || !builder.field_selector.is_empty();
    let ignore = if flags.changed("ignore-not-found") { flags.bool("ignore-not-found") } else { selects };
    let force = flags.bool("force");
    let mut grace_period = flags.int("grace-period");
    if flags.bool("now") {
        if grace_period != -1 {
            crate::bail!("--now and --grace-period cannot be specified together");
        }
        grace_period = 1;
    }
    if grace_period == 0 && !force {
        grace_period = 1;
    }
    if force && grace_period < 0 {
        grace_period = 0;
    }
    let dry_run = DryRun::from_flags(flags)?;
    builder.arguments = session.arguments().to_vec();
    builder.continue_on_error = true;
    builder.flatten = true;
    builder.skip_fetch = true;
    let raw_path = flags.string("raw");
    let output = flags.string("output");
    let (select_all, has_label, has_field) =
        (builder.select_all, !builder.label_selector.is_empty(), !builder.field_selector.is_empty());
    if raw_path.is_empty() {
        if select_all && (has_label || has_field) {
            crate::bail!("setting 'all' parameter but found a non empty selector. ");
        }
        check_arguments(session, &builder)?;
    }
    if !["", "name"].contains(&output.as_str()) {
        crate::bail!("unexpected -o output mode: {output}. We only support '-o name'");
    }
    if select_all && has_label {
        crate::bail!("cannot set --all and --selector at the same time");
    }
    if select_all && has_field {
        crate::bail!("cannot set --all and --field-selector at the same time");
    }
    if grace_period == 0 && force {
        errln!(
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The \
             resource may continue to run on the cluster indefinitely."
        );
    } else if grace_period > 0 && force {
        crate::bail!("--force and --grace-period greater than 0 cannot be specified together");
    }
    if !raw_path.is_empty() {
        return run_raw(session, &builder, &raw_path);
    }
    let options = DeleteOptions { grace_period, propagation, dry_run, names: output == "name", quiet: false };
    if flags.bool("interactive") && !confirm(session, &builder, ignore)? {
        return Ok(());
    }
    let run = DeleteRun { session, options, ignore, warn_scope };
    run.delete(&builder)
}

/// Reports unusable arguments before anything else, as the builder does.
fn check_arguments(session: &Session, builder: &ResourceBuilder) -> CommandResult {
    if builder.select_all && !builder.label_selector.is_empty() {
        return Ok(());
    }
    let mut probe = builder.clone();
    if builder.has_files()
        || !builder.label_selector.is_empty()
        || builder.select_all
        || !builder.field_selector.is_empty()
    {
        // Selectors and files are looked at when they are visited.
        probe.label_selector.clear();
        return Ok(());
    }
    probe.build(session).map(|_| ())
}

fn run_raw(session: &Session, builder: &ResourceBuilder, path: &str) -> CommandResult {
    if session.flags.bool("interactive") {
        crate::bail!("--interactive can not be used with --raw");
    }
    if builder.filenames.len() > 1 {
        crate::bail!("--raw can only use a single local file or stdin");
    }
    if builder.filenames.first().is_some_and(|name| name.starts_with("http://") || name.starts_with("https://")) {
        crate::bail!("--raw cannot read from a url");
    }
    if builder.recursive {
        crate::bail!("--raw and --recursive are mutually exclusive");
    }
    if !session.flags.string("output").is_empty() {
        crate::bail!("--raw and --output are mutually exclusive");
    }
    raw::check_path(path)?;
    raw::send(session, http::Method::DELETE, path, builder.filenames.first().map(String::as_str))
}

/// Lists what will be deleted and asks.
fn confirm(session: &Session, builder: &ResourceBuilder, ignore: bool) -> CommandResult<bool> {
    let mut result = builder.build(session)?;
    if ignore {
        result.errors.retain(|error| !error.is_not_found());
    }
    CommandError::join(result.errors)?;
    if result.infos.is_empty() {
        outln!("No resources found");
        return Ok(false);
    }
    outln!("You are about to delete the following {} resource(s):", result.infos.len());
    result.infos.iter().for_each(|info| outln!("{}", info.object_name()));
    write_out("Do you want to continue? (y/N): ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_err() || !answer.trim().eq_ignore_ascii_case("y") {
        outln!("deletion is cancelled");
        return Ok(false);
    }
    Ok(true)
}

/// One deletion of what a builder finds.
struct DeleteRun<'a> {
    session: &'a Session,
    options: DeleteOptions,
    ignore: bool,
    warn_scope: bool,
}

impl DeleteRun<'_> {
    fn delete(mut self, builder: &ResourceBuilder) -> CommandResult {
        let client = self.session.client()?;
        let mut deleted: Vec<(ResourceInfo, String)> = Vec::new();
        let mut found = 0;
        let mut warn = std::mem::take(&mut self.warn_scope);
        let outcome = builder.visit(self.session, &mut |info| {
            if warn && !info.mapping.namespaced {
                errln!("Warning: deleting cluster-scoped resources, not scoped to the provided namespace");
                warn = false;
            }
            found += 1;
            let uid = delete_object(client, &info, &self.options)
                .map_err(|error| error.with_source("deleting", &info.source))?;
            deleted.push((info, uid));
            Ok(())
        });
        match outcome {
            Err(error) if self.ignore => {
                let errors = match error {
                    CommandError::Aggregate(errors) => errors,
                    other => vec![other],
                };
                CommandError::join(errors.into_iter().filter(|error| !error.is_not_found()).collect())?;
            }
            other => other?,
        }
        if found == 0 {
            outln!("No resources found");
            return Ok(());
        }
        if !self.session.flags.bool("wait") || self.options.dry_run != DryRun::None {
            return Ok(());
        }
        let timeout = self.session.flags.duration("timeout");
        let deadline = WaitDeadline::after(if timeout == 0 { -1 } else { timeout });
        wait_for_all(client, &deleted, deadline)
    }
}

fn wait_for_all(client: &RestClient, deleted: &[(ResourceInfo, String)], deadline: WaitDeadline) -> CommandResult {
    let mut errors = Vec::new();
    for (info, uid) in deleted {
        match wait_for_deletion(client, info, uid, deadline) {
            Err(error) if ["Forbidden", "MethodNotAllowed"].contains(&error.reason()) => {}
            Err(error) => errors.push(error),
            Ok(()) => {}
        }
    }
    CommandError::join(errors)
}

/// Deletes an object and says so; returns its UID.
pub fn delete_object(client: &RestClient, info: &ResourceInfo, options: &DeleteOptions) -> CommandResult<String> {
    if options.dry_run == DryRun::Client {
        print_deleted(info, options);
        return Ok(String::new());
    }
    let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    if options.grace_period >= 0 {
        body["gracePeriodSeconds"] = options.grace_period.into();
    }
    if !options.propagation.is_empty() {
        body["propagationPolicy"] = options.propagation.clone().into();
    }
    if options.dry_run == DryRun::Server {
        body["dryRun"] = json!(["All"]);
    }
    let path = info.mapping.path(&info.namespace, &info.name);
    let answer = client.send_json(RestRequest::new(http::Method::DELETE, path).with_json(&body))?;
    print_deleted(info, options);
    Ok(deleted_uid(&answer))
}

fn deleted_uid(answer: &Value) -> String {
    let uid = if answer.text("kind") == "Status" { answer.text("details.uid") } else { answer.text("metadata.uid") };
    uid.to_owned()
}

fn print_deleted(info: &ResourceInfo, options: &DeleteOptions) {
    if options.quiet {
        return;
    }
    let kind = info.mapping.qualified_kind();
    if options.names {
        outln!("{kind}/{}", info.name);
        return;
    }
    let mut operation = if options.grace_period == 0 { "force deleted" } else { "deleted" }.to_owned();
    if info.mapping.namespaced {
        operation += &format!(" from {} namespace", info.namespace);
    }
    outln!("{kind} \"{}\" {operation}{}", info.name, options.dry_run.suffix());
}
