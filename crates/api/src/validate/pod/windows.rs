//! Validation of what depends on the operating system of a pod.

use super::{containers, visit};
use crate::{
    Value,
    validate::{Errors, at::At, names},
};

/// The faults of what a pod says for its operating system.
pub(super) fn by_os(spec: &At, e: &mut Errors) {
    let os = spec.get("os");
    if !os.exists() {
        return;
    }
    match os.get("name").text() {
        "" => os.get("name").required(e, ""),
        "linux" => linux(spec, e),
        "windows" => windows(spec, e),
        name => e.push(crate::validate::FieldError::not_supported(os.to_string(), name, &["linux", "windows"])),
    }
}

fn linux(spec: &At, e: &mut Errors) {
    let mut refuse = |context: &At| {
        if context.get("windowsOptions").exists() {
            context.get("windowsOptions").forbidden(e, "windows options cannot be set for a linux pod");
        }
    };
    refuse(&spec.get("securityContext"));
    visit(spec, |container| refuse(&container.get("securityContext")));
}

fn windows(spec: &At, e: &mut Errors) {
    const POD: &[(&str, bool)] = &[
        ("appArmorProfile", true),
        ("seLinuxOptions", true),
        ("hostUsers", false),
        ("hostPID", false),
        ("hostIPC", false),
        ("seccompProfile", true),
        ("fsGroup", true),
        ("fsGroupChangePolicy", true),
        ("sysctls", true),
        ("shareProcessNamespace", false),
        ("runAsUser", true),
        ("runAsGroup", true),
        ("supplementalGroups", true),
        ("supplementalGroupsPolicy", true),
        ("seLinuxChangePolicy", true),
    ];
    const CONTAINER: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    const MESSAGE: &str = "cannot be set for a windows pod";
    let context = spec.get("securityContext");
    for (field, in_context) in POD {
        let given = if *in_context { context.get(field) } else { spec.get(field) };
        if given.exists() {
            given.forbidden(e, MESSAGE);
        }
    }
    visit(spec, |container| {
        let context = container.get("securityContext");
        for field in CONTAINER.iter().filter(|field| context.get(field).exists()) {
            context.get(field).forbidden(e, MESSAGE);
        }
    });
}

/// Containers that are processes of the host: all or none.
pub(super) fn host_process(spec: &At, e: &mut Errors) {
    let of = |value: &Value| value["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let pod = of(spec.value);
    let all = containers(spec);
    visit(spec, |container| {
        if let (Some(pod), Some(own)) = (pod, of(container.value))
            && pod != own
        {
            let context = container.get("securityContext");
            let options = context.get("windowsOptions");
            let message = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            options.get("hostProcess").invalid(e, message);
        }
    });
    let count = all.iter().filter(|(_, _, container)| of(container).or(pod) == Some(true)).count();
    if count == 0 {
        return;
    }
    if count != all.len() {
        let message = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        spec.invalid_as(e, "", message);
    }
    if !spec.get("hostNetwork").is_true() {
        let message = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.get("hostNetwork").invalid_as(e, false, message);
    }
}

/// The faults of options for Windows.
pub(super) fn options(at: &At, e: &mut Errors) {
    let name = at.get("gmsaCredentialSpecName");
    if name.exists() {
        name.form(e, names::subdomain);
    }
    let spec = at.get("gmsaCredentialSpec");
    if spec.exists() && spec.is_empty() {
        spec.invalid(e, "gmsaCredentialSpec cannot be an empty string");
    } else if spec.text().len() > 64 * 1024 {
        spec.invalid(e, "gmsaCredentialSpec size must be under 64 KiB");
    }
    if at.get("runAsUserName").exists() {
        user_name(&at.get("runAsUserName"), e);
    }
}

fn user_name(at: &At, e: &mut Errors) {
    let text = at.text();
    let parts: Vec<&str> = text.split('\\').collect();
    let (domain, user) = match parts[..] {
        _ if text.is_empty() => return at.invalid(e, "runAsUserName cannot be an empty string"),
        _ if text.contains(|c: char| c.is_ascii_control()) => {
            return at.invalid(e, "runAsUserName cannot contain control characters");
        }
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return at.invalid(e, "runAsUserName cannot contain more than one backslash"),
    };
    if domain.is_some_and(|domain| domain.len() >= 256) {
        at.invalid(e, "runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        at.invalid(e, "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        at.invalid(e, "runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        at.invalid(e, "runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        at.invalid(e, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c: char| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        at.invalid(e, "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_net_bios(text: &str) -> bool {
    let right = |c: char| !"\\/:*?\"<>|".contains(c);
    (1..=15).contains(&text.chars().count()) && !text.starts_with('.') && text.chars().all(right)
}

fn is_dns(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.split('.').all(label)
}
