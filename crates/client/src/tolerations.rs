//! Tolerations and taints.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether a toleration matches a taint. An empty key or effect matches all.
pub fn tolerates_taint(toleration: &Toleration, taint: &Taint) -> bool {
    let matches =
        |wanted: Option<&String>, value: &str| wanted.is_none_or(|wanted| wanted.is_empty() || wanted == value);
    matches(toleration.effect.as_ref(), &taint.effect)
        && matches(toleration.key.as_ref(), &taint.key)
        && match toleration.operator.as_deref().unwrap_or("") {
            "" | "Equal" => toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
            "Exists" => true,
            _ => false,
        }
}
