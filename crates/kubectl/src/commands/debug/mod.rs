//! `kubectl debug`: an ephemeral container, a copy of a pod, or a pod on a node.

mod profile;

use api::{Value, json::go_quote};
use profile::{DebugStyle, KeptParts, apply_profile, container_mut};
use serde_json::json;

use super::{
    attach::ContainerAttachment,
    container_streams::LocalStreams,
    logs::print_log,
    new_pod::{attach_or_print_log, pod_mapping, wait_for_pod},
    run_pod::is_image_reference,
};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    merge_patch::diff_strategic,
    object::{ObjectFields, name_of, namespace_of},
    outln,
    resource::{PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    rest::RestRequest,
    session::Session,
};

/// A debugging session.
struct DebugRun<'a> {
    session: &'a Session,
    namespace: String,
    arguments: Vec<String>,
    environment: Vec<Value>,
    custom: Option<Value>,
}

/// Starts debugging containers.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let all = session.arguments();
    let (targets, arguments) = match flags.dash_position {
        Some(at) if all.len() > at => (all[..at].to_vec(), all[at..].to_vec()),
        _ => (all.to_vec(), Vec::new()),
    };
    let mut builder = ResourceBuilder::from_session(session)?;
    profile::check_name(&flags.string("profile"))?;
    let custom = load_custom_profile(&flags.string("custom"))?;
    let pairs = flags.pairs("env");
    let environment = pairs.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let run = DebugRun { session, namespace: builder.namespace.clone(), arguments, environment, custom };
    run.check(&targets, builder.has_files())?;
    builder.default_resource = "pods".to_owned();
    builder.arguments = targets;
    builder.latest = true;
    builder.visit(session, &mut |info| run.visit(&info))
}

fn load_custom_profile(path: &str) -> CommandResult<Option<Value>> {
    if path.is_empty() {
        return Ok(None);
    }
    let bytes = crate::files::read_file(path).map_err(|error| {
        CommandError::new(format!("must pass a container spec json file for custom profile: {error}"))
    })?;
    match api::yaml::parse(&bytes) {
        Ok(document) if document.value.is_object() => Ok(Some(document.value)),
        Ok(_) => crate::bail!("{path} does not contain a valid container spec: it is not an object"),
        Err(error) => crate::bail!("{path} does not contain a valid container spec: {error}"),
    }
}

