//! `kubectl label` and `kubectl annotate`

use api::{Map, Value, json::go_quote};
use formats::names;

use crate::{
    errors::{CommandError, CommandResult},
    merge_patch::diff_merge,
    object::{self, ObjectFields},
    outln,
    printers::ObjectPrinter,
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    session::Session,
};

/// A change of labels or annotations.
struct MetadataChange<'a> {
    session: &'a Session,
    /// `label` or `annotation`.
    word: &'static str,
    /// `labels` or `annotations`.
    field: &'static str,
    set: Vec<(String, String)>,
    remove: Vec<String>,
    dry_run: DryRun,
}

/// `kubectl label`
pub fn run_label(session: &Session) -> CommandResult {
    run(session, "label", "labels")
}

/// `kubectl annotate`
pub fn run_annotate(session: &Session) -> CommandResult {
    run(session, "annotation", "annotations")
}

fn run(session: &Session, word: &'static str, field: &'static str) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let printer = ObjectPrinter::from_flags(flags, "")?;
    let (resources, pairs) = split_arguments(session.arguments(), word)?;
    let list = flags.bool("list");
    let local = flags.bool("local");
    if list && !flags.string("output").is_empty() {
        crate::bail!("--list and --output may not be specified together");
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = resources;
    builder.flatten = true;
    builder.latest = !local;
    builder.local = local;
    builder.continue_on_error = true;
    builder.enforce_namespace = builder.enforce_namespace && !builder.all_namespaces;
    if builder.select_all && !builder.label_selector.is_empty() {
        crate::bail!("cannot set --all and --selector at the same time");
    }
    if builder.select_all && !builder.field_selector.is_empty() {
        crate::bail!("cannot set --all and --field-selector at the same time");
    }
    let example = if word == "label" { "pod" } else { "rsrc" };
    if local {
        if dry_run == DryRun::Server {
            crate::bail!("cannot specify --local and --dry-run=server - did you mean --dry-run=client?");
        }
        if !builder.arguments.is_empty() {
            crate::bail!(
                "can only use local files by -f {example}.yaml or --filename={example}.json when --local=true is set"
            );
        }
        if !builder.has_files() {
            crate::bail!("one or more files must be specified as -f {example}.yaml or --filename={example}.json");
        }
    } else if builder.arguments.is_empty() && !builder.has_files() {
        crate::bail!("one or more resources must be specified as <resource> <name> or <resource>/<name>");
    }
    let (set, remove) = parse_pairs(&pairs, word)?;
    if set.is_empty() && remove.is_empty() && !list {
        let verb = if word == "label" {
            "at least one label update is required"
        } else {
            "at least one annotation update is required"
        };
        return Err(CommandError::new(verb));
    }
    let change = MetadataChange { session, word, field, set, remove, dry_run };
    if flags.string("resource-version").is_empty() && !list {
        // Each object is changed before the next one is read.
        return builder.visit(session, &mut |info| change.apply(info, &printer, false));
    }
    let result = builder.build(session)?;
    let single = result.single_item;
    if !flags.string("resource-version").is_empty() && !single {
        crate::bail!("--resource-version may only be used with a single resource");
    }
    let mut errors = result.errors;
    for info in result.infos {
        if let Err(error) = change.apply(info, &printer, single) {
            errors.push(error);
        }
    }
    CommandError::join(errors)
}

/// Splits arguments into resources and changes.
fn split_arguments(arguments: &[String], word: &str) -> CommandResult<(Vec<String>, Vec<String>)> {
    let is_pair = |argument: &String| {
        argument.contains('=') && !argument.starts_with('=') || argument.len() > 1 && argument.ends_with('-')
    };
    let first = arguments.iter().position(is_pair).unwrap_or(arguments.len());
    let (resources, pairs) = arguments.split_at(first);
    if let Some(stray) = pairs.iter().find(|argument| !is_pair(argument)) {
        crate::bail!("all resources must be specified before {word} changes: {stray}");
    }
    Ok((resources.to_vec(), pairs.to_vec()))
}

type ParsedPairs = (Vec<(String, String)>, Vec<String>);

fn parse_pairs(pairs: &[String], word: &str) -> CommandResult<ParsedPairs> {
    let (mut set, mut remove): ParsedPairs = Default::default();
    for pair in pairs {
        if let Some((key, value)) = pair.split_once('=') {
            if word == "label" && value.contains('=') {
                crate::bail!("invalid label spec: {pair}");
            }
            let faults = names::check_label_value(value);
            if word == "label" && !faults.is_empty() {
                crate::bail!("invalid label value: {}: {}", go_quote(pair), faults.join(";"));
            }
            set.push((key.to_owned(), value.to_owned()));
        } else if let Some(key) = pair.strip_suffix('-') {
            remove.push(key.to_owned());
        }
    }
    let both: Vec<&str> =
        remove.iter().filter(|key| set.iter().any(|(known, _)| known == *key)).map(String::as_str).collect();
    if !both.is_empty() && word == "label" {
        crate::bail!("can not both modify and remove a label in the same command");
    }
    if !both.is_empty() {
        crate::bail!("can not both modify and remove the following {word}(s) in the same command: {}", both.join(", "));
    }
    Ok((set, remove))
}

