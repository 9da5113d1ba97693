//! ApplySets: a parent object that names the kinds and namespaces of its members, so that pruning finds them by label.

use std::collections::{BTreeMap, BTreeSet};

use api::{Value, json::go_quote};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::ApplyRun;
use crate::{
    commands::delete::{DeleteOptions, delete_object},
    discovery::RestMapping,
    errors::{CommandError, CommandResult, PartialResource},
    object::{ObjectFields, set_path},
    outln,
    resource::{DryRun, PatchKind, RequestOptions, ResourceInfo, set_type_meta},
    rest::{RestRequest, log_line},
    session::Session,
};

const PART_OF: &str = "applyset.kubernetes.io/part-of";
const PARENT_ID: &str = "applyset.kubernetes.io/id";
const PARENT_DEFINITION: &str = "applyset.kubernetes.io/is-parent-type";
const TOOLING: &str = "applyset.kubernetes.io/tooling";
const GROUP_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
const GROUP_RESOURCES: &str = "applyset.kubernetes.io/contains-group-resources";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const FIELD_MANAGER: &str = "kubectl-applyset";

/// The members of a set: kinds as `Kind.group`, and namespaces.
#[derive(Clone, Debug, Default)]
struct SetMembers {
    kinds: BTreeMap<String, RestMapping>,
    namespaces: BTreeSet<String>,
}

/// A set that an apply belongs to.
#[derive(Debug)]
pub struct ApplySet {
    parent: ResourceInfo,
    current: SetMembers,
    updated: SetMembers,
}

impl ApplySet {
    /// The set of `--applyset`, if the flag is given.
    pub fn from_session(session: &Session) -> CommandResult<Option<Self>> {
        let reference = session.flags.string("applyset");
        if reference.is_empty() {
            return Ok(None);
        }
        let parent = parse_parent(session, &reference)
            .map_err(|error| error.with_prefix(&format!("invalid parent reference {}: ", go_quote(&reference))))?;
        if !session.flags.bool("prune") {
            crate::bail!("--applyset requires --prune");
        }
        let set = ApplySet { parent, current: SetMembers::default(), updated: SetMembers::default() };
        set.check_parent(session)?;
        for name in ["all", "selector", "prune-allowlist"] {
            if session.flags.changed(name) {
                crate::bail!("--{name} is incompatible with --applyset");
            }
        }
        Ok(Some(set))
    }

