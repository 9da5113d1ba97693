//! `kubectl run`

use api::{Value, json::go_quote};
use serde_json::json;

use super::{
    delete::{DeleteOptions, delete_object},
    workload_generator::WorkloadGenerator,
};
use crate::{
    discovery::RestMapping,
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
    merge_patch::type_of_object,
    object::ObjectFields,
    outln,
    printers::{ObjectPrinter, typed_value},
    resource::{DryRun, RequestOptions, ResourceInfo},
    session::Session,
    usage::usage_error,
};

/// Creates and runs a pod.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let printer = ObjectPrinter::from_flags(flags, &format!("created{}", dry_run.suffix()))?;
    let (stdin, tty) = (flags.bool("stdin"), flags.bool("tty"));
    let attach = if flags.changed("attach") { flags.bool("attach") } else { stdin || tty };
    let count = flags.dash_position.unwrap_or(flags.arguments.len());
    if count == 0 {
        return Err(usage_error(session, "NAME is required for run"));
    }
    if flags.duration("pod-running-timeout") <= 0 {
        return Err(usage_error(session, "--pod-running-timeout must be higher than zero"));
    }
    let image = flags.string("image");
    if image.is_empty() {
        crate::bail!("--image is required");
    }
    check_image(&image)?;
    if tty && !stdin {
        return Err(usage_error(session, "-i/--stdin is required for containers with -t/--tty=true"));
    }
    if flags.bool("expose") && flags.string("port").is_empty() {
        return Err(usage_error(session, "--port must be set when exposing a service"));
    }
    let (namespace, explicit) = session.namespace()?;
    let restart = restart_policy(session)?;
    if flags.bool("rm") && !attach {
        return Err(usage_error(session, "--rm should only be used for attached containers"));
    }
    if attach && dry_run != DryRun::None {
        return Err(usage_error(
            session,
            "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)",
        ));
    }
    let policy = flags.string("image-pull-policy");
    if !["", "Always", "IfNotPresent", "Never"].contains(&policy.as_str()) {
        return Err(usage_error(session, &format!("invalid image pull policy: {policy}")));
    }
    let namespace_field = if explicit { namespace.clone() } else { String::new() };
    let pod = make_pod(flags, &restart, &namespace_field)?;
    let generator = WorkloadGenerator::from_session(session, &restart)?;
    let object = generator.wrap(flags, pod);
    let object = apply_overrides(object, &flags.string("overrides"), &flags.string("override-type"))?;
    let creator = ObjectCreator { session, namespace, dry_run, printer };
    let created = creator.create_only(object, generator.resource())?;
    let exposed = if flags.bool("expose") { creator.expose(make_service(flags, &namespace_field)?) } else { Ok(()) };
    if attach {
        let outcome = super::new_pod::attach_to_new_pod(session, &created, &restart);
        if flags.bool("rm") {
            remove_created(session, &created)?;
        }
        return outcome;
    }
    creator.printer.print_typed(&created)?;
    exposed
}

/// Deletes the pod and the service that `--rm` asks for.
fn remove_created(session: &Session, pod: &Value) -> CommandResult {
    let mut mappings = vec![super::new_pod::pod_mapping()];
    if session.flags.bool("expose") {
        let service = RestMapping { kind: "Service".into(), resource: "services".into(), ..mappings[0].clone() };
        mappings.push(service);
    }
    let quiet = session.flags.bool("quiet");
    let options = DeleteOptions { grace_period: -1, propagation: "Background".into(), quiet, ..Default::default() };
    for mapping in mappings {
        let info = ResourceInfo::from_object(mapping, pod.clone());
        delete_object(session.client()?, &info, &options)?;
    }
    Ok(())
}

fn restart_policy(session: &Session) -> CommandResult<String> {
    match session.flags.string("restart").as_str() {
        "" if session.flags.bool("stdin") => Ok("OnFailure".to_owned()),
        "" | "Always" => Ok("Always".to_owned()),
        "OnFailure" => Ok("OnFailure".to_owned()),
        "Never" => Ok("Never".to_owned()),
        other => Err(usage_error(session, &format!("invalid restart policy: {other}"))),
    }
}

/// Refuses image names that no registry accepts.
pub fn check_image(image: &str) -> CommandResult {
    if is_image_reference(image) {
        return Ok(());
    }
    crate::bail!("Invalid image name {}: invalid reference format", go_quote(image))
}

/// Whether a text is `[host[:port]/]path[:tag][@digest]`.
pub fn is_image_reference(image: &str) -> bool {
    const PATTERN: &str = r"^(?:(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$";
    regex_lite::Regex::new(PATTERN).is_ok_and(|pattern| pattern.is_match(image))
}

fn parse_labels(text: &str) -> CommandResult<Value> {
    let mut labels = json!({});
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            crate::bail!("unexpected label spec: {pair}");
        };
        labels[key] = value.into();
    }
    Ok(labels)
}

