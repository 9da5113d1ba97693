//! What is worth telling, as far as the tables cannot say it: old names, odd addresses, definitions that hide others.

use super::{net, pod, prelude::*};
use std::{collections::HashMap, net::IpAddr};

const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Labels of nodes that have newer names, and what is said of them.
const OLD_LABELS: [(&str, &str); 7] = [
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

fn old(label: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(known, _)| *known == label).map(|(_, message)| *message)
}

/// An entry of a selector by labels of nodes.
pub fn old_label_key(entry: &At, e: &mut Errors) {
    if let Some(message) = old(entry.name()) {
        entry.warn(e, message);
    }
}

pub fn old_label(key: &At, e: &mut Errors) {
    if let Some(message) = old(key.text()) {
        key.warn(e, format!("{} is {message}", key.text()));
    }
}

pub fn old_label_message(key: &At, e: &mut Errors) {
    if let Some(message) = old(key.text()) {
        key.warn(e, message);
    }
}

pub fn old_labels_of_map(map: &At, e: &mut Errors) {
    map.entries().filter_map(|(key, _)| old(key)).for_each(|message| map.warn(e, message));
}

pub fn old_labels_by_name(map: &At, e: &mut Errors) {
    for (key, _) in map.entries() {
        if let Some(message) = old(key) {
            map.get(key).warn(e, message);
        }
    }
}

pub fn wrong_label_value(value: &At, e: &mut Errors) {
    for fault in names::label_value(value.text()) {
        value.warn(e, format!("{} is invalid, {fault}", value.text()));
    }
}

/// Names that become part of the names of pods.
pub fn pod_name_part(name: &At, e: &mut Errors) {
    let faults = names::label(name.text());
    if !faults.is_empty() {
        let why = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
        name.warn(e, format!("{why}: [{}]", faults.join(" ")));
    }
}

/// Upstream names the field with one step too many.
pub fn zone_in_schedule(schedule: &At, e: &mut Errors) {
    if schedule.text().contains("TZ") {
        let message = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
            https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        say(e, message);
    }
}

fn say(e: &mut Errors, message: impl Into<String>) {
    e.push(FieldError::new("", Fault::Warning, message));
}

fn is_fractional(amount: &At) -> bool {
    amount.quantity().is_some_and(|quantity| quantity.millis() % 1000 != 0)
}

/// Amounts of these kinds that are no whole numbers.
pub fn fractions(amounts: &At, kinds: &str, e: &mut Errors) {
    for amount in kinds.split(' ').map(|kind| amounts.key(kind)).filter(is_fractional) {
        amount.warn(e, format!("fractional byte value {:?} is invalid, must be an integer", amount.text()));
    }
}

/// What is worth telling of containers: old annotations, fractions of bytes, variables that hide others.
pub fn container_warnings(spec: &At, e: &mut Errors) {
    let (owner, is_pod) = (spec.up(1), spec.up(1).is_whole());
    let meta = owner.get("metadata");
    let notes = meta.get("annotations");
    let armor = &spec.value["securityContext"]["appArmorProfile"];
    pod::visit(spec, |container| {
        let (name, context) = (container.text_of("name"), container.get("securityContext"));
        let seccomp = format!("{SECCOMP_CONTAINER}{name}");
        if !context.get("seccompProfile").exists() && notes.key(&seccomp).exists() {
            notes.key(&seccomp).warn(e, "non-functional in v1.27+; use the \"seccompProfile\" field instead");
        }
        let key = format!("{APP_ARMOR}{name}");
        let note = notes.key(&key);
        if !is_pod && !context.get("appArmorProfile").exists() && note.exists() && !says_the_same(armor, note.text()) {
            note.warn(e, "deprecated since v1.30; use the \"appArmorProfile\" field instead");
        }
        let resources = container.get("resources");
        for kind in ["memory", "ephemeral-storage"] {
            fractions(&resources.get("limits"), kind, e);
            fractions(&resources.get("requests"), kind, e);
        }
        hidden_variables(&container.get("env"), e);
    });
}

fn says_the_same(profile: &Value, annotation: &str) -> bool {
    match annotation {
        "unconfined" => profile["type"] == "Unconfined",
        "runtime/default" => profile["type"] == "RuntimeDefault",
        other => other.strip_prefix("localhost/").is_some_and(|file| profile["localhostProfile"] == file),
    }
}

/// A variable that does not build on the one before it of the same name.
fn hidden_variables(list: &At, e: &mut Errors) {
    list.unique(
        |variable| variable.text_of("name"),
        |variable, name| {
            let (value, reference) = (variable.text_of("value"), format!("$({name})"));
            if variable.get("valueFrom").exists() || value == reference || !value.contains(&reference) {
                let why = "which may be dropped when using apply";
                variable.warn(e, format!("hides previous definition of {name:?}, {why}"));
            }
        },
    );
}

/// The port and the address of a host, and where they are named.
type HostPort<'v> = (i64, &'v str, String);