    /// The label value of members: a hash of the parent's identity.
    fn id(&self) -> String {
        let parent = &self.parent;
        let text = format!("{}.{}.{}.{}", parent.name, parent.namespace, parent.mapping.kind, parent.mapping.group);
        format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes())))
    }

    fn has_builtin_parent(&self) -> bool {
        let mapping = &self.parent.mapping;
        mapping.group.is_empty() && ["secrets", "configmaps"].contains(&mapping.resource.as_str())
    }

    /// The parent in messages.
    fn parent_text(&self) -> String {
        let mapping = &self.parent.mapping;
        go_quote(&format!("{}.{}/{}", mapping.resource, mapping.group, self.parent.name))
    }

    fn check_parent(&self, session: &Session) -> CommandResult {
        let mut errors = Vec::new();
        let mapping = &self.parent.mapping;
        if mapping.namespaced && self.parent.namespace.is_empty() {
            errors.push(CommandError::new("namespace is required to use namespace-scoped ApplySet"));
        }
        if !self.has_builtin_parent() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let request = RestRequest::get(path).with_query("labelSelector", PARENT_DEFINITION);
            let list = session.client()?.send_json(request);
            let list = list.map_err(|error| error.with_prefix("identifying allowed custom resource parent types: "))?;
            let wanted = format!("{}.{}", mapping.resource, mapping.group);
            if !list.list("items").iter().any(|item| item.text("metadata.name") == wanted) {
                let place = format!("{}/{}, Resource={}", mapping.group, mapping.version, mapping.resource);
                let message = format!("resource {} is not permitted as an ApplySet parent", go_quote(&place));
                errors.push(CommandError::new(message));
            }
        }
        CommandError::join(errors)
    }

    /// Labels an object as a member.
    pub fn add_label(&self, info: &mut ResourceInfo) -> CommandResult {
        if info.object.map("metadata.labels").is_some_and(|labels| labels.contains_key(PART_OF)) {
            crate::bail!("ApplySet label {} already set in input data", go_quote(PART_OF));
        }
        if info.object.map("metadata.labels").is_none() {
            set_path(&mut info.object, "metadata.labels", json!({}));
        }
        if let Some(labels) = info.object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.insert(PART_OF.to_owned(), self.id().into());
        }
        Ok(())
    }

    /// Reads the parent and makes it cover the objects, before they are applied: nothing is lost if that fails.
    pub fn prepare(&mut self, run: &ApplyRun, infos: &[ResourceInfo]) -> CommandResult {
        self.load_parent(run.session)?;
        for info in infos {
            self.updated.kinds.insert(group_kind(&info.mapping), info.mapping.clone());
            if info.mapping.namespaced && !info.namespace.is_empty() {
                self.updated.namespaces.insert(info.namespace.clone());
            }
        }
        let mut all = self.updated.clone();
        all.kinds.extend(self.current.kinds.clone());
        all.namespaces.extend(self.current.namespaces.iter().cloned());
        self.update_parent(run, &all)
    }

    fn load_parent(&mut self, session: &Session) -> CommandResult {
        let name = self.parent_text();
        let parent = match self.parent.fetch(session.client()?) {
            Ok(parent) => parent,
            Err(error) if error.is_not_found() && self.has_builtin_parent() => return Ok(()),
            Err(error) if error.is_not_found() => {
                crate::bail!("custom resource ApplySet parents cannot be created automatically")
            }
            Err(error) => return Err(error.with_prefix(&format!("failed to fetch ApplySet parent object {name}: "))),
        };
        let entry = |map: &str, key: &str| {
            parent.map(map).and_then(|map| map.get(key)).and_then(Value::as_str).map(str::to_owned)
        };
        let Some(tooling) = entry("metadata.annotations", TOOLING) else {
            let annotation = go_quote(TOOLING);
            crate::bail!(
                "ApplySet parent object {name} already exists and is missing required annotation {annotation}"
            );
        };
        let tool = tooling.rsplit_once('/').map_or(tooling.as_str(), |(tool, _)| tool);
        if tool != "kubectl" {
            let tool = go_quote(tool);
            crate::bail!(
                "ApplySet parent object {name} already exists and is managed by tooling {tool} instead of \"kubectl\""
            );
        }
        match entry("metadata.labels", PARENT_ID) {
            None => crate::bail!("ApplySet parent object {name} exists and does not have required label {PARENT_ID}"),
            Some(id) if id != self.id() => crate::bail!(
                "ApplySet parent object {name} exists and has incorrect value for label {} (got: {id}, want: {})",
                go_quote(PARENT_ID),
                self.id()
            ),
            Some(_) => {}
        }
        let kinds = parse_kinds(
            session,
            entry("metadata.annotations", GROUP_KINDS),
            entry("metadata.annotations", GROUP_RESOURCES),
        );
        let wrong = |error: CommandError| error.with_prefix(&format!("parsing ApplySet annotation on {name}: "));
        self.current.kinds = kinds.map_err(wrong)?;
        let namespaces = entry("metadata.annotations", NAMESPACES).unwrap_or_default();
        self.current.namespaces = namespaces.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if self.parent.mapping.namespaced {
            self.current.namespaces.insert(self.parent.namespace.clone());
        }
        Ok(())
    }

    fn update_parent(&self, run: &ApplyRun, members: &SetMembers) -> CommandResult {
        if run.dry_run == DryRun::Client {
            return Ok(());
        }
        let kinds: Vec<&str> = members.kinds.keys().map(String::as_str).collect();
        let others: Vec<&str> =
            members.namespaces.iter().map(String::as_str).filter(|name| *name != self.parent.namespace).collect();
        let tooling = format!("kubectl/{}", api::KUBERNETES_VERSION);
        let annotations = json!({TOOLING: tooling, GROUP_KINDS: kinds.join(","), NAMESPACES: others.join(",")});
        let mut metadata =
            json!({"name": self.parent.name, "annotations": annotations, "labels": {PARENT_ID: self.id()}});
        if !self.parent.namespace.is_empty() {
            metadata["namespace"] = self.parent.namespace.clone().into();
        }
        let mapping = &self.parent.mapping;
        let body = json!({"kind": mapping.kind, "apiVersion": mapping.api_version(), "metadata": metadata}).to_string();
        let mut options = RequestOptions { field_manager: FIELD_MANAGER.to_owned(), ..run.options.clone() };
        options.force = false;
        let client = run.session.client()?;
        let failed = |error: CommandError| error.with_prefix("failed to update ApplySet: ");
        match self.parent.patch(client, PatchKind::Apply, body.clone(), &options) {
            Err(error) if error.is_conflict() => {
                let advice = format!(
                    "ApplySet field manager {FIELD_MANAGER} should own these fields. Retrying with conflicts forced."
                );
                log_line('W', "applyset.go:447", &format!("WARNING: failed to update ApplySet: {error}\n{advice}"));
                options.force = true;
                self.parent.patch(client, PatchKind::Apply, body, &options).map(drop).map_err(failed)
            }
            outcome => outcome.map(drop).map_err(failed),
        }
    }

    /// Deletes members that were not applied, and makes the parent name those that were.
    pub fn prune(&self, run: &ApplyRun, cascade: &str) -> CommandResult {
        for mapping in self.current.kinds.values() {
            let places: Vec<&str> = match mapping.namespaced {
                true => self.current.namespaces.iter().map(String::as_str).collect(),
                false => vec![""],
            };
            for place in places {
                self.prune_place(run, mapping, place, cascade)?;
            }
        }
        let updated = self.update_parent(run, &self.updated);
        updated.map_err(|error| error.with_prefix("apply and prune succeeded, but ApplySet update failed: "))
    }

    fn prune_place(&self, run: &ApplyRun, mapping: &RestMapping, namespace: &str, cascade: &str) -> CommandResult {
        let selector = format!("{PART_OF}={}", self.id());
        let request = RestRequest::get(mapping.path(namespace, "")).with_query("labelSelector", selector);
        let list = run.session.client()?.send_json(request).map_err(|error| {
            error.with_prefix(&format!(
                "listing {}, Kind={} objects for pruning: ",
                mapping.api_version(),
                mapping.kind
            ))
        })?;
        let options = DeleteOptions {
            grace_period: run.session.flags.int("grace-period"),
            propagation: cascade.to_owned(),
            dry_run: run.dry_run,
            names: false,
            quiet: true,
        };
        for item in list.list("items") {
            if run.visited.iter().any(|uid| uid == item.text("metadata.uid")) {
                continue;
            }
            let mut item = item.clone();
            set_type_meta(&mut item, mapping);
            let info = ResourceInfo::from_object(mapping.clone(), item);
            if run.dry_run != DryRun::Client {
                let place = if namespace.is_empty() { info.name.clone() } else { format!("{namespace}/{}", info.name) };
                let failed =
                    |error: CommandError| error.with_prefix(&format!("pruning {} {place}: ", group_kind(mapping)));
                delete_object(run.session.client()?, &info, &options).map_err(failed)?;
            }
            if run.printer.is_message() {
                outln!("{} pruned{}", info.object_name(), run.dry_run.suffix());
            } else if run.printer.prints_names() {
                outln!("{}", info.object_name());
            }
        }
        Ok(())
    }
}

