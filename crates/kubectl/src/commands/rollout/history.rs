//! `kubectl rollout history`, and the revisions that `undo` goes back to.

use std::collections::BTreeMap;

use api::{Value, selector::LabelSelector};

use super::make_builder;
use crate::{
    commands::record::CHANGE_CAUSE,
    describe::describe_template,
    errors::{CommandError, CommandResult},
    object::{self, ObjectFields},
    outln,
    output::write_out,
    printers::{ObjectPrinter, name_line},
    resource::ResourceInfo,
    rest::RestRequest,
    session::Session,
    tab_writer::TabWriter,
};

/// A revision: the pod template, or the object it belongs to.
#[derive(Clone, Debug)]
pub struct RolloutRevision {
    /// The pod template.
    pub template: Value,
    /// The change cause.
    pub cause: String,
    /// The `ControllerRevision` or `ReplicaSet`.
    pub object: Value,
}

/// Shows the revisions of objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let revision = flags.int("revision");
    if revision < 0 {
        crate::bail!("revision must be a positive integer: {revision}");
    }
    let builder = make_builder(session)?;
    let result = builder.build(session)?;
    let mut errors = result.errors;
    let printer = ObjectPrinter::from_flags(flags, "")?;
    for info in result.infos {
        if let Err(error) = show_history(session, &info, revision, &printer) {
            errors.push(error);
        }
    }
    CommandError::join(errors)
}

fn show_history(session: &Session, info: &ResourceInfo, revision: i64, printer: &ObjectPrinter) -> CommandResult {
    let revisions = load_revisions(session, info, ("history", "history viewer"))?;
    if !session.flags.string("output").is_empty() {
        if revision == 0 {
            return revisions.values().try_for_each(|revision| printer.print(&revision.object));
        }
        let Some(chosen) = revisions.get(&revision) else { crate::bail!("unable to find the specified revision") };
        return printer.print(&chosen.object);
    }
    if !printer.is_message() {
        if revision > 0 && !revisions.is_empty() && !revisions.contains_key(&revision) {
            crate::bail!("unable to find the specified revision");
        }
        // A template without `--output` is for the object itself.
        return printer.print(&info.object);
    }
    if revision > 0 && !revisions.is_empty() {
        let Some(chosen) = revisions.get(&revision) else { crate::bail!("unable to find the specified revision") };
        outln!("{} with revision #{revision}", name_line(&info.object));
        write_out(&format!("{}\n", describe_template(&template_with_cause(chosen))));
        return Ok(());
    }
    if revision > 0 {
        outln!("{} with revision #{revision}", name_line(&info.object));
    } else {
        outln!("{} ", name_line(&info.object));
    }
    if revisions.is_empty() {
        outln!("No rollout history found.");
        return Ok(());
    }
    let mut writer = TabWriter::new(0, 2);
    writer.push("REVISION\tCHANGE-CAUSE\n");
    for (number, revision) in &revisions {
        let cause = if revision.cause.is_empty() { "<none>" } else { &revision.cause };
        writer.push(&format!("{number}\t{cause}\n"));
    }
    write_out(&format!("{}\n", writer.flush()));
    Ok(())
}

/// The template, with the change cause among its annotations.
fn template_with_cause(revision: &RolloutRevision) -> Value {
    let mut template = revision.template.clone();
    if !revision.cause.is_empty() {
        if template.pointer("/metadata/annotations").is_none_or(Value::is_null) {
            object::set_path(&mut template, "metadata.annotations", serde_json::json!({}));
        }
        if let Some(map) = template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            map.insert(CHANGE_CAUSE.to_owned(), revision.cause.clone().into());
        }
    }
    template
}

/// The revisions of a Deployment, DaemonSet or StatefulSet, by number; the words are those of the error about other kinds.
pub fn load_revisions(
    session: &Session,
    info: &ResourceInfo,
    (what, helper): (&str, &str),
) -> CommandResult<BTreeMap<i64, RolloutRevision>> {
    const KNOWN: [&str; 5] = ["ReplicaSet", "ReplicationController", "Pod", "Job", "CronJob"];
    let (group, kind) = (&info.mapping.group, info.mapping.kind.as_str());
    let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    match kind {
        "Deployment" => replica_sets(session, info),
        "DaemonSet" | "StatefulSet" => controller_revisions(session, info),
        _ if KNOWN.contains(&kind) => {
            crate::bail!("no {helper} has been implemented for {}", api::json::go_quote(&shown))
        }
        _ => crate::bail!(
            "error retrieving {what} for {}, no visitor method exists for {{{group} {kind}}}",
            api::json::go_quote(&shown)
        ),
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object.map("metadata.annotations").and_then(|map| map.get(name)).and_then(Value::as_str).unwrap_or_default()
}

fn owned(object: &Value, owner: &Value) -> bool {
    let uid = owner.text("metadata.uid");
    object
        .list("metadata.ownerReferences")
        .iter()
        .any(|reference| reference.text("uid") == uid && reference.flag("controller"))
}

fn list_selected(session: &Session, info: &ResourceInfo, resource: &str) -> CommandResult<Vec<Value>> {
    let selector = info.object.at("spec.selector").cloned().unwrap_or_default();
    let text = api::selector::format_label_selector(&selector);
    let parsed = LabelSelector::from_object(&selector);
    let path = format!("/apis/apps/v1/namespaces/{}/{resource}", info.namespace);
    let list = session.client()?.send_json(RestRequest::get(path).with_optional("labelSelector", &text))?;
    let labels_match = |item: &&Value| {
        parsed.as_ref().map_or(true, |selector| selector.matches(item.at("metadata.labels").unwrap_or(&Value::Null)))
    };
    Ok(list.list("items").iter().filter(labels_match).filter(|item| owned(item, &info.object)).cloned().collect())
}

fn replica_sets(session: &Session, info: &ResourceInfo) -> CommandResult<BTreeMap<i64, RolloutRevision>> {
    let mut revisions = BTreeMap::new();
    for set in list_selected(session, info, "replicasets")? {
        let Ok(number) = annotation(&set, "deployment.kubernetes.io/revision").parse::<i64>() else { continue };
        let template = set.at("spec.template").cloned().unwrap_or_default();
        let mut object = set.clone();
        object["apiVersion"] = "apps/v1".into();
        object["kind"] = "ReplicaSet".into();
        revisions
            .insert(number, RolloutRevision { template, cause: annotation(&set, CHANGE_CAUSE).to_owned(), object });
    }
    Ok(revisions)
}

fn controller_revisions(session: &Session, info: &ResourceInfo) -> CommandResult<BTreeMap<i64, RolloutRevision>> {
    let mut revisions = BTreeMap::new();
    for item in list_selected(session, info, "controllerrevisions")? {
        let number = item.integer("revision").unwrap_or(0);
        let patched = api::patch::PatchType::Strategic
            .apply_patch(
                crate::merge_patch::type_of_object(&info.object).ok_or_else(|| CommandError::new("unknown type"))?,
                &info.object,
                item.at("data").unwrap_or(&Value::Null),
            )
            .map_err(|error| {
                CommandError::new(format!("unable to parse history {}: {error}", object::name_of(&item)))
            })?;
        let template = patched.at("spec.template").cloned().unwrap_or_default();
        revisions.insert(
            number,
            RolloutRevision { template, cause: annotation(&item, CHANGE_CAUSE).to_owned(), object: item },
        );
    }
    Ok(revisions)
}
