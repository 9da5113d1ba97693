//! Descriptions of volumes, claims, storage classes and CSI nodes.

use api::Value;

use super::{
    DescribeContext,
    description::{Description, format_time, scalar_text},
    volume::describe_source,
};
use crate::object::{ObjectFields, name_of, namespace_of};

fn bracketed(items: &[Value]) -> String {
    let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    format!("[{}]", texts.join(" "))
}

/// The short forms of access modes.
fn access_modes(items: &[Value]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let present = known.iter().filter(|(mode, _)| items.iter().any(|item| item == *mode));
    present.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// The phase, or since when the object is being deleted.
fn write_status(out: &mut Description, object: &Value) {
    let deletion = object.text("metadata.deletionTimestamp");
    if deletion.is_empty() {
        out.field(0, "Status", object.text("status.phase"));
    } else {
        out.field(0, "Status", &format!("Terminating (lasts {})", super::description::format_age(deletion)));
    }
}

/// The storage class: that of the old annotation, or of the field.
fn class_name(object: &Value) -> &str {
    let annotations = object.map("metadata.annotations");
    let old = annotations.and_then(|map| map.get("volume.beta.kubernetes.io/storage-class"));
    old.and_then(Value::as_str).unwrap_or_else(|| object.text("spec.storageClassName"))
}

/// PersistentVolumeClaims.
pub fn claim(context: &DescribeContext, out: &mut Description, claim: &Value) {
    out.field(0, "Name", name_of(claim));
    out.field(0, "Namespace", namespace_of(claim));
    out.field(0, "StorageClass", class_name(claim));
    write_status(out, claim);
    out.field(0, "Volume", claim.text("spec.volumeName"));
    out.map(0, "Labels", claim.map("metadata.labels"));
    out.annotations(0, "Annotations", claim.map("metadata.annotations"));
    out.field(0, "Finalizers", &bracketed(claim.list("metadata.finalizers")));
    let bound = !claim.text("spec.volumeName").is_empty();
    out.field(0, "Capacity", &if bound { scalar_text(claim.at("status.capacity.storage")) } else { String::new() });
    out.field(0, "Access Modes", &if bound { access_modes(claim.list("status.accessModes")) } else { String::new() });
    if !claim.text("spec.volumeMode").is_empty() {
        out.field(0, "VolumeMode", claim.text("spec.volumeMode"));
    }
    if let Some(source) = claim.at("spec.dataSource") {
        out.raw("DataSource:\n");
        if !source.text("apiGroup").is_empty() {
            out.field(1, "APIGroup", source.text("apiGroup"));
        }
        out.field(1, "Kind", source.text("kind"));
        out.field(1, "Name", source.text("name"));
    }
    let pods = context.list_in_chunks(&format!("/api/v1/namespaces/{}/pods", namespace_of(claim)), "", "");
    let uses = |pod: &&Value| {
        pod.list("spec.volumes").iter().any(|volume| volume.text("persistentVolumeClaim.claimName") == name_of(claim))
    };
    let mut users: Vec<&str> = pods.iter().filter(uses).map(name_of).collect();
    users.sort_unstable();
    out.raw("Used By:");
    if users.is_empty() {
        out.raw("\t<none>\n");
    }
    users.iter().for_each(|user| out.raw(&format!("\t{user}\n")));
    conditions(out, claim.list("status.conditions"));
    context.events(out, claim);
}

fn conditions(out: &mut Description, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    out.raw("Conditions:\n  Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage\n  ----\t------\t-----------------\t------------------\t------\t-------\n");
    for condition in conditions {
        out.raw(&format!(
            "  {} \t{} \t{} \t{} \t{} \t{}\n",
            condition.text("type"),
            condition.text("status"),
            format_time(condition.text("lastProbeTime")),
            format_time(condition.text("lastTransitionTime")),
            condition.text("reason"),
            condition.text("message")
        ));
    }
}

/// PersistentVolumes.
pub fn volume(context: &DescribeContext, out: &mut Description, volume: &Value) {
    out.metadata(volume, false);
    out.field(0, "Finalizers", &bracketed(volume.list("metadata.finalizers")));
    out.field(0, "StorageClass", class_name(volume));
    write_status(out, volume);
    let claim = volume.at("spec.claimRef").map(|claim| format!("{}/{}", claim.text("namespace"), claim.text("name")));
    out.field(0, "Claim", &claim.unwrap_or_default());
    out.field(0, "Reclaim Policy", volume.text("spec.persistentVolumeReclaimPolicy"));
    out.field(0, "Access Modes", &access_modes(volume.list("spec.accessModes")));
    if !volume.text("spec.volumeMode").is_empty() {
        out.field(0, "VolumeMode", volume.text("spec.volumeMode"));
    }
    out.field(0, "Capacity", &scalar_text(volume.at("spec.capacity.storage")));
    node_affinity(out, volume);
    out.field(0, "Message", volume.text("status.message"));
    out.raw("Source:\n");
    describe_source(out, volume.at("spec").unwrap_or(&Value::Null));
    context.events(out, volume);
}

fn node_affinity(out: &mut Description, volume: &Value) {
    let terms = volume.list("spec.nodeAffinity.required.nodeSelectorTerms");
    if volume.at("spec.nodeAffinity").is_none() {
        out.raw("Node Affinity:\t<none>\n");
        return;
    }
    out.raw("Node Affinity:\t\n");
    if terms.is_empty() {
        out.raw("  Required Terms:\t<none>\n");
        return;
    }
    out.raw("  Required Terms:\t\n");
    for (at, term) in terms.iter().enumerate() {
        let texts: Vec<String> = term.list("matchExpressions").iter().map(requirement_text).collect();
        out.raw(&format!(
            "    Term {at}:\t{}\n",
            if texts.is_empty() { "<none>".to_owned() } else { texts.join("\n           \t") }
        ));
    }
}

fn requirement_text(requirement: &Value) -> String {
    let values: Vec<&str> = requirement.list("values").iter().filter_map(Value::as_str).collect();
    let suffix = if values.is_empty() { String::new() } else { format!(" [{}]", values.join(", ")) };
    let operator = requirement.text("operator");
    let operator = if operator.is_empty() { "in".to_owned() } else { operator.to_lowercase() };
    format!("{} {operator}{suffix}", requirement.text("key"))
}

/// Describes a VolumeAttributesClass.
pub fn attributes_class(context: &DescribeContext, out: &mut Description, class: &Value) {
    out.field(0, "Name", name_of(class));
    out.field(0, "Annotations", &crate::printers::format_labels(class.at("metadata.annotations")));
    out.field(0, "DriverName", class.text("driverName"));
    out.field(0, "Parameters", &crate::printers::format_labels(class.at("parameters")));
    context.events(out, class);
}

/// StorageClasses.
pub fn storage_class(context: &DescribeContext, out: &mut Description, class: &Value) {
    out.field(0, "Name", name_of(class));
    let annotation = |name: &str| {
        class.map("metadata.annotations").and_then(|map| map.get(name)).and_then(Value::as_str) == Some("true")
    };
    let default = annotation("storageclass.kubernetes.io/is-default-class")
        || annotation("storageclass.beta.kubernetes.io/is-default-class");
    out.field(0, "IsDefaultClass", if default { "Yes" } else { "No" });
    let pairs: Vec<String> = class
        .map("metadata.annotations")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    out.field(0, "Annotations", &if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") });
    out.field(0, "Provisioner", class.text("provisioner"));
    out.field(0, "Parameters", &crate::printers::format_labels(class.at("parameters")));
    let expansion = class.at("allowVolumeExpansion").and_then(Value::as_bool);
    let expansion = expansion.map_or("<unset>", |allowed| if allowed { "True" } else { "False" });
    out.field(0, "AllowVolumeExpansion", expansion);
    let options = class.list("mountOptions");
    if options.is_empty() {
        out.raw("MountOptions:\t<none>\n");
    } else {
        out.raw("MountOptions:\n");
        options.iter().for_each(|option| out.raw(&format!("  {}\n", option.as_str().unwrap_or_default())));
    }
    if !class.text("reclaimPolicy").is_empty() {
        out.field(0, "ReclaimPolicy", class.text("reclaimPolicy"));
    }
    if !class.text("volumeBindingMode").is_empty() {
        out.field(0, "VolumeBindingMode", class.text("volumeBindingMode"));
    }
    let topologies = class.list("allowedTopologies");
    if !topologies.is_empty() {
        out.raw("AllowedTopologies:\t\n");
        for (at, term) in topologies.iter().enumerate() {
            let texts: Vec<String> = term.list("matchLabelExpressions").iter().map(requirement_text).collect();
            out.raw(&format!(
                "  Term {at}:\t{}\n",
                if texts.is_empty() { "<none>".to_owned() } else { texts.join("\n         \t") }
            ));
        }
    }
    context.events(out, class);
}

/// CSINodes.
pub fn csi_node(context: &DescribeContext, out: &mut Description, node: &Value) {
    out.metadata(node, false);
    out.field(0, "CreationTimestamp", &format_time(node.text("metadata.creationTimestamp")));
    out.raw("Spec:\n");
    if !node.list("spec.drivers").is_empty() {
        out.raw("  Drivers:\n");
    }
    for driver in node.list("spec.drivers") {
        out.raw(&format!("    {}:\n      Node ID:\t{}\n", driver.text("name"), driver.text("nodeID")));
        if let Some(count) = driver.integer("allocatable.count") {
            out.raw(&format!("      Allocatables:\n        Count:\t{count}\n"));
        }
        if driver.at("topologyKeys").is_some() {
            out.raw(&format!("      Topology Keys:\t{}\n", bracketed(driver.list("topologyKeys"))));
        }
    }
    context.events(out, node);
}
