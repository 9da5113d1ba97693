//! Validation of the kinds of volumes that pods and persistent volumes share.

use super::{
    Errors,
    at::At,
    error::{Bad, Fault},
    names, path,
};

pub(super) fn host_path(at: &At, e: &mut Errors) {
    const TYPES: &[&str] =
        &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if at.get("path").require(e) {
        path::no_backsteps(&at.get("path"), e);
        at.get("type").one_of(e, TYPES);
    }
}

pub(super) fn gce_disk(at: &At, e: &mut Errors) {
    at.get("pdName").require(e);
    partition(at, e);
}

pub(super) fn aws_disk(at: &At, e: &mut Errors) {
    at.get("volumeID").require(e);
    partition(at, e);
}

fn partition(at: &At, e: &mut Errors) {
    if !(0..=255).contains(&at.get("partition").int()) {
        at.get("partition").invalid_int(e, names::range(1, 255));
    }
}

pub(super) fn nfs(at: &At, e: &mut Errors) {
    at.get("server").require(e);
    at.get("path").require(e);
    if !at.get("path").text().starts_with('/') {
        at.get("path").invalid_text(e, "must be an absolute path");
    }
}

/// `unknown` is what is said about a name that begins like none.
pub(super) fn iscsi(at: &At, unknown: &str, e: &mut Errors) {
    at.get("targetPortal").require(e);
    let iqn = at.get("iqn");
    if iqn.require(e) {
        iscsi_name(&iqn, unknown, e);
    }
    if !(0..=255).contains(&at.get("lun").int()) {
        at.get("lun").invalid_int(e, names::range(0, 255));
    }
    let chap = at.get("chapAuthDiscovery").is_true() || at.get("chapAuthSession").is_true();
    if chap && !at.get("secretRef").exists() {
        at.get("secretRef").required(e, "");
    }
    let initiator = at.get("initiatorName");
    if initiator.exists() {
        iscsi_name(&at.called("initiatorname", initiator.value), unknown, e);
    }
}

fn iscsi_name(at: &At, unknown: &str, e: &mut Errors) {
    let text = at.text();
    let right = match text.get(..3) {
        Some("iqn") => is_iqn(text),
        Some("eui") => is_hex_name(text, 16),
        Some("naa") => is_hex_name(text, 32),
        _ => return at.invalid_text(e, unknown),
    };
    if !right {
        at.invalid_text(e, "must be valid format");
    }
}

/// `iqn.2001-04.com.example:storage.disk2`, anywhere up to the end.
fn is_iqn(text: &str) -> bool {
    let Some((head, tail)) = text.split_once(':') else { return false };
    if tail.is_empty() || tail.contains(|c: char| ",;*&$|".contains(c) || c.is_whitespace()) {
        return false;
    }
    let Some(at) = head.rfind("iqn.") else { return false };
    let date = &head.as_bytes()[at + 4..];
    let is = |at: usize, right: fn(&u8) -> bool| date.get(at).is_some_and(right);
    (0..4).all(|at| is(at, u8::is_ascii_digit))
        && date.get(4) == Some(&b'-')
        && (5..7).all(|at| is(at, u8::is_ascii_digit))
        && date.get(7) == Some(&b'.')
        && date.len() > 8
        && date[8..].iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-' || *c == b'.')
}

fn is_hex_name(text: &str, length: usize) -> bool {
    text.len() == 4 + length && text.bytes().skip(4).all(|c| c.is_ascii_alphanumeric())
}

/// The name of a volume and its portal together have a limit where an initiator is named.
pub(super) fn portal_length(volume: &At, source: &At, e: &mut Errors) {
    let name = volume.get("name");
    if source.get("initiatorName").exists() && name.text().len() + 1 + source.get("targetPortal").text().len() > 64 {
        name.invalid_text(e, PORTAL_LENGTH);
    }
}

pub(super) const PORTAL_LENGTH: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

pub(super) fn glusterfs(at: &At, e: &mut Errors) {
    at.get("endpoints").require(e);
    at.get("path").require(e);
}

