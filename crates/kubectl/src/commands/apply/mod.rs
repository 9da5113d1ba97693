//! `kubectl apply`

mod apply_set;
mod last_applied;
mod patcher;
mod prune;
mod server_side;

use api::{Value, json::go_quote};

use apply_set::ApplySet;
pub use last_applied::{
    run_edit as run_edit_last_applied, run_set as run_set_last_applied, run_view as run_view_last_applied,
};
pub use patcher::{ApplyPatch, PatchSource, apply_locally, compute_patch};
pub use prune::{find_prunable, prune_namespaces_note};

use crate::{
    commands::delete::propagation_of,
    errln,
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    printers::ObjectPrinter,
    resource::{DryRun, RequestOptions, ResourceBuilder, ResourceInfo, Validation},
    session::Session,
    usage::usage_error,
};

/// The settings of one apply.
pub struct ApplyRun<'a> {
    session: &'a Session,
    dry_run: DryRun,
    options: RequestOptions,
    server_side: bool,
    printer: ObjectPrinter,
    visited: Vec<String>,
    namespaces: Vec<String>,
}

const SERVER_SIDE_CONFLICT: &str = "Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts";

/// Applies the objects of files.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    if !session.arguments().is_empty() {
        let message = format!("Unexpected args: [{}]", session.arguments().join(" "));
        return Err(usage_error(session, &message));
    }
    let server_side = flags.bool("server-side");
    let force_conflicts = flags.bool("force-conflicts");
    let dry_run = DryRun::from_flags(flags)?;
    let field_manager = if flags.changed("field-manager") || !server_side {
        flags.string("field-manager")
    } else {
        "kubectl".to_owned()
    };
    if flags.strings("filename").is_empty() && flags.string("kustomize").is_empty() {
        crate::bail!("must specify one of -f and -k");
    }
    let cascade = propagation_of(session)?;
    let printer = ObjectPrinter::from_flags(flags, "")?;
    let validation = Validation::from_flags(flags)?;
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.flatten = true;
    builder.continue_on_error = true;
    builder.select_all = false;
    builder.validation = validation;
    check_flags(session, server_side, force_conflicts, dry_run)?;
    let apply_set = ApplySet::from_session(session)?;
    let allowlist = if apply_set.is_some() { Vec::new() } else { prune::parse_allowlist(session)? };
    let options = RequestOptions {
        dry_run,
        field_manager,
        field_validation: validation.parameter().to_owned(),
        force: server_side && force_conflicts,
    };
    let mut run =
        ApplyRun { session, dry_run, options, server_side, printer, visited: Vec::new(), namespaces: Vec::new() };
    run.apply_all(&builder, apply_set, allowlist, &cascade)
}

fn check_flags(session: &Session, server_side: bool, force_conflicts: bool, dry_run: DryRun) -> CommandResult {
    let flags = &session.flags;
    if force_conflicts && !server_side {
        crate::bail!("--force-conflicts only works with --server-side");
    }
    if dry_run == DryRun::Client && server_side {
        crate::bail!("--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)");
    }
    if flags.bool("force") && server_side {
        crate::bail!("--force cannot be used with --server-side");
    }
    if dry_run == DryRun::Server && flags.bool("force") {
        crate::bail!("--dry-run=server cannot be used with --force");
    }
    let (all, selector) = (flags.bool("all"), flags.string("selector"));
    if all && !selector.is_empty() {
        crate::bail!("cannot set --all and --selector at the same time");
    }
    if flags.changed("applyset") && !apply_sets_enabled() {
        crate::bail!("unknown flag: --applyset\nSee 'kubectl apply --help' for usage.");
    }
    let prunes_by_annotation = flags.bool("prune") && !flags.changed("applyset");
    if flags.bool("prune") && flags.bool("force") {
        crate::bail!("--force cannot be used with --prune");
    }
    if prunes_by_annotation && !all && selector.is_empty() {
        crate::bail!(
            "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all flag. If you did not mean to prune all resources, specify a label selector"
        );
    }
    if prunes_by_annotation && server_side {
        crate::bail!("--prune is in alpha and doesn't currently work on objects created by server-side apply");
    }
    if !flags.string("subresource").is_empty() && !server_side {
        crate::bail!("--subresource can only be specified for --server-side");
    }
    Ok(())
}

/// Whether the environment turns on ApplySets, which are alpha.
fn apply_sets_enabled() -> bool {
    std::env::var("KUBECTL_APPLYSET").is_ok_and(|value| value.eq_ignore_ascii_case("true"))
}

