//! Validation of disruption budgets.

use super::{Errors, at::At, int_or_percent as amount, selector};

/// The faults of a disruption budget.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if least.exists() && most.exists() {
        let ty = "policy/v1.PodDisruptionBudgetSpec";
        spec.invalid_internal(e, ty, "minAvailable and maxUnavailable cannot be both set");
    }
    for bound in [&least, &most].into_iter().filter(|bound| bound.exists()) {
        amount::check(bound, e);
        amount::at_most_all(bound, e);
    }
    let lenient = old.is_some_and(|old| selector::is_faulty(old.get("spec").get("selector").value));
    selector::lenient(&spec.get("selector"), lenient, e);
    spec.get("unhealthyPodEvictionPolicy").one_of(e, &["AlwaysAllow", "IfHealthyBudget"]);
}
