//! `kubectl create`: from files, and the generators of its subcommands.

mod config_data;
mod ingress;
mod rbac;
mod service;
mod simple;
mod token;
mod workload;

use api::Value;

use super::raw;
use crate::{
    errors::{CommandError, CommandResult},
    object,
    printers::ObjectPrinter,
    resource::{DryRun, RequestOptions, ResourceBuilder, Validation},
    session::Session,
    usage::usage_error,
};

pub use simple::{parse_label_selector, parse_resource_list};

/// Creates the objects of files.
pub fn run_files(session: &Session) -> CommandResult {
    let flags = &session.flags;
    if !session.arguments().is_empty() {
        let message = format!("Unexpected args: [{}]", session.arguments().join(" "));
        return Err(usage_error(session, &message));
    }
    let dry_run = DryRun::from_flags(flags)?;
    let validation = Validation::from_flags(flags)?;
    let printer = ObjectPrinter::from_flags(flags, &format!("created{}", dry_run.suffix()))?;
    let filenames = flags.strings("filename");
    if filenames.is_empty() && flags.string("kustomize").is_empty() {
        crate::bail!("must specify one of -f and -k");
    }
    let path = flags.string("raw");
    if !path.is_empty() {
        return run_raw(session, &path, &filenames);
    }
    if flags.bool("edit") {
        return super::edit::run_create(session);
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.flatten = true;
    builder.continue_on_error = true;
    builder.validation = validation;
    let options = RequestOptions {
        dry_run,
        field_manager: flags.string("field-manager"),
        field_validation: validation.parameter().to_owned(),
        force: false,
    };
    let mut count = 0;
    builder.visit(session, &mut |mut info| {
        if flags.bool("save-config") {
            crate::last_applied::set_last_applied(&mut info.object);
        }
        super::record::record_command(session, &mut info.object);
        if dry_run != DryRun::Client {
            let created = info.create_from_manifest(session.client()?, &info.object, &options);
            let created = created.map_err(|error| error.with_source("creating", &info.source))?;
            info.refresh(created);
        }
        count += 1;
        printer.print(&info.object)
    })?;
    if count == 0 {
        crate::bail!("no objects passed to create");
    }
    Ok(())
}

fn run_raw(session: &Session, path: &str, filenames: &[String]) -> CommandResult {
    let flags = &session.flags;
    if flags.bool("edit") {
        crate::bail!("--raw and --edit are mutually exclusive");
    }
    let [filename] = filenames else { crate::bail!("--raw can only use a single local file or stdin") };
    if filename.starts_with("http://") || filename.starts_with("https://") {
        crate::bail!("--raw cannot read from a url");
    }
    if flags.bool("recursive") {
        crate::bail!("--raw and --recursive are mutually exclusive");
    }
    if !flags.string("selector").is_empty() {
        crate::bail!("--raw and --selector (-l) are mutually exclusive");
    }
    if !flags.string("output").is_empty() {
        crate::bail!("--raw and --output are mutually exclusive");
    }
    raw::check_path(path)?;
    raw::send(session, http::Method::POST, path, Some(filename))
}

/// A generator's work: the name, where the object goes, and how it is printed.
pub struct Generator<'a> {
    /// The running command.
    pub session: &'a Session,
    /// The object's name.
    pub name: String,
    /// The namespace, if a flag named it.
    pub explicit_namespace: Option<String>,
    namespace: String,
    dry_run: DryRun,
    validation: Validation,
    printer: ObjectPrinter,
}