impl DebugRun<'_> {
    fn check(&self, targets: &[String], has_files: bool) -> CommandResult {
        let flags = &self.session.flags;
        let text = |name: &str| flags.string(name);
        let (image, container) = (text("image"), text("container"));
        if flags.bool("attach") && image.is_empty() && container.is_empty() {
            crate::bail!("you must specify --container or create a new container using --image in order to attach.");
        }
        let images = flags.pairs("set-image");
        if !text("copy-to").is_empty() {
            if image.is_empty() && images.is_empty() && self.arguments.is_empty() {
                crate::bail!("you must specify --image, --set-image or command arguments.");
            }
            if !self.arguments.is_empty() && container.is_empty() && image.is_empty() {
                crate::bail!("you must specify an existing container or a new image when specifying args.");
            }
        } else if flags.bool("replace") {
            crate::bail!("--replace may only be used with --copy-to.");
        } else if flags.bool("same-node") {
            crate::bail!("--same-node may only be used with --copy-to.");
        } else if !images.is_empty() {
            crate::bail!("--set-image may only be used with --copy-to.");
        } else if image.is_empty() {
            crate::bail!("you must specify --image when not using --copy-to.");
        }
        if !image.is_empty() && !is_image_reference(&image) {
            crate::bail!("invalid image name {}: invalid reference format", go_quote(&image));
        }
        if targets.is_empty() && !has_files {
            crate::bail!("NAME or filename is required for debug");
        }
        let policy = text("image-pull-policy");
        if !["", "Always", "IfNotPresent", "Never"].contains(&policy.as_str()) {
            crate::bail!("invalid image pull policy: {policy}");
        }
        for (name, image) in &images {
            if !is_image_reference(image) {
                let (image, name) = (go_quote(image), go_quote(name));
                crate::bail!("invalid image name {image} for container {name}: invalid reference format");
            }
        }
        self.check_target()?;
        if flags.bool("tty") && !flags.bool("stdin") {
            crate::bail!("-i/--stdin is required for containers with -t/--tty=true");
        }
        let fixed = ["name", "command", "image", "lifecycle", "volumeDevices"];
        if self.custom.as_ref().is_some_and(|custom| fixed.iter().any(|field| custom.at(field).is_some())) {
            crate::bail!("name, command, image, lifecycle and volume devices are not modifiable via custom profile");
        }
        if text("profile") == "legacy" {
            errln!(
                "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify \
                 other profile, for example \"--profile=general\"."
            );
        }
        Ok(())
    }

    fn check_target(&self) -> CommandResult {
        let flags = &self.session.flags;
        let target = flags.string("target");
        if target.is_empty() {
            return Ok(());
        }
        if !flags.string("copy-to").is_empty() {
            crate::bail!("--target is incompatible with --copy-to. Use --share-processes instead.");
        }
        if !flags.bool("quiet") {
            outln!(
                "Targeting container {}. If you don't see processes from this container it may be because the \
                 container runtime doesn't support this feature.",
                go_quote(&target)
            );
        }
        Ok(())
    }

    fn visit(&self, info: &ResourceInfo) -> CommandResult {
        let mapping = &info.mapping;
        check_pod_shape(&info.object)?;
        let (pod, container) = match (mapping.group.as_str(), mapping.kind.as_str()) {
            ("", "Node") => self.debug_node(&info.object)?,
            ("", "Pod") if !self.session.flags.string("copy-to").is_empty() => self.debug_copy(&info.object)?,
            ("", "Pod") => self.debug_ephemeral(&info.object)?,
            _ => {
                let shown = format!("{}, Kind={}", [&*mapping.group, &mapping.version].join("/"), mapping.kind);
                crate::bail!("{} not supported by debug", go_quote(&shown))
            }
        };
        let flags = &self.session.flags;
        let attach = if flags.changed("attach") { flags.bool("attach") } else { flags.bool("stdin") };
        if attach && !container.is_empty() { self.attach(&pod, &container) } else { Ok(()) }
    }

    /// The fields of a new container that flags set.
    fn new_container(&self, name: &str) -> Value {
        let flags = &self.session.flags;
        let mut container = json!({"name": name, "image": flags.string("image"), "terminationMessagePolicy": "File"});
        if !self.environment.is_empty() {
            container["env"] = self.environment.clone().into();
        }
        let policy = flags.string("image-pull-policy");
        if !policy.is_empty() {
            container["imagePullPolicy"] = policy.into();
        }
        self.set_terminal(&mut container);
        if !self.arguments.is_empty() {
            let field = if flags.bool("arguments-only") { "args" } else { "command" };
            container[field] = self.arguments.clone().into();
        }
        container
    }

    fn set_terminal(&self, container: &mut Value) {
        for field in ["stdin", "tty"] {
            if self.session.flags.bool(field) {
                container[field] = true.into();
            } else if let Some(map) = container.as_object_mut() {
                map.remove(field);
            }
        }
    }

    fn apply_custom(&self, pod: &mut Value, name: &str) -> CommandResult {
        let Some(custom) = &self.custom else { return Ok(()) };
        let Some(container) = container_mut(pod, name) else {
            crate::bail!("unable to find the {name} container in the pod");
        };
        let mut patch = custom.clone();
        patch["name"] = name.into();
        let ty = api::schema::schema()
            .type_named("core/v1.Container")
            .ok_or_else(|| CommandError::new("unknown type Container"))?;
        *container = api::patch::PatchType::Strategic
            .apply_patch(ty, container, &patch)
            .map_err(|error| CommandError::new(error.to_string()))?;
        Ok(())
    }

    fn profile(&self) -> String {
        self.session.flags.string("profile")
    }

    fn debug_node(&self, node: &Value) -> CommandResult<(Value, String)> {
        let flags = &self.session.flags;
        let name = match flags.string("container") {
            name if name.is_empty() => "debugger".to_owned(),
            name => name,
        };
        let pod_name = format!("node-debugger-{}-{}", name_of(node), random_suffix());
        if !flags.bool("quiet") {
            outln!("Creating debugging pod {pod_name} with container {name} on node {}.", name_of(node));
        }
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod_name, "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}},
            "spec": {"containers": [self.new_container(&name)], "nodeName": name_of(node), "restartPolicy": "Never",
                "tolerations": [{"operator": "Exists"}]}});
        apply_profile(&self.profile(), &mut pod, &name, DebugStyle::Node, &KeptParts::default());
        self.apply_custom(&mut pod, &name)?;
        Ok((self.create_pod(&pod, &self.namespace)?, name))
    }

    fn create_pod(&self, pod: &Value, namespace: &str) -> CommandResult<Value> {
        let info = ResourceInfo { mapping: pod_mapping(), namespace: namespace.to_owned(), ..Default::default() };
        info.create(self.session.client()?, pod, &RequestOptions::default())
    }

    fn debug_ephemeral(&self, pod: &Value) -> CommandResult<(Value, String)> {
        let name = self.container_name(pod);
        let mut container = self.new_container(&name);
        let target = self.session.flags.string("target");
        if !target.is_empty() {
            container["targetContainerName"] = target.into();
        }
        let mut changed = pod.clone();
        match changed["spec"].get_mut("ephemeralContainers").and_then(Value::as_array_mut) {
            Some(list) => list.push(container),
            None => changed["spec"]["ephemeralContainers"] = json!([container]),
        }
        apply_profile(&self.profile(), &mut changed, &name, DebugStyle::Ephemeral, &KeptParts::default());
        self.apply_custom(&mut changed, &name)?;
        warn_about_user(&changed, &name);
        let ty = crate::merge_patch::type_of_object(pod).ok_or_else(|| CommandError::new("unknown type Pod"))?;
        let patch = diff_strategic(ty, pod, &changed);
        let mut info = ResourceInfo::from_object(pod_mapping(), pod.clone());
        info.subresource = "ephemeralcontainers".to_owned();
        let options = RequestOptions::default();
        let patched = info.patch(self.session.client()?, PatchKind::Strategic, patch.to_string(), &options);
        match patched {
            Err(CommandError::Status(status))
                if status.reason() == "NotFound" && status.status.text("details.name").is_empty() =>
            {
                crate::bail!(
                    "ephemeral containers are disabled for this cluster (error from server: {})",
                    go_quote(status.message())
                )
            }
            outcome => Ok((outcome?, name)),
        }
    }

    fn debug_copy(&self, pod: &Value) -> CommandResult<(Value, String)> {
        let flags = &self.session.flags;
        let (mut copy, name) = self.copy_pod(pod)?;
        if !name.is_empty() {
            let kept = KeptParts::from_flags(flags);
            apply_profile(&self.profile(), &mut copy, &name, DebugStyle::PodCopy, &kept);
            self.apply_custom(&mut copy, &name)?;
            warn_about_user(&copy, &name);
        }
        let created = self.create_pod(&copy, namespace_of(pod))?;
        if flags.bool("replace") {
            let path = pod_mapping().path(namespace_of(pod), name_of(pod));
            let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
            self.session.client()?.send_json(RestRequest::new(http::Method::DELETE, path).with_json(&body))?;
        }
        Ok((created, name))
    }

    /// The copy, and the container that is debugged in it; none if only images change.
    fn copy_pod(&self, pod: &Value) -> CommandResult<(Value, String)> {
        let flags = &self.session.flags;
        let mut metadata = json!({"name": flags.string("copy-to"), "namespace": namespace_of(pod)});
        for field in ["annotations", "labels"] {
            if let Some(value) = pod["metadata"].at(field) {
                metadata[field] = value.clone();
            }
        }
        let mut spec = pod["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("ephemeralContainers");
            if flags.changed("share-processes") {
                fields.insert("shareProcessNamespace".into(), flags.bool("share-processes").into());
            }
            if !flags.bool("same-node") {
                fields.remove("nodeName");
            }
        }
        let images = flags.pairs("set-image");
        for container in spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
            let own = images.iter().rev().find(|(name, _)| name == container.text("name"));
            if let Some((_, image)) = own.or_else(|| images.iter().rev().find(|(name, _)| name == "*")) {
                container["image"] = image.clone().into();
            }
        }
        let mut copy = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let mut name = flags.string("container");
        if name.is_empty() || container_mut(&mut copy, &name).is_none() {
            if flags.string("image").is_empty() {
                if !images.is_empty() {
                    return Ok((copy, String::new()));
                }
                crate::bail!("you must specify image when creating new container");
            }
            if name.is_empty() {
                name = self.container_name(&copy);
            }
            if let Some(list) = copy["spec"].get_mut("containers").and_then(Value::as_array_mut) {
                list.push(json!({"name": name, "terminationMessagePolicy": "File"}));
            }
        }
        if let Some(container) = container_mut(&mut copy, &name) {
            self.change_container(container);
        }
        Ok((copy, name))
    }

    fn change_container(&self, container: &mut Value) {
        let flags = &self.session.flags;
        if !self.arguments.is_empty() {
            if flags.bool("arguments-only") {
                container["args"] = self.arguments.clone().into();
            } else {
                container["command"] = self.arguments.clone().into();
                crate::object::remove_path(container, "args");
            }
        }
        if !self.environment.is_empty() {
            container["env"] = self.environment.clone().into();
        }
        for (flag, field) in [("image", "image"), ("image-pull-policy", "imagePullPolicy")] {
            let value = flags.string(flag);
            if !value.is_empty() {
                container[field] = value.into();
            }
        }
        self.set_terminal(container);
    }

    fn container_name(&self, pod: &Value) -> String {
        let name = self.session.flags.string("container");
        if !name.is_empty() {
            return name;
        }
        let mut name = format!("debugger-{}", random_suffix());
        while super::pod_selection::find_container(pod, &name).is_some() {
            name = format!("debugger-{}", random_suffix());
        }
        if !self.session.flags.bool("quiet") {
            outln!("Defaulting debug container name to {name}.");
        }
        name
    }

    /// Waits for the container and attaches to it; prints its log if it has ended.
    fn attach(&self, pod: &Value, name: &str) -> CommandResult {
        let quiet = self.session.flags.bool("quiet");
        let pod = wait_for_pod(self.session, pod, -1, &mut |pod| {
            let Some(state) = container_state(pod, name) else { return false };
            if state.at("running").is_some() || state.at("terminated").is_some() {
                return true;
            }
            let message = state.text("waiting.message");
            if !quiet && !message.is_empty() {
                errln!("Warning: container {name}: {message}");
            }
            false
        })?;
        if container_state(&pod, name).is_some_and(|state| state.at("terminated").is_some()) {
            return print_log(self.session, &pod, name);
        }
        let streams = LocalStreams::from_flags(self.session);
        let attachment =
            ContainerAttachment { pod: &pod, container: name.to_owned(), streams, detach_keys: String::new() };
        attach_or_print_log(self.session, &pod, name, attachment)
    }
}

