//! Validation of when jobs fail and succeed, and of lists of indexes such as `0-3,7`.

use super::{Errors, at::At, error::Bad, names};

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];

/// A path after a domain: `acme.io/foo`.
pub(super) fn domain_path(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    match at.text().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => at.invalid_text(e, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((host, path)) => {
            names::subdomain(host).into_iter().for_each(|fault| at.invalid_as(e, host, fault));
            if !path.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c)) {
                let message = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                at.invalid_as(e, path, message);
            }
        }
    }
}

fn list(values: &[&str]) -> String {
    format!("valid values: [{}]", values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(" "))
}

fn required_one_of(at: &At, supported: &[&str], e: &mut Errors) {
    if at.is_empty() {
        at.required(e, list(supported));
    } else {
        at.one_of(e, supported);
    }
}

/// The faults of the policy for failed pods.
pub(super) fn failure(spec: &At, e: &mut Errors) {
    let policy = spec.get("podFailurePolicy");
    let rules = policy.get("rules");
    if rules.len() > 20 {
        rules.too_many(e, 20);
    }
    for rule in rules.items() {
        let action = rule.get("action");
        if action.text() == "FailIndex" {
            if !spec.get("backoffLimitPerIndex").exists() {
                action.invalid_text(e, "requires the backoffLimitPerIndex to be set");
            }
        } else {
            required_one_of(&action, ACTIONS, e);
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.exists() {
            exit_codes(&codes, spec, e);
        }
        pod_conditions(&conditions, e);
        match (codes.exists(), !conditions.is_empty()) {
            (true, true) => {
                let message = "specifying both OnExitCodes and OnPodConditions is not supported";
                rule.invalid_as(e, Bad::Omitted, message);
            }
            (false, false) => {
                let message = "specifying one of OnExitCodes and OnPodConditions is required";
                rule.invalid_as(e, Bad::Omitted, message);
            }
            _ => {}
        }
    }
}

fn pod_conditions(at: &At, e: &mut Errors) {
    if at.len() > 20 {
        at.too_many(e, 20);
    }
    for pattern in at.items() {
        pattern.get("type").form(e, names::qualified);
        required_one_of(&pattern.get("status"), STATUSES, e);
    }
}

fn exit_codes(at: &At, spec: &At, e: &mut Errors) {
    required_one_of(&at.get("operator"), OPERATORS, e);
    let name = at.get("containerName");
    if name.exists() {
        let template = spec.get("template");
        let inner = template.get("spec");
        let (main, init) = (inner.get("containers"), inner.get("initContainers"));
        let known = main.items().chain(init.items()).any(|container| container.get("name").text() == name.text());
        if !known {
            name.invalid_text(e, "must be one of the container or initContainer names in the pod template");
        }
    }
    let values = at.get("values");
    if values.is_empty() {
        values.invalid(e, "at least one value is required");
    } else if values.len() > 255 {
        values.too_many(e, 255);
    }
    let (mut seen, mut ordered) = (Vec::new(), true);
    for value in values.items() {
        let code = value.int();
        if at.get("operator").text() == "In" && code == 0 {
            value.invalid(e, "must not be 0 for the In operator");
        }
        if seen.contains(&code) {
            value.duplicate(e, code);
        }
        ordered &= seen.last().is_none_or(|last| *last <= code);
        seen.push(code);
    }
    if !ordered {
        values.invalid(e, "must be ordered");
    }
}

/// The faults of the policy for success.
pub(super) fn success(spec: &At, e: &mut Errors) {
    let policy = spec.get("successPolicy");
    let rules = policy.get("rules");
    let completions = spec.get("completions").int();
    if rules.is_empty() {
        rules.required(e, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        rules.too_many(e, 20);
    }
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.exists() && !indexes.exists() {
            rule.required(e, "at least one of succeededCount or succeededIndexes must be specified");
        }
        if indexes.text().len() > 64 * 1024 {
            indexes.too_long(e, 64 * 1024);
        }
        let total = self::indexes(indexes.text(), completions);
        if let Err(why) = &total {
            indexes.invalid_text(e, format!("error parsing succeededIndexes: {why}"));
        }
        if !count.exists() {
            continue;
        }
        count.nonnegative(e);
        if count.int() > completions {
            let message = format!("must be less than or equal to {completions} (the number of specified completions)");
            count.invalid(e, message);
        }
        let total = total.unwrap_or(0);
        if indexes.exists() && count.int() > total {
            let message = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            count.invalid(e, message);
        }
    }
}

/// How many indexes a list has.
pub(super) fn indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut last, mut total) = (None, 0);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (from, to) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= from) {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

/// The first and last index of a part.
pub(super) fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 2 {
        let rule = "violates the requirement that an index interval can have at most two parts separated by '-'";
        return Err(format!("the fragment {text:?} {rule}"));
    }
    let number = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(number) if number >= completions => Err(format!("too large index: {text:?}")),
        Ok(number) => Ok(number),
    };
    let from = number(parts[0])?;
    let to = parts.get(1).map_or(Ok(from), |text| number(text))?;
    if parts.len() == 2 && from >= to {
        return Err(format!("non-increasing order, previous: {from}, current: {to}"));
    }
    Ok((from, to))
}