impl<'a> Generator<'a> {
    fn new(session: &'a Session) -> CommandResult<Self> {
        let flags = &session.flags;
        let count = flags.dash_position.unwrap_or(flags.arguments.len());
        if count != 1 {
            return Err(usage_error(session, &format!("exactly one NAME is required, got {count}")));
        }
        let name = flags.arguments[0].clone();
        // The configuration is read before anything else is checked.
        session.kubeconfig()?;
        let dry_run = DryRun::from_flags(flags)?;
        let (namespace, explicit) = session.namespace()?;
        let printer = ObjectPrinter::from_flags(flags, &format!("created{}", dry_run.suffix()))?;
        let validation = Validation::from_flags(flags)?;
        let explicit_namespace = explicit.then(|| namespace.clone());
        Ok(Generator { session, name, explicit_namespace, namespace, dry_run, validation, printer })
    }

    /// The arguments after `--` or the name.
    pub fn command(&self) -> Vec<String> {
        self.session.arguments().iter().skip(1).cloned().collect()
    }

    /// Metadata with the name, and the namespace if a flag named it.
    pub fn metadata(&self) -> Value {
        let mut metadata = serde_json::json!({"name": self.name});
        if let Some(namespace) = &self.explicit_namespace {
            metadata["namespace"] = namespace.clone().into();
        }
        metadata
    }

    /// Creates the object, unless it is a dry run of the client, and prints it; `failure` is the prefix of errors, empty
    /// for the plain answer.
    pub fn finish(&self, mut object: Value, resource: &str, namespaced: bool, failure: &str) -> CommandResult {
        if self.session.flags.bool("save-config") {
            let mut typed = crate::printers::typed_value(&object);
            crate::last_applied::set_typed_last_applied(&mut typed);
            object = typed;
        }
        if self.dry_run == DryRun::Client {
            return self.printer.print_typed(&object);
        }
        let (group, version, kind) = object::group_version_kind(&object);
        let mapping = crate::discovery::RestMapping { group, version, kind, resource: resource.to_owned(), namespaced };
        let info = crate::resource::ResourceInfo {
            mapping,
            namespace: if namespaced { self.namespace.clone() } else { String::new() },
            name: self.name.clone(),
            ..Default::default()
        };
        let options = RequestOptions {
            dry_run: self.dry_run,
            field_manager: self.session.flags.string("field-manager"),
            field_validation: self.validation.parameter().to_owned(),
            force: false,
        };
        let body = crate::printers::typed_value(&object);
        let created = info
            .create(self.session.client()?, &body, &options)
            .map_err(|error| if failure.is_empty() { error } else { CommandError::new(format!("{failure}{error}")) })?;
        self.printer.print_typed(&created)
    }
}

/// Runs a generator.
pub fn run_generator(session: &Session, path: &str) -> CommandResult {
    if ["secret", "service"].contains(&path) {
        return crate::usage::run_parent_command(session);
    }
    if path == "token" {
        return token::run(session);
    }
    let generator = Generator::new(session)?;
    match path {
        "namespace" => simple::namespace(&generator),
        "quota" => simple::quota(&generator),
        "serviceaccount" => simple::service_account(&generator),
        "poddisruptionbudget" => simple::disruption_budget(&generator),
        "priorityclass" => simple::priority_class(&generator),
        "configmap" => config_data::config_map(&generator),
        "secret generic" => config_data::generic_secret(&generator),
        "secret docker-registry" => config_data::registry_secret(&generator),
        "secret tls" => config_data::tls_secret(&generator),
        "deployment" => workload::deployment(&generator),
        "job" => workload::job(&generator),
        "cronjob" => workload::cron_job(&generator),
        "role" => rbac::role(&generator),
        "clusterrole" => rbac::cluster_role(&generator),
        "rolebinding" => rbac::role_binding(&generator),
        "clusterrolebinding" => rbac::cluster_role_binding(&generator),
        "ingress" => ingress::ingress(&generator),
        "service clusterip" => service::service(&generator, "ClusterIP"),
        "service nodeport" => service::service(&generator, "NodePort"),
        "service loadbalancer" => service::service(&generator, "LoadBalancer"),
        "service externalname" => service::service(&generator, "ExternalName"),
        other => crate::bail!("create {other} is not supported by this kubectl"),
    }
}
