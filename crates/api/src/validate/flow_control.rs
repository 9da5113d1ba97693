//! Validation of flow schemas and priority levels.

use super::{Errors, at::At, names};

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// The faults of a flow schema.
pub(super) fn schema(new: &At, _: Option<&At>, e: &mut Errors) {
    let (spec, name) = (new.get("spec"), new.get("metadata"));
    let name = name.get("name").text();
    let precedence = spec.get("matchingPrecedence");
    if precedence.int() <= 0 {
        precedence.invalid_int(e, "must be a positive value");
    }
    if precedence.int() > 10_000 {
        precedence.invalid(e, "must not be greater than 10000");
    }
    if precedence.int() == 1 && name != "exempt" {
        precedence.invalid(e, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let method = spec.get("distinguisherMethod");
    if method.exists() && !["ByNamespace", "ByUser"].contains(&method.get("type").text()) {
        let shown =
            super::error::Bad::Shown(super::render::internal("flowcontrol/v1.FlowDistinguisherMethod", method.value));
        let error = super::FieldError::not_supported(method.get("type").to_string(), shown, &["ByNamespace", "ByUser"]);
        e.push(error);
    }
    let level = spec.get("priorityLevelConfiguration");
    if level.get("name").is_empty() {
        level.get("name").required(e, "must reference a priority level");
    }
    level.get("name").optional_form(e, names::subdomain);
    spec.get("rules").items().for_each(|rule| self::rule(&rule, e));
    conditions(new, e);
}

fn rule(at: &At, e: &mut Errors) {
    let (subjects, resources, urls) = (at.get("subjects"), at.get("resourceRules"), at.get("nonResourceRules"));
    if subjects.is_empty() {
        subjects.required(e, "subjects must contain at least one value");
    }
    subjects.items().for_each(|subject| self::subject(&subject, e));
    if resources.is_empty() && urls.is_empty() {
        at.required(e, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    resources.items().for_each(|rule| resource_rule(&rule, e));
    urls.items().for_each(|rule| url_rule(&rule, e));
}

fn subject(at: &At, e: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = at.get("kind").text();
    let Some((_, own)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return at.get("kind").unsupported(e, &["Group", "ServiceAccount", "User"]);
    };
    let given = at.get(own);
    if !given.exists() {
        given.required(e, format!("{own} is required when subject kind is '{kind}'"));
    } else if kind == "ServiceAccount" {
        let name = given.get("name");
        if name.require(e) && name.text() != "*" {
            name.form(e, names::subdomain);
        }
        if given.get("namespace").is_empty() {
            given.get("namespace").required(e, "must specify namespace for service account");
        }
        given.get("namespace").optional_form(e, names::label);
    } else {
        given.get("name").require(e);
    }
    let order = if kind == "ServiceAccount" {
        [KINDS[1], KINDS[2]]
    } else {
        [KINDS[0], if kind == "User" { KINDS[2] } else { KINDS[1] }]
    };
    for (name, field) in order {
        if at.get(field).exists() {
            at.get(field).forbidden(e, format!("{field} is forbidden when subject kind is not '{name}'"));
        }
    }
}

fn has_wildcard(at: &At) -> bool {
    at.texts().any(|text| text == "*")
}

fn verbs(at: &At, e: &mut Errors) {
    if at.is_empty() {
        at.required(e, "verbs must contain at least one value");
    } else if has_wildcard(at) {
        if at.len() > 1 {
            at.invalid(e, "if '*' is present, must not specify other verbs");
        }
    } else if at.texts().any(|verb| !VERBS.contains(&verb)) {
        e.push(super::FieldError::not_supported(at.to_string(), at.value.clone(), VERBS));
    }
}

fn resource_rule(at: &At, e: &mut Errors) {
    verbs(&at.get("verbs"), e);
    for (field, one, many) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let list = at.get(field);
        if list.is_empty() {
            list.required(e, format!("resource rules must supply at least one {one}"));
        } else if list.len() > 1 && has_wildcard(&list) {
            list.invalid(e, format!("if '*' is present, must not specify other {many}"));
        }
    }
    let list = at.get("namespaces");
    if list.is_empty() && !at.get("clusterScope").is_true() {
        let message = "resource rules that are not cluster scoped must supply at least one namespace";
        list.required(e, message);
    } else if has_wildcard(&list) {
        if list.len() > 1 {
            list.invalid(e, "if '*' is present, must not specify other namespaces");
        }
    } else {
        for namespace in list.items() {
            for fault in names::label(namespace.text()) {
                let message = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
                namespace.invalid_text(e, message);
            }
        }
    }
}

fn url_rule(at: &At, e: &mut Errors) {
    verbs(&at.get("verbs"), e);
    let urls = at.get("nonResourceURLs");
    if urls.is_empty() {
        urls.required(e, "nonResourceURLs must contain at least one value");
    } else if has_wildcard(&urls) {
        if urls.len() > 1 {
            urls.invalid(e, "if '*' is present, must not specify other non-resource URLs");
        }
    } else {
        urls.items().for_each(|url| self::url(&url, e));
    }
}

fn url(at: &At, e: &mut Errors) {
    let text = at.text();
    let stars = text.matches('*').count();
    let fault = match text {
        "" => "must not be empty",
        "/" => return,
        _ if !text.starts_with('/') => "must start with slash",
        _ if text.contains(' ') => "must not contain white-space",
        _ if text.contains("//") => "must not contain double slash",
        _ if stars > 1 || stars == 1 && !text.ends_with("/*") => "wildcard can only do suffix matching",
        _ => return,
    };
    at.invalid_text(e, fault);
}

fn conditions(object: &At, e: &mut Errors) {
    let status = object.get("status");
    let mut seen = Vec::new();
    for condition in status.get("conditions").items() {
        let kind = condition.get("type");
        if seen.contains(&kind.text()) {
            kind.duplicate(e, kind.text());
        }
        seen.push(kind.text());
        kind.require(e);
    }
}

/// The faults of a status.
pub(super) fn status(new: &At, _: &At, e: &mut Errors) {
    conditions(new, e);
}

/// The faults of a priority level.
pub(super) fn level(new: &At, _: Option<&At>, e: &mut Errors) {
    const PRESERVE: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    let (meta, spec) = (new.get("metadata"), new.get("spec"));
    if meta.get("annotations").get(PRESERVE).exists() {
        meta.get("annotations").forbidden(e, format!("annotation '{PRESERVE}' is forbidden"));
    }
    let (kind, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
    if (meta.get("name").text() == "exempt") != (kind.text() == "Exempt") {
        kind.invalid_text(e, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind.text() {
        "Exempt" => {
            if limited.exists() {
                limited.forbidden(e, "must be nil if the type is not Limited");
            }
            shares(&exempt, e);
        }
        "Limited" => {
            if exempt.exists() {
                exempt.forbidden(e, "must be nil if the type is Limited");
            }
            if limited.exists() {
                self::limited(&limited, e);
            } else {
                limited.required(e, "must not be empty when type is Limited");
            }
        }
        "" => kind.required(e, ""),
        _ => kind.unsupported(e, &["Exempt", "Limited"]),
    }
    conditions(new, e);
}

fn shares(at: &At, e: &mut Errors) {
    if at.get("nominalConcurrencyShares").int() < 0 {
        at.get("nominalConcurrencyShares").invalid(e, "must be a non-negative integer");
    }
    at.get("lendablePercent").in_range(e, 0, 100);
}

fn limited(at: &At, e: &mut Errors) {
    if at.get("nominalConcurrencyShares").int() < 0 {
        at.get("nominalConcurrencyShares").invalid(e, "must be a non-negative integer");
    }
    let response = at.get("limitResponse");
    let (kind, queuing) = (response.get("type"), response.get("queuing"));
    match kind.text() {
        "Reject" => {
            if queuing.exists() {
                queuing.forbidden(e, "must be nil if limited.limitResponse.type is not Limited");
            }
        }
        "Queue" if !queuing.exists() => {
            queuing.required(e, "must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => self::queuing(&queuing, e),
        "" => kind.required(e, ""),
        _ => kind.unsupported(e, &["Queue", "Reject"]),
    }
    at.get("lendablePercent").in_range(e, 0, 100);
    if at.get("borrowingLimitPercent").int() < 0 {
        at.get("borrowingLimitPercent").invalid(e, "if specified, must be a non-negative integer");
    }
}

fn queuing(at: &At, e: &mut Errors) {
    const MOST_QUEUES: i64 = 10_000_000;
    let (length, queues, hand) = (at.get("queueLengthLimit"), at.get("queues"), at.get("handSize"));
    if length.int() <= 0 {
        length.invalid_int(e, "must be positive");
    }
    if queues.int() <= 0 {
        queues.invalid_int(e, "must be positive");
    } else if queues.int() > MOST_QUEUES {
        queues.invalid(e, format!("must not be greater than {MOST_QUEUES}"));
    }
    if hand.int() <= 0 {
        hand.invalid_int(e, "must be positive");
    } else if hand.int() > queues.int() {
        hand.invalid(e, format!("should not be greater than queues ({})", queues.int()));
    } else if entropy(queues.int(), hand.int()) > 60 {
        let message = format!(
            "required entropy bits of deckSize {} and handSize {} should not be greater than 60",
            queues.int(),
            hand.int()
        );
        hand.invalid(e, message);
    }
}

/// The bits that dealing a hand needs: the logarithm of the falling factorial, rounded up.
fn entropy(deck: i64, hand: i64) -> i64 {
    let bits: f64 = (0..hand.min(64)).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as i64
}
