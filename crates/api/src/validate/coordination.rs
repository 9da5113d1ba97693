//! Validation of leases and of those who would hold them.

use super::{Errors, at::At, names};

/// The faults of a lease.
pub(super) fn lease(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.exists() && duration.int() <= 0 {
        duration.invalid(e, "must be greater than 0");
    }
    spec.get("leaseTransitions").nonnegative(e);
    let strategy = spec.get("strategy");
    if strategy.exists() {
        self::strategy(&strategy, e);
    }
    if !spec.get("preferredHolder").is_empty() && strategy.is_empty() {
        spec.get("preferredHolder").forbidden(e, "may only be specified if `strategy` is defined");
    }
}

fn strategy(at: &At, e: &mut Errors) {
    let place = at.called("strategy", at.value);
    if at.text().contains('/') {
        place.form(e, names::qualified);
    } else {
        place.one_of(e, &["OldestEmulationVersion"]);
    }
}

/// The faults of a candidate.
pub(super) fn candidate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    spec.get("leaseName").require(e);
    let (emulation, binary, plan) = (spec.get("emulationVersion"), spec.get("binaryVersion"), spec.get("strategy"));
    let parsed = |at: &At| version(at.text());
    if !emulation.is_empty() && parsed(&emulation).is_none() {
        emulation.invalid_text(e, "must be a valid semantic version");
    }
    if binary.require(e) && parsed(&binary).is_none() {
        binary.invalid_text(e, "must be a valid semantic version");
    }
    let zero = [0, 0, 0];
    let (low, high) = (parsed(&emulation).unwrap_or(zero), parsed(&binary).unwrap_or(zero));
    if !binary.is_empty() && !emulation.is_empty() && high < low {
        binary.invalid_text(e, "must be greater than or equal to `emulationVersion`");
    }
    if plan.require(e) {
        if plan.text() == "OldestEmulationVersion" && low == zero {
            emulation.required(e, "must be specified when `strategy` is 'OldestEmulationVersion'");
        }
        strategy(&plan, e);
    }
    if let Some(old) = old
        && spec.get("leaseName").text() != old.get("spec").get("leaseName").text()
    {
        spec.get("leaseName").invalid_text(e, super::at::IMMUTABLE);
    }
}

/// The three numbers of a semantic version.
fn version(text: &str) -> Option<[u64; 3]> {
    let core = text.split(['-', '+']).next()?;
    let numbers = core.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
    numbers.try_into().ok()
}
