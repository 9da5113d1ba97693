//! Validation of a pod specification, wherever it stands: in a pod or in a template.

use super::{affinity, container, resources, scheduling, security, visit, volume, windows};
use crate::{
    Value,
    validate::{Errors, at::At, names, selector},
};

/// What a specification belongs to.
#[derive(Clone, Copy)]
pub(super) enum Owner<'a> {
    /// A pod with this metadata.
    Pod(&'a Value),
    /// A template of pods.
    Template,
}

/// What the rules for parts of a specification need to know of the whole.
pub(super) struct Whole<'v> {
    /// Names and sources of the volumes that are right.
    pub volumes: Vec<(&'v str, &'v Value)>,
    /// Names of the resource claims.
    pub claims: Vec<&'v str>,
    /// Seconds that pods get to end.
    pub grace: Option<i64>,
    /// The restart policy.
    pub restart: &'v str,
    /// The operating system, if it is said.
    pub os: Option<&'v str>,
    /// Whether containers have the users of the host.
    pub host_users: bool,
}

const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// The faults of a pod specification; `old` is what it was.
pub(super) fn check(spec: &At, owner: Owner, old: Option<&Value>, e: &mut Errors) {
    let grace = spec.get("terminationGracePeriodSeconds");
    if !grace.exists() {
        grace.required(e, "");
    }
    let meta = match owner {
        Owner::Pod(meta) => Some(meta),
        Owner::Template => None,
    };
    let is_pod = meta.is_some();
    let volumes = volume::check(&spec.get("volumes"), meta, is_pod, e);
    let claims = resources::claims(&spec.get("resourceClaims"), meta, e);
    let whole = Whole {
        volumes,
        claims,
        grace: grace.value.as_i64(),
        restart: spec.get("restartPolicy").text(),
        os: spec.get("os").exists().then(|| spec.get("os").get("name").text()),
        host_users: spec.get("hostUsers").value != &Value::Bool(false),
    };
    container::main(&spec.get("containers"), &whole, e);
    container::init(&spec.get("initContainers"), &spec.get("containers"), &whole, e);
    container::ephemeral(spec, &whole, e);
    resources::of_pod(spec, &whole, e);
    host_ports(spec, is_pod, e);
    spec.get("restartPolicy").required_one_of(e, &["Always", "OnFailure", "Never"]);
    spec.get("dnsPolicy").required_one_of(e, DNS_POLICIES);
    selector::labels(&spec.get("nodeSelector"), e);
    security::of_pod(spec, old, e);
    affinity::check(&spec.get("affinity"), old, e);
    dns_config(spec, e);
    gates(spec, e);
    scheduling::spread(&spec.get("topologySpreadConstraints"), old, e);
    windows::host_process(spec, e);
    host_users(spec, e);
    hostname_override(spec, e);
    names_and_numbers(spec, e);
    rest(spec, e);
}

