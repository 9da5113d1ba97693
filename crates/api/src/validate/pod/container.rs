//! Validation of containers: those that run, those that run first, and those for looking inside.

use super::{env, handler, mount, resources, security, spec::Whole};
use crate::{
    Value,
    validate::{Errors, at::At, names},
};

pub(super) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const PROBES: [(&str, handler::Probe); 3] = [
    ("livenessProbe", handler::Probe::Liveness),
    ("readinessProbe", handler::Probe::Readiness),
    ("startupProbe", handler::Probe::Startup),
];

/// The faults of the containers that make up a pod.
pub(super) fn main(list: &At, whole: &Whole, e: &mut Errors) {
    if list.is_empty() {
        return list.required(e, "");
    }
    let mut seen = Vec::new();
    for container in list.items() {
        common(&container, whole, e);
        let name = container.get("name");
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
        life(&container, whole, e);
        restart_policy(&container, e);
    }
    let mut ports = Vec::new();
    for container in list.items() {
        host_ports(&container, &mut ports, e);
    }
}

/// The faults of the containers that run first.
pub(super) fn init(list: &At, main: &At, whole: &Whole, e: &mut Errors) {
    let mut seen: Vec<&str> = main.items().map(|container| container.get("name").text()).collect();
    for container in list.items() {
        common(&container, whole, e);
        let always = container.get("restartPolicy").text() == "Always";
        if container.get("restartPolicy").exists() {
            restart_policy(&container, e);
        } else if !container.get("restartPolicyRules").is_empty() {
            container.get("restartPolicy").required(e, "must specify restartPolicy when restart rules are used");
        }
        let name = container.get("name");
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        } else if !name.is_empty() {
            seen.push(name.text());
        }
        // Upstream looks at each container alone here, and tells what it finds at the first place of the list.
        host_ports(&container, &mut Vec::new(), e);
        if always {
            life(&container, whole, e);
        } else {
            no_life(&container, e);
        }
    }
}

/// Without a restart there is no life to look after.
fn no_life(container: &At, e: &mut Errors) {
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if container.get(field).exists() {
            container.get(field).forbidden(e, "may not be set for init containers without restartPolicy=Always");
        }
    }
    for policy in container.get("resizePolicy").items() {
        if policy.get("restartPolicy").text() == "RestartContainer" {
            let message = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            policy.get("restartPolicy").invalid_text(e, message);
        }
    }
}

/// The faults of the containers for looking inside a pod.
pub(super) fn ephemeral(spec: &At, whole: &Whole, e: &mut Errors) {
    const REFUSED: &[&str] = &[
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    const MESSAGE: &str = "cannot be set for an Ephemeral Container";
    let (main, init) = (spec.get("containers"), spec.get("initContainers"));
    let others: Vec<&str> = main.items().chain(init.items()).map(|c| c.get("name").text()).collect();
    let mut seen = others.clone();
    for container in spec.get("ephemeralContainers").items() {
        common(&container, whole, e);
        trimmed_image(&container, e);
        let name = container.get("name");
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
        let target = container.get("targetContainerName");
        if !target.is_empty() && !others.contains(&target.text()) {
            target.not_found(e);
        }
        for field in REFUSED {
            let given = container.get(field);
            if given.exists() && given.value != &Value::Object(crate::Map::new()) {
                given.forbidden(e, MESSAGE);
            }
        }
        for mount in container.get("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.get(field).is_empty() {
                    mount.get(field).forbidden(e, MESSAGE);
                }
            }
        }
    }
}

/// What holds for containers of every kind.
fn common(at: &At, whole: &Whole, e: &mut Errors) {
    at.get("name").required_form(e, names::label);
    at.get("image").require(e);
    at.get("terminationMessagePolicy").required_one_of(e, &["File", "FallbackToLogsOnError"]);
    ports(&at.get("ports"), e);
    env::variables(&at.get("env"), e);
    env::sources(&at.get("envFrom"), e);
    mount::mounts(at, whole, e);
    mount::devices(at, whole, e);
    at.get("imagePullPolicy").required_one_of(e, PULL_POLICIES);
    resources::of_container(&at.get("resources"), whole, e);
    resize_policy(&at.get("resizePolicy"), whole.restart, e);
    security::of_container(&at.get("securityContext"), whole.host_users, e);
}

