//! What relates fields of a pod specification that stand far apart.

use super::{is_pod, spec_of};
use crate::validate::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! {
    pod_host_ports search_length search_domain file_of_volume
};

/// On the host's network a port is the host's port.
fn pod_host_ports(spec: &At, e: &mut Errors) {
    if !spec.get("hostNetwork").is_true() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let (host, inside) = (port.get("hostPort"), port.get("containerPort"));
            if (is_pod(spec) || host.int() != 0) && host.int() != inside.int() {
                host.invalid_int(e, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn search_length(searches: &At, e: &mut Errors) {
    if searches.texts().map(|text| text.len() + 1).sum::<usize>() > 2048 + 1 {
        searches.invalid(e, "must not have more than 2048 characters (including spaces) in the search list");
    }
}

fn search_domain(search: &At, e: &mut Errors) {
    if search.text() != "." {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        search.form_as(e, name, names::subdomain_with_underscores);
    }
}

/// Variables from files need an `emptyDir` that has the file.
fn file_of_volume(key: &At, e: &mut Errors) {
    let (spec, name) = (spec_of(key), key.get("volumeName"));
    match spec.get("volumes").find("name", name.text()) {
        None => name.not_found(e),
        Some(volume) if !volume.get("emptyDir").exists() => {
            name.invalid_text(e, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}
