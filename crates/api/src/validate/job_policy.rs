//! Validation of when jobs fail and succeed, and of lists of indexes such as `0-3,7`.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { domain_path container_of_template exit_codes success_counts };

/// A path after a domain: `acme.io/foo`.
fn domain_path(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    match at.text().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => at.invalid_text(e, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((host, path)) => {
            at.form_as(e, host, names::subdomain);
            if !path.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c)) {
                let message = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                at.invalid_as(e, path, message);
            }
        }
    }
}

/// A rule about exit codes names a container that there is.
fn container_of_template(name: &At, e: &mut Errors) {
    let template = name.up(5).get("template");
    let inner = template.get("spec");
    let known = ["containers", "initContainers"].iter().any(|list| inner.get(list).find("name", name.text()).is_some());
    if !known {
        name.invalid_text(e, "must be one of the container or initContainer names in the pod template");
    }
}

/// Exit codes stand in order, each once.
fn exit_codes(values: &At, e: &mut Errors) {
    let (mut seen, mut ordered) = (Vec::new(), true);
    for value in values.items() {
        let code = value.int();
        if values.up(1).text_of("operator") == "In" && code == 0 {
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

/// What must succeed is at most what there is.
fn success_counts(rule: &At, e: &mut Errors) {
    let completions = rule.up(3).get("completions").int();
    let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
    let total = self::indexes(indexes.text(), completions);
    if let Err(why) = &total {
        indexes.invalid_text(e, format!("error parsing succeededIndexes: {why}"));
    }
    count.nonnegative(e);
    if count.exists() && count.int() > completions {
        let message = format!("must be less than or equal to {completions} (the number of specified completions)");
        count.invalid(e, message);
    }
    let total = total.unwrap_or(0);
    if count.exists() && indexes.exists() && count.int() > total {
        let what = "the number of indexes in the specified succeededIndexes field";
        count.invalid(e, format!("must be less than or equal to {total} ({what})"));
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