impl MetadataChange<'_> {
    fn apply(&self, mut info: ResourceInfo, printer: &ObjectPrinter, single: bool) -> CommandResult {
        let flags = &self.session.flags;
        let (list, local) = (flags.bool("list"), flags.bool("local"));
        let version = flags.string("resource-version");
        if !version.is_empty() {
            // The version is part of the patch then.
            object::remove_path(&mut info.object, "metadata.resourceVersion");
        }
        let before = info.object.clone();
        let path = format!("metadata.{}", self.field);
        let current = before.map(&path).cloned().unwrap_or_default();
        let sends = !local && !list && self.dry_run != DryRun::Client;
        if sends && self.word == "label" {
            for key in self.remove.iter().filter(|key| !current.contains_key(*key)) {
                outln!("label {} not found.", go_quote(key));
            }
        }
        if !flags.bool("overwrite") {
            self.check_overwrites(&current)?;
        }
        let changed = self.changed(current.clone());
        if changed.is_empty() && !current.is_empty() {
            object::remove_path(&mut info.object, &path);
        } else if !changed.is_empty() {
            object::set_path(&mut info.object, &path, Value::Object(changed.clone()));
        }
        if !version.is_empty() {
            object::set_path(&mut info.object, "metadata.resourceVersion", version.into());
        }
        if list {
            self.print_list(&info, &changed, single);
            return Ok(());
        }
        let operation = self.operation(&current, &changed);
        if sends {
            super::record::record_command(self.session, &mut info.object);
            self.send(&mut info, &before, current != changed)?;
        }
        printer.print_as(&info.object, &format!("{operation}{}", self.dry_run.suffix()))
    }

    /// Sends the difference; labels that stay the same send nothing, and the object that was changed here is printed.
    fn send(&self, info: &mut ResourceInfo, before: &Value, changes: bool) -> CommandResult {
        if self.word == "label" && !changes {
            return Ok(());
        }
        let patch = diff_merge(before, &info.object);
        let options = RequestOptions {
            dry_run: self.dry_run,
            field_manager: self.session.flags.string("field-manager"),
            ..Default::default()
        };
        let patched = info.patch(self.session.client()?, PatchKind::Merge, patch.to_string(), &options)?;
        if self.word != "label" {
            info.object = patched;
        }
        Ok(())
    }

    fn changed(&self, mut current: Map) -> Map {
        for (key, value) in &self.set {
            current.insert(key.clone(), value.clone().into());
        }
        for key in &self.remove {
            current.remove(key);
        }
        current
    }

    fn operation(&self, current: &Map, changed: &Map) -> &'static str {
        if self.word == "annotation" {
            return "annotated";
        }
        let added = changed.iter().any(|(key, value)| current.get(key) != Some(value));
        let removed = current.keys().any(|key| !changed.contains_key(key));
        match (added, removed) {
            (true, true) => "modified",
            (true, false) => "labeled",
            (false, true) => "unlabeled",
            (false, false) => "not labeled",
        }
    }

    fn check_overwrites(&self, current: &Map) -> CommandResult {
        let taken: Vec<String> = self
            .set
            .iter()
            .filter_map(|(key, value)| {
                let known = current.get(key)?.as_str()?;
                if self.word == "annotation" && key == "kubernetes.io/change-cause" {
                    return None;
                }
                (known != value).then(|| format!("'{key}' already has a value ({known})"))
            })
            .collect();
        if taken.is_empty() {
            return Ok(());
        }
        if self.word == "label" {
            let errors =
                taken.iter().map(|text| CommandError::new(format!("{text}, and --overwrite is false"))).collect();
            return CommandError::join(errors);
        }
        crate::bail!("--overwrite is false but found the following declared annotation(s): {}", taken.join("; "))
    }

    fn print_list(&self, info: &ResourceInfo, current: &Map, one: bool) {
        let indent = if one { "" } else { " " };
        if !one {
            outln!("Listing {} for {}.{}/{}:", self.field, info.mapping.kind, info.mapping.group, info.name);
        }
        for (key, value) in current {
            outln!("{indent}{key}={}", value.as_str().unwrap_or_default());
        }
    }
}