fn make_pod(flags: &FlagSet, restart: &str, namespace: &str) -> CommandResult<Value> {
    let name = flags.arguments.first().cloned().unwrap_or_default();
    let labels = match flags.string("labels").as_str() {
        "" => json!({"run": name}),
        text => parse_labels(text)?,
    };
    let mut metadata = json!({"name": name, "labels": labels});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    for pair in flags.strings("annotations") {
        let Some((key, value)) = pair.split_once('=') else {
            crate::bail!("invalid annotations format: {pair}");
        };
        metadata["annotations"][key] = value.into();
    }
    let mut container = json!({"name": name, "image": flags.string("image")});
    let policy = flags.string("image-pull-policy");
    if !policy.is_empty() {
        container["imagePullPolicy"] = policy.into();
    }
    for variable in flags.strings("env") {
        let Some((key, value)) =
            variable.split_once('=').filter(|(key, _)| crate::environment_name::check_environment_name(key).is_empty())
        else {
            crate::bail!("invalid env: {variable}");
        };
        let entry = json!({"name": key, "value": value});
        match container.get_mut("env").and_then(Value::as_array_mut) {
            Some(list) => list.push(entry),
            None => container["env"] = json!([entry]),
        }
    }
    let port = flags.string("port");
    if !port.is_empty() {
        container["ports"] = json!([{"containerPort": parse_port(&port)?}]);
    }
    if flags.bool("stdin") {
        container["stdin"] = true.into();
        if restart == "Never" {
            container["stdinOnce"] = true.into();
        }
    }
    if flags.bool("tty") {
        container["tty"] = true.into();
    }
    if flags.bool("privileged") {
        container["securityContext"] = json!({"privileged": true});
    }
    let arguments: Vec<String> = flags.arguments.iter().skip(1).cloned().collect();
    if !arguments.is_empty() {
        container[if flags.bool("command") { "command" } else { "args" }] = arguments.into();
    }
    let spec = json!({"containers": [container], "restartPolicy": restart, "dnsPolicy": "ClusterFirst"});
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

fn parse_port(text: &str) -> CommandResult<i64> {
    text.parse::<i64>()
        .map_err(|_| CommandError::new(format!("strconv.Atoi: parsing {}: invalid syntax", go_quote(text))))
}

fn make_service(flags: &FlagSet, namespace: &str) -> CommandResult<Value> {
    let name = flags.arguments.first().cloned().unwrap_or_default();
    let labels = match flags.string("labels").as_str() {
        "" => json!({"run": name}),
        text => parse_labels(text)?,
    };
    let port = parse_port(&flags.string("port"))?;
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    if !flags.string("labels").is_empty() {
        metadata["labels"] = labels.clone();
    }
    Ok(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"ports": [{"protocol": "TCP", "port": port, "targetPort": port}], "selector": labels}}))
}

/// Applies `--overrides` to a generated object.
pub fn apply_overrides(object: Value, overrides: &str, kind: &str) -> CommandResult<Value> {
    if overrides.is_empty() {
        return Ok(object);
    }
    let patch: Value = match (serde_json::from_str(overrides), api::yaml::parse(overrides.as_bytes())) {
        (Ok(patch), _) => patch,
        // The library that merges has one word for everything that is not JSON.
        _ if ["merge", ""].contains(&kind) => crate::bail!("Invalid JSON Patch"),
        (_, Err(error)) => crate::bail!("{error}"),
        (Err(error), _) => crate::bail!("{error}"),
    };
    let patch_type = match kind {
        "json" => api::patch::PatchType::Json,
        "strategic" => api::patch::PatchType::Strategic,
        "merge" | "" => api::patch::PatchType::Merge,
        other => crate::bail!("invalid override type: {other}"),
    };
    let ty = type_of_object(&object).ok_or_else(|| CommandError::new("unknown type"))?;
    let typed = typed_value(&object);
    let patched = match (patch_type, &patch) {
        // A merge patch that is no object replaces the whole.
        (api::patch::PatchType::Merge, Value::Object(_))
        | (api::patch::PatchType::Json | api::patch::PatchType::Strategic, _) => {
            patch_type.apply_patch(ty, &typed, &patch).map_err(|error| CommandError::new(error.to_string()))?
        }
        _ => patch,
    };
    check_registered(&patched)?;
    Ok(patched)
}

/// Refuses an object whose kind this program does not know.
fn check_registered(object: &Value) -> CommandResult {
    if !object.is_object() {
        return Err(crate::manifest::type_meta_error(object));
    }
    if api::json_encoder::declared_type(object).is_none() {
        return Err(crate::manifest::unregistered_kind(object.text("kind"), object.text("apiVersion")));
    }
    Ok(())
}

/// Creates generated objects and prints them.
pub struct ObjectCreator<'a> {
    /// The running command.
    pub session: &'a Session,
    /// The namespace.
    pub namespace: String,
    /// The dry run strategy.
    pub dry_run: DryRun,
    /// The printer.
    pub printer: ObjectPrinter,
}

impl ObjectCreator<'_> {
    /// Creates an object and prints it.
    pub fn create(&self, object: Value, resource: &str) -> CommandResult {
        let created = self.create_only(object, resource)?;
        self.printer.print_typed(&created)
    }

    /// Creates the service of `--expose` and prints it; documents of YAML are separated.
    fn expose(&self, service: Value) -> CommandResult {
        self.create(service, "services")?;
        if self.session.flags.string("output") == "yaml" {
            outln!("---");
        }
        Ok(())
    }

    /// Creates an object, unless it is a dry run of the client.
    pub fn create_only(&self, mut object: Value, resource: &str) -> CommandResult<Value> {
        self.session.mapping_of(&object)?;
        if self.session.flags.bool("save-config") && self.dry_run != DryRun::Client {
            object = typed_value(&object);
            crate::last_applied::set_typed_last_applied(&mut object);
        }
        super::record::record_command(self.session, &mut object);
        if self.dry_run == DryRun::Client {
            return Ok(object);
        }
        let (group, version, kind) = crate::object::group_version_kind(&object);
        let mapping = RestMapping { group, version, kind, resource: resource.to_owned(), namespaced: true };
        let namespace = match object.text("metadata.namespace") {
            "" => self.namespace.clone(),
            own => own.to_owned(),
        };
        let info = ResourceInfo { mapping, namespace, ..Default::default() };
        let options = RequestOptions {
            dry_run: self.dry_run,
            field_manager: self.session.flags.string("field-manager"),
            ..Default::default()
        };
        info.create(self.session.client()?, &typed_value(&object), &options)
    }
}
