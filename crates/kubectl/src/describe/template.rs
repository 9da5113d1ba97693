//! Pod templates in descriptions.

use api::Value;

use super::{container::describe_containers, description::Description, volume::describe_volumes};
use crate::object::ObjectFields;

/// The description of a pod template on its own, as `rollout history` prints it.
pub fn describe_template(template: &Value) -> String {
    let mut out = Description::default();
    push_template(&mut out, template);
    out.into_raw()
}

/// Adds a pod template.
pub fn push_template(out: &mut Description, template: &Value) {
    out.raw("Pod Template:\n");
    if template.is_null() {
        out.raw("  <unset>");
        return;
    }
    out.map(1, "Labels", template.map("metadata.labels"));
    if template.map("metadata.annotations").is_some_and(|map| !map.is_empty()) {
        out.annotations(1, "Annotations", template.map("metadata.annotations"));
    }
    let account = template.text("spec.serviceAccountName");
    if !account.is_empty() {
        out.field(1, "Service Account", account);
    }
    let init = template.list("spec.initContainers");
    if !init.is_empty() {
        describe_containers(out, "Init Containers", init, &[], None, "  ");
    }
    describe_containers(out, "Containers", template.list("spec.containers"), &[], None, "  ");
    describe_volumes(out, template.list("spec.volumes"), "  ");
    topology_spread(out, template.list("spec.topologySpreadConstraints"), "  ");
    let priority = template.text("spec.priorityClassName");
    if !priority.is_empty() {
        out.field(1, "Priority Class Name", priority);
    }
    selectors(out, template.at("spec"), "  ");
}

/// Topology spread constraints.
pub fn topology_spread(out: &mut Description, constraints: &[Value], space: &str) {
    if constraints.is_empty() {
        return;
    }
    out.raw(&format!("{space}Topology Spread Constraints:\t"));
    for (at, constraint) in constraints.iter().enumerate() {
        if at > 0 {
            out.raw(&format!("{space}\t"));
        }
        let mut text = format!(
            "{}:{} when max skew {} is exceeded",
            constraint.text("topologyKey"),
            constraint.text("whenUnsatisfiable"),
            constraint.integer("maxSkew").unwrap_or(0)
        );
        if let Some(selector) = constraint.at("labelSelector") {
            text += &format!(" for selector {}", api::selector::format_label_selector(selector));
        }
        out.raw(&format!("{text}\n"));
    }
}

/// Node selectors and tolerations.
pub fn selectors(out: &mut Description, spec: Option<&Value>, space: &str) {
    let level = space.len() / 2;
    out.map(level, "Node-Selectors", spec.and_then(|spec| spec.map("nodeSelector")));
    let mut tolerations: Vec<String> =
        spec.map(|spec| spec.list("tolerations")).unwrap_or_default().iter().map(toleration_text).collect();
    tolerations.sort();
    if tolerations.is_empty() {
        out.raw(&format!("{space}Tolerations:\t<none>\n"));
        return;
    }
    for (at, text) in tolerations.iter().enumerate() {
        let label = if at == 0 { "Tolerations:" } else { "" };
        out.raw(&format!("{space}{label}\t{text}\n"));
    }
}

fn toleration_text(toleration: &Value) -> String {
    let mut text = toleration.text("key").to_owned();
    let (value, effect) = (toleration.text("value"), toleration.text("effect"));
    if !value.is_empty() {
        text += &format!("={value}");
    }
    if !effect.is_empty() {
        text += &format!(":{effect}");
    }
    if toleration.text("operator") == "Exists" && value.is_empty() {
        if !toleration.text("key").is_empty() || !effect.is_empty() {
            text += " ";
        }
        text += "op=Exists";
    }
    if let Some(seconds) = toleration.integer("tolerationSeconds") {
        text += &format!(" for {seconds}s");
    }
    text
}