/// An image of a pod has no blanks around it; templates are not held to it.
pub(super) fn trimmed_image(at: &At, e: &mut Errors) {
    let image = at.get("image");
    if image.text().trim() != image.text() {
        image.invalid_text(e, "must not have leading or trailing whitespace");
    }
}

fn life(container: &At, whole: &Whole, e: &mut Errors) {
    let lifecycle = container.get("lifecycle");
    if lifecycle.exists() {
        handler::lifecycle(&lifecycle, whole, e);
    }
    for (field, kind) in PROBES {
        let probe = container.get(field);
        if probe.exists() {
            handler::probe(&probe, kind, whole.grace, e);
        }
    }
}

fn ports(list: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for port in list.items() {
        let name = port.get("name");
        if !name.is_empty() {
            let faults = names::port(name.text());
            if faults.is_empty() && seen.contains(&name.text()) {
                name.duplicate(e, name.text());
            } else if faults.is_empty() {
                seen.push(name.text());
            }
            faults.into_iter().for_each(|fault| name.invalid_text(e, fault));
        }
        let number = port.get("containerPort");
        if number.int() == 0 {
            number.required(e, "");
        } else {
            number.port_number(e);
        }
        if port.get("hostPort").int() != 0 {
            port.get("hostPort").port_number(e);
        }
        port.get("protocol").required_one_of(e, PROTOCOLS);
    }
}

/// A port of the host can be taken once.
fn host_ports(container: &At, taken: &mut Vec<String>, e: &mut Errors) {
    for port in container.get("ports").items() {
        let number = port.get("hostPort");
        if number.int() == 0 {
            continue;
        }
        let (protocol, ip) = (port.get("protocol"), port.get("hostIP"));
        let key = format!("{}/{}/{}", protocol.text(), ip.text(), number.int());
        if taken.contains(&key) {
            number.duplicate(e, key.clone());
        }
        taken.push(key);
    }
}

fn resize_policy(list: &At, restart: &str, e: &mut Errors) {
    let mut seen = Vec::new();
    for policy in list.items() {
        let (name, action) = (policy.get("resourceName"), policy.get("restartPolicy"));
        if seen.contains(&name.text()) {
            policy.duplicate(e, name.text());
        }
        seen.push(name.text());
        list.called("", name.value).at_list(list, &["cpu", "memory"], e);
        list.called("", action.value).at_list(list, &["NotRequired", "RestartContainer"], e);
        if restart == "Never" && action.text() != "NotRequired" {
            list.invalid_as(e, action.text(), "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

impl At<'_, '_> {
    /// Upstream tells some faults of an element at its list.
    fn at_list(&self, list: &At, supported: &[&str], e: &mut Errors) {
        if self.text().is_empty() {
            list.required(e, "");
        } else if !supported.contains(&self.text()) {
            let error = crate::validate::FieldError::not_supported(list.to_string(), self.text(), supported);
            e.push(error);
        }
    }
}

fn restart_policy(container: &At, e: &mut Errors) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if !policy.exists() {
        if rules.is_empty() {
            return;
        }
        policy.required(e, "must specify restartPolicy when restart rules are used");
    } else {
        policy.one_of(e, RESTART_POLICIES);
    }
    if rules.len() > 20 {
        rules.too_many(e, 20);
    }
    for rule in rules.items() {
        let action = rule.get("action");
        if !["Restart", "RestartAllContainers"].contains(&action.text()) {
            action.unsupported(e, &["Restart", "RestartAllContainers"]);
        }
        let codes = rule.get("exitCodes");
        if !codes.exists() {
            codes.required(e, "must be specified");
            continue;
        }
        if !["In", "NotIn"].contains(&codes.get("operator").text()) {
            codes.get("operator").unsupported(e, &["In", "NotIn"]);
        }
        if codes.get("values").len() > 255 {
            codes.get("values").too_many(e, 255);
        }
    }
}