fn container_state<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .flat_map(|list| pod.list(&format!("status.{list}")))
        .find(|status| status.text("name") == name)
        .and_then(|status| status.at("state"))
}

/// Warns that capabilities have no effect for a user other than root.
fn warn_about_user(pod: &Value, name: &str) {
    let Some((container, _)) = super::pod_selection::find_container(pod, name) else { return };
    let is_root = |user: Option<i64>| user.is_none_or(|user| user == 0);
    if is_root(pod.integer("spec.securityContext.runAsUser")) {
        return;
    }
    let Some(context) = container.at("securityContext") else { return };
    if context.integer("runAsUser") == Some(0) {
        return;
    }
    if context.flag("privileged") || !context.list("capabilities.add").is_empty() {
        errln!(
            "Warning: Non-root user is configured for the entire target Pod, and some capabilities granted by debug \
             profile may not work. Please consider using \"--custom\" with a custom profile that specifies \
             \"securityContext.runAsUser: 0\"."
        );
    }
}

/// Five characters that make no words.
fn random_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[fastrand::usize(..LETTERS.len())])).collect()
}

/// Refuses an object whose spec or containers are of other types than a pod's.
fn check_pod_shape(pod: &Value) -> CommandResult {
    let wrong = |value: &Value, go_type: &str| {
        let found = api::json::value_type_name(value);
        CommandError::new(format!("json: cannot unmarshal {found} into Go struct field Pod.spec of type {go_type}"))
    };
    if let Some(spec) = pod.get("spec").filter(|spec| !spec.is_object() && !spec.is_null()) {
        return Err(wrong(spec, "v1.PodSpec"));
    }
    let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
    let containers = lists.iter().flat_map(|list| pod.list(list));
    containers.filter(|item| !item.is_object()).try_for_each(|item| Err(wrong(item, "v1.Container")))
}