/// Ports that are the same, or might be.
pub fn port_warnings(spec: &At, e: &mut Errors) {
    let mut all: HashMap<(i64, &str), Vec<HostPort>> = HashMap::new();
    pod::visit(spec, |container| {
        for port in container.get("ports").items() {
            let (host, ip) = (port.get("hostPort").int(), port.text_of("hostIP"));
            if !ip.is_empty() && host == 0 {
                port.warn(e, format!("hostIP set without hostPort: {}", shown_port(&port)));
            }
            let others = all.entry((port.get("containerPort").int(), port.text_of("protocol"))).or_default();
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
    pod::visit(spec, |container| {
        for port in container.get("ports").items().filter(|port| !port.text_of("name").is_empty()) {
            let name = port.text_of("name");
            let Some(other) = names.get(name) else {
                names.insert(name, port.to_string());
                continue;
            };
            let then = format!("services and probes that select ports by name will use {other}");
            port.warn(e, format!("duplicate port name {name:?} with {other}, {then}"));
        }
    });
}

/// A port as Go prints a struct.
fn shown_port(port: &At) -> String {
    let number = |field: &str| port.get(field).int();
    let (name, protocol, ip) = (port.text_of("name"), port.text_of("protocol"), port.text_of("hostIP"));
    let (host, inside) = (number("hostPort"), number("containerPort"));
    format!("{{Name:{name} HostPort:{host} ContainerPort:{inside} Protocol:{protocol} HostIP:{ip}}}")
}

/// Files of a volume that stand where others do.
pub fn overlapping_paths(volumes: &At, e: &mut Errors) {
    for volume in volumes.items() {
        for (kind, name) in [("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")] {
            let source = volume.get(kind);
            let paths = source.get("items").items().map(|item| (item.text_of("path"), String::new())).collect();
            overlaps(volume.text_of("name"), &described(kind, source.text_of(name)), paths, e);
        }
        let projected = volume.get("projected");
        let mut paths = Vec::new();
        for source in projected.get("sources").items() {
            if source.is_empty() {
                say(e, format!("volume {:?} (Projected) has no sources provided", volume.text_of("name")));
            }
            projected_paths(&source, &mut paths);
        }
        overlaps(volume.text_of("name"), "Projected", paths, e);
    }
}

fn described(kind: &str, name: &str) -> String {
    match kind {
        "configMap" => format!("ConfigMap {name:?}"),
        "secret" => format!("Secret {name:?}"),
        _ => "DownwardAPI".to_owned(),
    }
}

fn projected_paths<'v>(source: &At<'v, '_>, paths: &mut Vec<(&'v str, String)>) {
    for kind in ["configMap", "secret", "downwardAPI"] {
        let part = source.get(kind);
        let what = described(kind, part.text_of("name"));
        paths.extend(part.get("items").items().map(|item| (item.text_of("path"), what.clone())));
        if part.exists() {
            return;
        }
    }
    let (token, bundle, certificate) =
        (source.get("serviceAccountToken"), source.get("clusterTrustBundle"), source.get("podCertificate"));
    let name = if bundle.get("name").exists() { bundle.text_of("name") } else { bundle.text_of("signerName") };
    let own = [
        (token.text_of("path"), "ServiceAccountToken".to_owned()),
        (bundle.text_of("path"), format!("ClusterTrustBundle {name:?}")),
        (certificate.text_of("certificateChainPath"), "PodCertificate chain".to_owned()),
        (certificate.text_of("keyPath"), "PodCertificate key".to_owned()),
        (certificate.text_of("credentialBundlePath"), "PodCertificate credential bundle".to_owned()),
    ];
    paths.extend(own.into_iter().filter(|(path, _)| !path.is_empty()));
}

fn overlaps(volume: &str, what: &str, paths: Vec<(&str, String)>, e: &mut Errors) {
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
                say(e, format!("volume {volume:?} ({what}): overlapping paths: {body}"));
            }
        }
        before.push(own);
    }
}

/// Addresses that are not written as they should be.
pub fn odd_ip(at: &At, e: &mut Errors) {
    let text = at.text();
    let Some(ip) = net::lenient_ip(text) else { return };
    let canonical = ip.to_canonical();
    if text.parse::<IpAddr>().is_err() || canonical != ip {
        at.warn(e, format!("non-standard IP address {text:?} is invalid: use {:?}", canonical.to_string()));
    } else if ip.is_ipv6() && ip.to_string() != text {
        at.warn(e, format!("IPv6 address {text:?} should be in RFC 5952 canonical format ({:?})", ip.to_string()));
    }
}

pub fn odd_cidr(at: &At, e: &mut Errors) {
    let text = at.text();
    let Some((ip, length)) = net::lenient_cidr(text) else { return };
    let (address, digits) = text.split_once('/').unwrap_or_default();
    let network = format!("{}/{length}", net::masked(ip, length));
    let before = e.len();
    if net::masked(ip, length) != ip {
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

/// Odd addresses, unless one of Kubernetes' own controllers wrote them.
pub fn odd_endpoints(object: &At, e: &mut Errors) {
    const OWN: [&str; 3] =
        ["endpoint-controller", "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    let meta = object.get("metadata");
    let labels = meta.get("labels");
    let manager = |key: &str| OWN.contains(&labels.text_of(key));
    if manager("endpoints.kubernetes.io/managed-by") || manager("endpointslice.kubernetes.io/managed-by") {
        return;
    }
    for subset in object.get("subsets").items() {
        for list in ["addresses", "notReadyAddresses"] {
            subset.get(list).items().for_each(|address| odd_ip(&address.get("ip"), e));
        }
    }
    for endpoint in object.get("endpoints").items() {
        endpoint.get("addresses").items().for_each(|address| odd_ip(&address, e));
    }
}

pub fn lower_case(driver: &At, e: &mut Errors) {
    if driver.text() != driver.text().to_lowercase() {
        driver.warn(e, format!("driver names should be lowercase; {:?} contains uppercase characters", driver.text()));
    }
}
