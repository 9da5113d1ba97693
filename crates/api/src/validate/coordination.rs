//! Leases and those who would hold them, as far as the tables cannot say what is right.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { lease_strategy candidate_versions };

/// Upstream tells a wrong strategy one step too deep.
fn lease_strategy(at: &At, e: &mut Errors) {
    let place = at.called("strategy", at.value);
    if at.text().contains('/') {
        place.form(e, names::qualified);
    } else {
        place.one_of(e, &["OldestEmulationVersion"]);
    }
}

/// The faults of the versions that a candidate has and emulates, and of how one is chosen by them.
fn candidate_versions(spec: &At, e: &mut Errors) {
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
        lease_strategy(&plan, e);
    }
}

/// The three numbers of a semantic version.
fn version(text: &str) -> Option<[u64; 3]> {
    let core = text.split(['-', '+']).next()?;
    let numbers = core.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
    numbers.try_into().ok()
}
