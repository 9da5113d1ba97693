//! The kinds of volumes that pods and persistent volumes share, as far as the tables cannot say what is right.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! {
    iscsi_name persistent_iscsi_name portal_length named_portal_length quobyte foreign_option
};

fn iscsi_name(at: &At, e: &mut Errors) {
    named(at, "must be valid format starting with iqn, eui, or naa", e);
}

fn persistent_iscsi_name(at: &At, e: &mut Errors) {
    named(at, "must be valid format", e);
}

fn named(at: &At, unknown: &str, e: &mut Errors) {
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

const PORTAL_LENGTH: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

/// The name of a pod's volume and its portal together have a limit where an initiator is named.
fn portal_length(volume: &At, e: &mut Errors) {
    let name = volume.get("name");
    if name.text().len() + 1 + volume.get("iscsi").text_of("targetPortal").len() > 64 {
        name.invalid_text(e, PORTAL_LENGTH);
    }
}

/// As [`portal_length`], for a persistent volume, which is named in its metadata.
fn named_portal_length(source: &At, e: &mut Errors) {
    let name = source.whole().get("metadata").text_of("name");
    let portal = source.called("targetportal", source.get("targetPortal").value);
    if name.len() + 1 + portal.text().len() > 64 {
        portal.invalid_text(e, PORTAL_LENGTH);
    }
}

fn quobyte(registry: &At, e: &mut Errors) {
    let source = registry.up(1);
    if source.text_of("tenant").len() >= 65 {
        return source.get("tenant").required(e, "must be a UUID and may not exceed a length of 64 characters");
    }
    for _ in registry.text().split(',').filter(|pair| pair.matches(':').count() != 1 && !pair.contains("]:")) {
        registry.invalid_text(e, "must be a host:port pair or multiple pairs separated by commas");
    }
}

/// Options of a driver are not in Kubernetes' own domains.
fn foreign_option(option: &At, e: &mut Errors) {
    let key = option.name();
    let domain = format!(".{}", key.split_once('/').map_or(key, |(domain, _)| domain).to_lowercase());
    if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
        option.invalid_as(e, key, "kubernetes.io and k8s.io namespaces are reserved");
    }
}
