//! Validation of registrations of API versions.

use super::{Errors, at::At, names};

/// The name is made of version and group.
pub(super) fn name(new: &At, e: &mut Errors) {
    let (spec, meta) = (new.get("spec"), new.get("metadata"));
    let name = meta.get("name");
    let wanted = format!("{}.{}", spec.get("version").text(), spec.get("group").text());
    if !name.is_empty() && names::path_segment(name.text()).is_empty() && name.text() != wanted {
        name.invalid_text(e, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
}

/// The faults of a registration.
pub(super) fn validate(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let (group, version, service) = (spec.get("group"), spec.get("version"), spec.get("service"));
    if group.is_empty() && version.text() != "v1" {
        group.required(e, "only v1 may have an empty group and it better be legacy kube");
    }
    group.optional_form(e, names::subdomain);
    version.form(e, names::label_1035);
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        if !(1..=most).contains(&spec.get(field).int()) {
            spec.get(field).invalid_int(e, format!("must be positive and less than {most}"));
        }
    }
    let (bundle, insecure) = (spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    if !service.exists() {
        if !bundle.is_empty() {
            let bytes =
                bundle.text().len() / 4 * 3 - bundle.text().bytes().rev().take(2).filter(|c| *c == b'=').count();
            bundle.invalid_as(e, format!("{bytes} bytes"), "local APIServices may not have a caBundle");
        }
        if insecure.is_true() {
            insecure.invalid(e, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    service.get("namespace").require(e);
    service.get("name").require(e);
    if !(1..=65535).contains(&service.get("port").int()) {
        service.get("port").invalid_int(e, format!("port is not valid: {}", names::range(1, 65535)));
    }
    if insecure.is_true() && !bundle.is_empty() {
        insecure.invalid(e, "may not be true if caBundle is present");
    }
}

/// The faults of the status of a registration.
pub(super) fn status(new: &At, _: &At, e: &mut Errors) {
    let status = new.get("status");
    for condition in status.get("conditions").items() {
        if !["True", "False", "Unknown"].contains(&condition.get("status").text()) {
            condition.get("status").unsupported(e, &["True", "False", "Unknown"]);
        }
    }
}
