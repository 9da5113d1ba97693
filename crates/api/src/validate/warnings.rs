//! Warnings beyond the rule tables: deprecated labels, non-canonical addresses, hidden definitions.

use super::{ip_address, pod, prelude::*};
use std::{collections::HashMap, net::IpAddr};

const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Deprecated node labels with their messages.
const DEPRECATED_LABELS: [(&str, &str); 7] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
];

fn deprecated_label_message(label: &str) -> Option<&'static str> {
    DEPRECATED_LABELS.iter().find(|(known, _)| *known == label).map(|(_, message)| *message)
}

/// Warns about a deprecated label in a node selector.
pub fn warn_old_label_key(entry: &FieldCursor, e: &mut ErrorList) {
    if let Some(message) = deprecated_label_message(entry.name()) {
        entry.warn(e, message);
    }
}

pub fn warn_old_label(key: &FieldCursor, e: &mut ErrorList) {
    if let Some(message) = deprecated_label_message(key.text()) {
        key.warn(e, format!("{} is {message}", key.text()));
    }
}

pub fn warn_old_label_message(key: &FieldCursor, e: &mut ErrorList) {
    if let Some(message) = deprecated_label_message(key.text()) {
        key.warn(e, message);
    }
}

pub fn warn_old_labels_of_map(map: &FieldCursor, e: &mut ErrorList) {
    map.entries().filter_map(|(key, _)| deprecated_label_message(key)).for_each(|message| map.warn(e, message));
}

pub fn warn_old_labels_by_name(map: &FieldCursor, e: &mut ErrorList) {
    for (key, _) in map.entries() {
        if let Some(message) = deprecated_label_message(key) {
            map.get(key).warn(e, message);
        }
    }
}

pub fn warn_wrong_label_value(value: &FieldCursor, e: &mut ErrorList) {
    for fault in names::check_label_value(value.text()) {
        value.warn(e, format!("{} is invalid, {fault}", value.text()));
    }
}

/// Warns about names that are part of pod names.
pub fn warn_pod_name_part(name: &FieldCursor, e: &mut ErrorList) {
    let faults = names::check_dns_label(name.text());
    if !faults.is_empty() {
        let why = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
        name.warn(e, format!("{why}: [{}]", faults.join(" ")));
    }
}

/// Warns about a time zone in a schedule; upstream's message has one field too many.
pub fn warn_zone_in_schedule(schedule: &FieldCursor, e: &mut ErrorList) {
    if schedule.text().contains("TZ") {
        let message = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
            https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        push_warning(e, message);
    }
}

fn push_warning(e: &mut ErrorList, message: impl Into<String>) {
    e.push(FieldError::new("", FieldErrorType::Warning, message));
}

fn is_fractional(amount: &FieldCursor) -> bool {
    amount.quantity().is_some_and(|quantity| quantity.millis() % 1000 != 0)
}

/// Warns about fractional quantities of these resources.
pub fn warn_fractions(amounts: &FieldCursor, kinds: &str, e: &mut ErrorList) {
    for amount in kinds.split(' ').map(|kind| amounts.entry(kind)).filter(is_fractional) {
        amount.warn(e, format!("fractional byte value {:?} is invalid, must be an integer", amount.text()));
    }
}

/// Warns about containers: deprecated annotations, fractional bytes, hidden variables.
pub fn container_warnings(spec: &FieldCursor, e: &mut ErrorList) {
    let (owner, is_pod) = (spec.ancestor(1), spec.ancestor(1).is_root());
    let meta = owner.get("metadata");
    let notes = meta.get("annotations");
    let armor = &spec.value["securityContext"]["appArmorProfile"];
    pod::visit_containers(spec, |container| {
        let (name, context) = (container.text_at("name"), container.get("securityContext"));
        let seccomp = format!("{SECCOMP_CONTAINER}{name}");
        if !context.get("seccompProfile").exists() && notes.entry(&seccomp).exists() {
            notes.entry(&seccomp).warn(e, "non-functional in v1.27+; use the \"seccompProfile\" field instead");
        }
        let key = format!("{APP_ARMOR}{name}");
        let note = notes.entry(&key);
        if !is_pod
            && !context.get("appArmorProfile").exists()
            && note.exists()
            && !profile_matches_annotation(armor, note.text())
        {
            note.warn(e, "deprecated since v1.30; use the \"appArmorProfile\" field instead");
        }
        let resources = container.get("resources");
        for kind in ["memory", "ephemeral-storage"] {
            warn_fractions(&resources.get("limits"), kind, e);
            warn_fractions(&resources.get("requests"), kind, e);
        }
        warn_hidden_variables(&container.get("env"), e);
    });
}