fn host_ports(spec: &At, is_pod: bool, e: &mut Errors) {
    if !spec.get("hostNetwork").is_true() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let (host, inside) = (port.get("hostPort"), port.get("containerPort"));
            if (is_pod || host.int() != 0) && host.int() != inside.int() {
                host.invalid_int(e, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns_config(spec: &At, e: &mut Errors) {
    let config = spec.get("dnsConfig");
    let servers = config.get("nameservers");
    if spec.get("dnsPolicy").text() == "None" {
        if !config.exists() {
            return config.required(e, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            return servers.required(e, "must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > 3 {
        servers.invalid(e, "must not have more than 3 nameservers");
    }
    servers.items().for_each(|server| {
        server.ip(e, &[]);
    });
    let searches = config.get("searches");
    if searches.len() > 32 {
        searches.invalid(e, "must not have more than 32 search paths");
    }
    if searches.texts().map(|text| text.len() + 1).sum::<usize>() > 2048 + 1 {
        searches.invalid(e, "must not have more than 2048 characters (including spaces) in the search list");
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        for fault in names::subdomain_with_underscores(name) {
            search.invalid_as(e, name, fault);
        }
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            option.required(e, "must not be empty");
        }
    }
}

fn gates(spec: &At, e: &mut Errors) {
    for gate in spec.get("readinessGates").items() {
        gate.get("conditionType").form(e, names::qualified);
    }
    let mut seen = Vec::new();
    for gate in spec.get("schedulingGates").items() {
        let name = gate.get("name").text();
        for fault in names::qualified(name) {
            gate.invalid_as(e, name, fault);
        }
        if seen.contains(&name) {
            gate.duplicate(e, name);
        }
        seen.push(name);
    }
}

fn host_users(spec: &At, e: &mut Errors) {
    if spec.get("hostUsers").value != &Value::Bool(false) {
        return;
    }
    let message = "when `hostUsers` is false";
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(field).is_true() {
            spec.get(shown).forbidden(e, message);
        }
    }
    visit(spec, |container| {
        let devices = container.get("volumeDevices");
        if !devices.is_empty() {
            devices.forbidden(e, message);
        }
    });
}

fn hostname_override(spec: &At, e: &mut Errors) {
    let hostname = spec.get("hostnameOverride");
    if !hostname.exists() {
        return;
    }
    if spec.get("setHostnameAsFQDN").is_true() {
        hostname.forbidden(e, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.get("hostNetwork").is_true() {
        hostname.forbidden(e, "may not be specified when hostNetwork is true");
    }
    if hostname.text().len() > 64 {
        hostname.too_long(e, 64);
    }
    hostname.form(e, names::subdomain);
}

fn names_and_numbers(spec: &At, e: &mut Errors) {
    spec.get("serviceAccountName").optional_form(e, names::subdomain);
    spec.get("nodeName").optional_form(e, names::subdomain);
    spec.get("activeDeadlineSeconds").in_range(e, 1, i64::from(i32::MAX));
    spec.get("hostname").optional_form(e, names::label);
    spec.get("subdomain").optional_form(e, names::label);
}

fn rest(spec: &At, e: &mut Errors) {
    scheduling::tolerations(&spec.get("tolerations"), e);
    host_aliases(&spec.get("hostAliases"), e);
    spec.get("priorityClassName").optional_form(e, names::subdomain);
    let class = spec.get("runtimeClassName");
    if class.exists() {
        class.form(e, names::subdomain);
    }
    let preemption = spec.get("preemptionPolicy");
    if preemption.exists() {
        preemption.required_one_of(e, &["PreemptLowerPriority", "Never"]);
    }
    let overhead = spec.get("overhead");
    if overhead.exists() {
        resources::overhead(&overhead, e);
    }
    windows::by_os(spec, e);
    let group = spec.get("schedulingGroup");
    if group.exists() {
        let name = group.get("podGroupName");
        if name.exists() {
            name.form(e, names::subdomain);
        } else {
            name.invalid(e, "must specify one of: `podGroupName`");
        }
    }
    file_keys(spec, e);
}

fn host_aliases(at: &At, e: &mut Errors) {
    for alias in at.items() {
        alias.get("ip").ip(e, &[]);
        alias.get("hostnames").items().for_each(|name| name.form(e, names::subdomain));
    }
}

/// Variables from files need an `emptyDir` that has the file.
fn file_keys(spec: &At, e: &mut Errors) {
    let volumes = spec.get("volumes");
    visit(spec, |container| {
        for variable in container.get("env").items() {
            let value_from = variable.get("valueFrom");
            let key = value_from.get("fileKeyRef");
            if !key.exists() {
                continue;
            }
            let name = key.get("volumeName");
            match volumes.items().find(|volume| volume.get("name").text() == name.text()) {
                None => name.not_found(e),
                Some(volume) if !volume.get("emptyDir").exists() => {
                    name.invalid_text(e, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}