/// `Kind.group`; of the core group `Kind` alone.
fn group_kind(mapping: &RestMapping) -> String {
    if mapping.group.is_empty() { mapping.kind.clone() } else { format!("{}.{}", mapping.kind, mapping.group) }
}

/// The parent of `[RESOURCE][.GROUP]/NAME`; a secret if there is a name only.
fn parse_parent(session: &Session, reference: &str) -> CommandResult<ResourceInfo> {
    let (resource, name) = reference.split_once('/').unwrap_or(("secrets", reference));
    if name.is_empty() {
        crate::bail!("name cannot be blank");
    }
    let unknown =
        || CommandError::NoResourceMatch(PartialResource { resource: resource.to_owned(), ..Default::default() });
    let mapping = session.look_up(|data| data.find_argument(resource))?.ok_or_else(unknown)?;
    // Only the flag counts, not the namespace of the context.
    let (namespace, explicit) = session.namespace()?;
    let namespace = if mapping.namespaced && explicit { namespace } else { String::new() };
    Ok(ResourceInfo { mapping, namespace, name: name.to_owned(), ..Default::default() })
}

fn parse_kinds(
    session: &Session,
    kinds: Option<String>,
    resources: Option<String>,
) -> CommandResult<BTreeMap<String, RestMapping>> {
    let mut found = BTreeMap::new();
    match (kinds, resources.filter(|text| !text.is_empty())) {
        (Some(kinds), _) => {
            for text in kinds.split(',').filter(|text| !text.is_empty()) {
                let (kind, group) = text.split_once('.').unwrap_or((text, ""));
                let mapping = session.mapping_for_kind(group, "", kind).map_err(|error| {
                    let annotation = go_quote(GROUP_KINDS);
                    error.with_prefix(&format!("could not find mapping for kind in {annotation} annotation: "))
                })?;
                found.insert(text.to_owned(), mapping);
            }
        }
        (None, Some(resources)) => {
            for text in resources.split(',') {
                let mapping = session.mapping_for_argument(text).map_err(|error| {
                    let annotation = go_quote(GROUP_RESOURCES);
                    error.with_prefix(&format!("invalid group resource in {annotation} annotation: "))
                })?;
                found.insert(group_kind(&mapping), mapping);
            }
        }
        (None, None) => crate::bail!(
            "kubectl requires the {} annotation to be set on all ApplySet parent objects",
            go_quote(GROUP_KINDS)
        ),
    }
    Ok(found)
}
