//! Webhooks, as far as the tables cannot say what is right.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! {
    webhook_name side_effects review_versions url_path https_url
};

/// A name in a domain of at least three parts.
fn webhook_name(at: &At, e: &mut Errors) {
    let faults = names::subdomain(at.text());
    if !faults.is_empty() {
        at.invalid_text(e, faults.join(","));
    } else if at.text().split('.').count() < 3 {
        at.invalid_text(e, "should be a domain with at least three segments separated by dots");
    }
}

/// New webhooks have no side effects on dry runs; where there was another, there may be more.
fn side_effects(effects: &At, e: &mut Errors) {
    const NONE: &[&str] = &["None", "NoneOnDryRun"];
    let old = effects.whole().before();
    let any = old.get("webhooks").items().any(|hook| !NONE.contains(&hook.text_of("sideEffects")));
    effects.one_of(e, if any { &["None", "NoneOnDryRun", "Some", "Unknown"] } else { NONE });
}

/// The faults of a list of versions of reviews that a webhook understands.
fn review_versions(at: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for version in at.items() {
        if seen.contains(&version.text()) {
            version.invalid_text(e, "duplicate version");
            continue;
        }
        seen.push(version.text());
        version.form(e, names::label_1035);
    }
    if !seen.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        at.invalid(e, "must include at least one of v1, v1beta1");
    }
}

/// The faults of a path on a service, part by part.
fn url_path(path: &At, e: &mut Errors) {
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return path.invalid_text(e, "segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        path.invalid_text(e, "must start with a '/'");
    }
    let mut rest = text.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            path.invalid_text(e, format!("segment[{index}] may not be empty"));
            continue;
        }
        for fault in names::subdomain(step) {
            path.invalid_text(e, format!("segment[{index}]: {fault}"));
        }
    }
}

/// A webhook's address is plain: no user, no query, no fragment.
fn https_url(at: &At, e: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = at.text().split_once("://").unwrap_or(("", at.text()));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        at.invalid_as(e, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        at.invalid_as(e, host, format!("host must be specified{FORM}"));
    }
    for (part, message) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            at.invalid_as(e, part, message);
        }
    }
}