fn profile_matches_annotation(profile: &Value, annotation: &str) -> bool {
    match annotation {
        "unconfined" => profile["type"] == "Unconfined",
        "runtime/default" => profile["type"] == "RuntimeDefault",
        other => other.strip_prefix("localhost/").is_some_and(|file| profile["localhostProfile"] == file),
    }
}

/// Warns about variables that replace an earlier one of the same name.
fn warn_hidden_variables(list: &FieldCursor, e: &mut ErrorList) {
    list.for_each_duplicate(
        |variable| variable.text_at("name"),
        |variable, name| {
            let (value, reference) = (variable.text_at("value"), format!("$({name})"));
            if variable.get("valueFrom").exists() || value == reference || !value.contains(&reference) {
                let why = "which may be dropped when using apply";
                variable.warn(e, format!("hides previous definition of {name:?}, {why}"));
            }
        },
    );
}

/// Host port, host address and path.
type HostPort<'v> = (i64, &'v str, String);

/// Warns about duplicate or ambiguous ports.
pub fn port_warnings(spec: &FieldCursor, e: &mut ErrorList) {
    let mut all: HashMap<(i64, &str), Vec<HostPort>> = HashMap::new();
    pod::visit_containers(spec, |container| {
        for port in container.get("ports").items() {
            let (host, ip) = (port.get("hostPort").int(), port.text_at("hostIP"));
            if !ip.is_empty() && host == 0 {
                port.warn(e, format!("hostIP set without hostPort: {}", format_port(&port)));
            }
            let others = all.entry((port.get("containerPort").int(), port.text_at("protocol"))).or_default();
            for (other_host, other_ip, place) in others.iter() {
                let what = if host == *other_host && ip == *other_ip {
                    "duplicate port definition"
                } else if host == 0 || *other_host == 0 {
                    "overlapping port definition"
                } else if host == *other_host && ip.is_empty() != other_ip.is_empty() {
                    "dangerously ambiguous port definition"
                } else {
                    continue;
                };
                port.warn(e, format!("{what} with {place}"));
            }
            others.push((host, ip, port.to_string()));
        }
    });
    let mut names: HashMap<&str, String> = HashMap::new();
    pod::visit_containers(spec, |container| {
        for port in container.get("ports").items().filter(|port| !port.text_at("name").is_empty()) {
            let name = port.text_at("name");
            let Some(other) = names.get(name) else {
                names.insert(name, port.to_string());
                continue;
            };
            let then = format!("services and probes that select ports by name will use {other}");
            port.warn(e, format!("duplicate port name {name:?} with {other}, {then}"));
        }
    });
}

/// Formats a port as Go prints a struct.
fn format_port(port: &FieldCursor) -> String {
    let number = |field: &str| port.get(field).int();
    let (name, protocol, ip) = (port.text_at("name"), port.text_at("protocol"), port.text_at("hostIP"));
    let (host, inside) = (number("hostPort"), number("containerPort"));
    format!("{{Name:{name} HostPort:{host} ContainerPort:{inside} Protocol:{protocol} HostIP:{ip}}}")
}

/// Warns about overlapping file paths of volumes.
pub fn warn_overlapping_paths(volumes: &FieldCursor, e: &mut ErrorList) {
    for volume in volumes.items() {
        for (kind, name) in [("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")] {
            let source = volume.get(kind);
            let paths = source.get("items").items().map(|item| (item.text_at("path"), String::new())).collect();
            warn_overlaps(volume.text_at("name"), &describe_source(kind, source.text_at(name)), paths, e);
        }
        let projected = volume.get("projected");
        let mut paths = Vec::new();
        for source in projected.get("sources").items() {
            if source.is_empty() {
                push_warning(e, format!("volume {:?} (Projected) has no sources provided", volume.text_at("name")));
            }
            collect_projected_paths(&source, &mut paths);
        }
        warn_overlaps(volume.text_at("name"), "Projected", paths, e);
    }
}

fn describe_source(kind: &str, name: &str) -> String {
    match kind {
        "configMap" => format!("ConfigMap {name:?}"),
        "secret" => format!("Secret {name:?}"),
        _ => "DownwardAPI".to_owned(),
    }
}