pub(super) fn flocker(at: &At, e: &mut Errors) {
    let (name, uuid) = (at.get("datasetName"), at.get("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        at.required(e, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        at.invalid_as(e, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.text().contains('/') {
        name.invalid_text(e, "must not contain '/'");
    }
}

pub(super) fn rbd(at: &At, e: &mut Errors) {
    at.get("monitors").require(e);
    at.get("image").require(e);
}

/// `needed` are the fields that a reference to a secret must have.
pub(super) fn cinder(at: &At, needed: &[&str], e: &mut Errors) {
    at.get("volumeID").require(e);
    secret(&at.get("secretRef"), needed, e);
}

/// A reference to a secret, if there is one, has these fields.
pub(super) fn secret(at: &At, needed: &[&str], e: &mut Errors) {
    for field in needed.iter().filter(|_| at.exists()) {
        at.get(field).require(e);
    }
}

pub(super) fn cephfs(at: &At, e: &mut Errors) {
    at.get("monitors").require(e);
}

pub(super) fn quobyte(at: &At, e: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = at.get("registry");
    if registry.is_empty() {
        registry.required(e, PAIRS);
    } else if at.get("tenant").text().len() >= 65 {
        at.get("tenant").required(e, "must be a UUID and may not exceed a length of 64 characters");
    } else {
        let wrong = registry.text().split(',').filter(|pair| pair.matches(':').count() != 1 && !pair.contains("]:"));
        wrong.for_each(|_| registry.invalid_text(e, PAIRS));
    }
    at.get("volume").require(e);
}

pub(super) fn fibre_channel(at: &At, e: &mut Errors) {
    let (targets, ids, lun) = (at.get("targetWWNs"), at.get("wwids"), at.get("lun"));
    if targets.is_empty() && ids.is_empty() {
        targets.required(e, "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        targets.invalid(e, "targetWWNs and wwids can not be specified simultaneously");
    }
    if !targets.is_empty() {
        if lun.exists() {
            lun.in_range(e, 0, 255);
        } else {
            lun.required(e, "lun is required if targetWWNs is specified");
        }
    }
}

pub(super) fn flex(at: &At, e: &mut Errors) {
    at.get("driver").require(e);
    for (key, option) in at.get("options").entries() {
        let domain = format!(".{}", key.split('/').next().filter(|_| key.contains('/')).unwrap_or(key).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            option.invalid_as(e, key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

pub(super) fn azure_file(at: &At, e: &mut Errors) {
    at.get("secretName").require(e);
    at.get("shareName").require(e);
}

pub(super) fn azure_disk(at: &At, e: &mut Errors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let (kind, uri) = (at.get("kind"), at.get("diskURI"));
    at.get("diskName").require(e);
    uri.require(e);
    at.get("cachingMode").one_of(e, &["None", "ReadOnly", "ReadWrite"]);
    kind.one_of(e, &["Dedicated", "Managed", "Shared"]);
    if kind.text() == "Managed" && !uri.text().starts_with("/subscriptions/") {
        uri.unsupported(e, &[MANAGED]);
    }
    if kind.exists() && kind.text() != "Managed" && !uri.text().starts_with("https://") {
        uri.unsupported(e, &[BLOB]);
    }
}

pub(super) fn storage_os(at: &At, needed: &[&str], e: &mut Errors) {
    at.get("volumeName").required_form(e, names::label);
    at.get("volumeNamespace").optional_form(e, names::label);
    secret(&at.get("secretRef"), needed, e);
}

pub(super) fn scale_io(at: &At, e: &mut Errors) {
    for field in ["gateway", "system", "volumeName"] {
        at.get(field).require(e);
    }
}

/// The name of a CSI driver.
pub(super) fn csi_driver(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    if at.text().len() > 63 {
        at.too_long(e, 63);
    }
    for fault in names::subdomain_caseless(at.text()) {
        at.fault(e, Fault::Invalid(Bad::from(at.text())), fault);
    }
}