impl ApplyRun<'_> {
    fn apply_all(
        &mut self,
        builder: &ResourceBuilder,
        mut apply_set: Option<ApplySet>,
        allowlist: Vec<prune::PruneKind>,
        cascade: &str,
    ) -> CommandResult {
        let mut result = builder.build(self.session)?;
        let mut errors = result.errors;
        if result.infos.is_empty() && errors.is_empty() {
            crate::bail!("no objects passed to apply");
        }
        if let Some(set) = &mut apply_set {
            result.infos.iter_mut().try_for_each(|info| set.add_label(info))?;
            set.prepare(self, &result.infos)?;
        }
        let mut applied = Vec::new();
        for info in result.infos {
            match self.apply_one(info) {
                Ok(info) => applied.push(info),
                Err(error) => errors.push(error),
            }
        }
        CommandError::join(errors)?;
        if !self.printer.is_message() && !self.printer.prints_names() {
            self.print_objects(&applied)?;
        }
        if let Some(set) = &apply_set {
            set.prune(self, cascade)?;
        } else if self.session.flags.bool("prune") {
            prune::prune(self, allowlist, cascade)?;
        }
        Ok(())
    }

    fn print_objects(&self, infos: &[ResourceInfo]) -> CommandResult {
        match infos {
            [] => Ok(()),
            [one] => self.printer.print(&one.object),
            several => {
                let items: Vec<&Value> = several.iter().map(|info| &info.object).collect();
                self.printer.print_typed(
                    &serde_json::json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}),
                )
            }
        }
    }

    /// Says what was done, unless objects are printed at the end.
    fn print_operation(&self, info: &ResourceInfo, operation: &str) -> CommandResult {
        if self.printer.is_message() || self.printer.prints_names() {
            return self.printer.print_as(&info.object, &format!("{operation}{}", self.dry_run.suffix()));
        }
        Ok(())
    }

    fn apply_one(&mut self, mut info: ResourceInfo) -> CommandResult<ResourceInfo> {
        if info.mapping.namespaced && !self.namespaces.contains(&info.namespace) {
            self.namespaces.push(info.namespace.clone());
        }
        super::record::record_command(self.session, &mut info.object);
        let generated = info.object.text("metadata.generateName");
        if info.name.is_empty() && !generated.is_empty() {
            crate::bail!("from {generated}: cannot use generate name with apply");
        }
        if self.server_side {
            return server_side::apply(self, info, SERVER_SIDE_CONFLICT);
        }
        let client = self.session.client()?;
        let manifest = info.object.clone();
        if info.name.is_empty() {
            let verb = format!("retrieving current configuration of:\n{}\nfrom server for:", describe_info(&info));
            return Err(CommandError::new("resource name may not be empty").with_source(&verb, &info.source));
        }
        let current = match info.fetch(client) {
            Ok(current) => current,
            Err(error) if error.is_not_found() => return self.create(info),
            Err(error) => {
                let verb = format!("retrieving current configuration of:\n{}\nfrom server for:", describe_info(&info));
                return Err(error.with_source(&verb, &info.source));
            }
        };
        info.refresh(current);
        self.mark_visited(&info);
        if info.object.map("metadata.annotations").is_none_or(|map| !map.contains_key(crate::object::LAST_APPLIED)) {
            errln!(
                "Warning: resource {}/{} is missing the {} annotation which is required by kubectl apply. kubectl apply should \
                 only be used on resources created declaratively by either kubectl create --save-config or kubectl apply. The \
                 missing annotation will be patched automatically.",
                info.mapping.resource,
                info.name,
                crate::object::LAST_APPLIED
            );
        }
        let patch = patcher::patch_object(self, &mut info, &manifest)?;
        warn_if_deleting(&info);
        self.print_operation(&info, if patch == serde_json::json!({}) { "unchanged" } else { "configured" })?;
        Ok(info)
    }

    fn create(&mut self, mut info: ResourceInfo) -> CommandResult<ResourceInfo> {
        crate::last_applied::set_last_applied(&mut info.object);
        prune_nulls(&mut info.object);
        if self.dry_run != DryRun::Client {
            let created = info.create_from_manifest(self.session.client()?, &info.object, &self.options);
            info.refresh(created.map_err(|error| error.with_source("creating", &info.source))?);
        }
        self.mark_visited(&info);
        self.print_operation(&info, "created")?;
        Ok(info)
    }

    fn mark_visited(&mut self, info: &ResourceInfo) {
        self.visited.push(info.object.text("metadata.uid").to_owned());
    }
}

fn warn_if_deleting(info: &ResourceInfo) {
    if !info.object.text("metadata.deletionTimestamp").is_empty() {
        errln!("Warning: Detected changes to resource {} which is currently being deleted.", info.name);
    }
}

/// The description of an object in errors.
pub fn describe_info(info: &ResourceInfo) -> String {
    let mapping = &info.mapping;
    let (version, kind) = (mapping.api_version(), &mapping.kind);
    let prefix = if mapping.group.is_empty() { format!("/{version}") } else { version };
    format!(
        "Resource: {}, GroupVersionKind: {}\nName: {}, Namespace: {}",
        go_quote(&format!("{prefix}, Resource={}", mapping.resource)),
        go_quote(&format!("{prefix}, Kind={kind}")),
        go_quote(&info.name),
        go_quote(&info.namespace)
    )
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}