fn collect_projected_paths<'v>(source: &FieldCursor<'v, '_>, paths: &mut Vec<(&'v str, String)>) {
    for kind in ["configMap", "secret", "downwardAPI"] {
        let part = source.get(kind);
        let what = describe_source(kind, part.text_at("name"));
        paths.extend(part.get("items").items().map(|item| (item.text_at("path"), what.clone())));
        if part.exists() {
            return;
        }
    }
    let (token, bundle, certificate) =
        (source.get("serviceAccountToken"), source.get("clusterTrustBundle"), source.get("podCertificate"));
    let name = if bundle.get("name").exists() { bundle.text_at("name") } else { bundle.text_at("signerName") };
    let own = [
        (token.text_at("path"), "ServiceAccountToken".to_owned()),
        (bundle.text_at("path"), format!("ClusterTrustBundle {name:?}")),
        (certificate.text_at("certificateChainPath"), "PodCertificate chain".to_owned()),
        (certificate.text_at("keyPath"), "PodCertificate key".to_owned()),
        (certificate.text_at("credentialBundlePath"), "PodCertificate credential bundle".to_owned()),
    ];
    paths.extend(own.into_iter().filter(|(path, _)| !path.is_empty()));
}

fn warn_overlaps(volume: &str, what: &str, paths: Vec<(&str, String)>, e: &mut ErrorList) {
    let shown = |(path, source): &(&str, String)| {
        if source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({source})") }
    };
    let mut before: Vec<(&str, String)> = Vec::new();
    for (path, source) in paths {
        let own = (path.trim_end_matches('/'), source);
        for other in before.iter().filter(|other| !own.0.is_empty() && !other.0.is_empty()) {
            let (a, b) = (format!("{}/", own.0), format!("{}/", other.0));
            if a.starts_with(&b) || b.starts_with(&a) {
                let body = format!("{} with {}", shown(&own), shown(other));
                push_warning(e, format!("volume {volume:?} ({what}): overlapping paths: {body}"));
            }
        }
        before.push(own);
    }
}

/// Warns about addresses in non-canonical form.
pub fn warn_odd_ip(at: &FieldCursor, e: &mut ErrorList) {
    let text = at.text();
    let Some(ip) = ip_address::lenient_ip(text) else { return };
    let canonical = ip.to_canonical();
    if text.parse::<IpAddr>().is_err() || canonical != ip {
        at.warn(e, format!("non-standard IP address {text:?} is invalid: use {:?}", canonical.to_string()));
    } else if ip.is_ipv6() && ip.to_string() != text {
        at.warn(e, format!("IPv6 address {text:?} should be in RFC 5952 canonical format ({:?})", ip.to_string()));
    }
}

pub fn warn_odd_cidr(at: &FieldCursor, e: &mut ErrorList) {
    let text = at.text();
    let Some((ip, length)) = ip_address::lenient_cidr(text) else { return };
    let (address, digits) = text.split_once('/').unwrap_or_default();
    let network = format!("{}/{length}", ip_address::mask_address(ip, length));
    let before = e.len();
    if ip_address::mask_address(ip, length) != ip {
        let whole = if ip.is_ipv4() { 32 } else { 128 };
        let message =
            format!("CIDR value {text:?} is ambiguous in this context (should be {network:?} or \"{ip}/{whole}\"?)");
        at.warn(e, message);
    }
    if address.parse::<IpAddr>().is_err() || digits != length.to_string() || ip.to_canonical() != ip {
        at.warn(e, format!("non-standard CIDR value {text:?} is invalid: use {network:?}"));
    }
    if e.len() == before && ip.is_ipv6() && network != text {
        at.warn(e, format!("IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({network:?})"));
    }
}

/// Warns about addresses in non-canonical form, unless written by Kubernetes' controllers.
pub fn warn_odd_endpoints(object: &FieldCursor, e: &mut ErrorList) {
    const OWN: [&str; 3] =
        ["endpoint-controller", "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    let meta = object.get("metadata");
    let labels = meta.get("labels");
    let manager = |key: &str| OWN.contains(&labels.text_at(key));
    if manager("endpoints.kubernetes.io/managed-by") || manager("endpointslice.kubernetes.io/managed-by") {
        return;
    }
    for subset in object.get("subsets").items() {
        for list in ["addresses", "notReadyAddresses"] {
            subset.get(list).items().for_each(|address| warn_odd_ip(&address.get("ip"), e));
        }
    }
    for endpoint in object.get("endpoints").items() {
        endpoint.get("addresses").items().for_each(|address| warn_odd_ip(&address, e));
    }
}

pub fn warn_lower_case(driver: &FieldCursor, e: &mut ErrorList) {
    if driver.text() != driver.text().to_lowercase() {
        driver.warn(e, format!("driver names should be lowercase; {:?} contains uppercase characters", driver.text()));
    }
}
