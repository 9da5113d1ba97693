//! `--prune`: deletes objects that were applied before and are no longer in the files.

use super::ApplyRun;
use crate::{
    commands::delete::{DeleteOptions, delete_object},
    discovery::RestMapping,
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    outln,
    resource::{DryRun, ResourceInfo, set_type_meta},
    rest::RestRequest,
    session::Session,
};

/// A kind to prune.
#[derive(Clone, Debug)]
pub struct PruneKind {
    group: String,
    version: String,
    kind: String,
    namespaced: bool,
}

const NAMESPACED: [(&str, &str, &str); 12] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Endpoints"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "Pod"),
    ("", "v1", "ReplicationController"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("batch", "v1", "Job"),
    ("batch", "v1", "CronJob"),
    ("networking.k8s.io", "v1", "Ingress"),
    ("apps", "v1", "DaemonSet"),
    ("apps", "v1", "Deployment"),
];
const MORE_NAMESPACED: [(&str, &str, &str); 2] = [("apps", "v1", "ReplicaSet"), ("apps", "v1", "StatefulSet")];
const CLUSTER_WIDE: [(&str, &str, &str); 2] = [("", "v1", "Namespace"), ("", "v1", "PersistentVolume")];

/// Parses `--prune-allowlist`.
pub fn parse_allowlist(session: &Session) -> CommandResult<Vec<PruneKind>> {
    let flags = &session.flags;
    if !flags.bool("prune") {
        return Ok(Vec::new());
    }
    let list = flags.strings("prune-allowlist");
    let mut kinds = Vec::new();
    for text in &list {
        let parts: Vec<&str> = text.split('/').collect();
        let [group, version, kind] = parts.as_slice() else {
            crate::bail!("invalid GroupVersionKind format: {text}, please follow <group/version/kind>");
        };
        let group = if *group == "core" { "" } else { group };
        let mapping = session.mapping_for_kind(group, version, kind)?;
        kinds.push(PruneKind {
            group: mapping.group,
            version: mapping.version,
            kind: mapping.kind,
            namespaced: mapping.namespaced,
        });
    }
    if list.is_empty() {
        let kind = |(group, version, kind): &(&str, &str, &str), namespaced| PruneKind {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
            kind: (*kind).to_owned(),
            namespaced,
        };
        kinds.extend(CLUSTER_WIDE.iter().map(|row| kind(row, false)));
        kinds.extend(NAMESPACED.iter().chain(&MORE_NAMESPACED).map(|row| kind(row, true)));
    }
    Ok(kinds)
}

/// Deletes what is not in the files any more.
pub fn prune(run: &mut ApplyRun, kinds: Vec<PruneKind>, cascade: &str) -> CommandResult {
    let namespaced: Vec<&PruneKind> = kinds.iter().filter(|kind| kind.namespaced).collect();
    prune_namespaces_note(run.session);
    let namespaces = run.namespaces.clone();
    for namespace in &namespaces {
        for kind in &namespaced {
            prune_kind(run, kind, namespace, cascade)?;
        }
    }
    for kind in kinds.iter().filter(|kind| !kind.namespaced) {
        prune_kind(run, kind, "", cascade)?;
    }
    Ok(())
}

fn prune_kind(run: &ApplyRun, kind: &PruneKind, namespace: &str, cascade: &str) -> CommandResult {
    let mapping = run.session.mapping_for_kind(&kind.group, &kind.version, &kind.kind)?;
    for info in find_pruned(run.session, &mapping, namespace, &run.visited)? {
        let options = DeleteOptions {
            grace_period: run.session.flags.int("grace-period"),
            propagation: cascade.to_owned(),
            dry_run: run.dry_run,
            names: false,
            quiet: true,
        };
        if run.dry_run != DryRun::Client {
            delete_object(run.session.client()?, &info, &options)?;
        }
        if run.printer.is_message() {
            outln!("{} pruned{}", info.object_name(), run.dry_run.suffix());
        } else if run.printer.prints_names() {
            outln!("{}", info.object_name());
        }
    }
    Ok(())
}

/// Says that cluster-wide kinds will not be pruned by default one day.
pub fn prune_namespaces_note(session: &Session) {
    if session.flags.strings("prune-allowlist").is_empty() {
        crate::rest::log_line(
            'W',
            "prune.go:94",
            "Deprecated: kubectl apply will no longer prune non-namespaced resources by default when used with the \
             --namespace flag in a future release. To preserve the current behaviour, list the resources you want to \
             target explicitly in the --prune-allowlist flag.",
        );
    }
}

/// All objects that `--prune` would delete.
pub fn find_prunable(session: &Session, namespaces: &[String], visited: &[String]) -> CommandResult<Vec<ResourceInfo>> {
    let mut found = Vec::new();
    let kinds = parse_allowlist(session)?;
    for kind in kinds.iter().filter(|kind| kind.namespaced) {
        let mapping = session.mapping_for_kind(&kind.group, &kind.version, &kind.kind)?;
        for namespace in namespaces {
            found.extend(find_pruned(session, &mapping, namespace, visited)?);
        }
    }
    for kind in kinds.iter().filter(|kind| !kind.namespaced) {
        let mapping = session.mapping_for_kind(&kind.group, &kind.version, &kind.kind)?;
        found.extend(find_pruned(session, &mapping, "", visited)?);
    }
    Ok(found)
}

/// The objects of a kind that were applied before and are not visited now.
pub fn find_pruned(
    session: &Session,
    mapping: &RestMapping,
    namespace: &str,
    visited: &[String],
) -> CommandResult<Vec<ResourceInfo>> {
    let request =
        RestRequest::get(mapping.path(namespace, "")).with_optional("labelSelector", &session.flags.string("selector"));
    let list = match session.client()?.send_json(request) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        other => other.map_err(|error: CommandError| error)?,
    };
    let mut out = Vec::new();
    for item in list.list("items") {
        let applied = item.map("metadata.annotations").is_some_and(|map| map.contains_key(crate::object::LAST_APPLIED));
        if !applied || visited.iter().any(|uid| uid == item.text("metadata.uid")) {
            continue;
        }
        let mut item = item.clone();
        set_type_meta(&mut item, mapping);
        out.push(ResourceInfo::from_object(mapping.clone(), item));
    }
    Ok(out)
}
