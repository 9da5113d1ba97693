//! Taints of nodes and tolerations of pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1;

use crate::intern::intern;

/// The effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaintEffect {
    /// Pods that do not tolerate the taint are not scheduled.
    NoSchedule,
    /// Pods that do not tolerate the taint are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Pods that do not tolerate the taint are evicted.
    NoExecute,
}

impl TaintEffect {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => return None,
        })
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTaint {
    /// The taint's key.
    pub key: Arc<str>,
    /// The taint's value; may be empty.
    pub value: Arc<str>,
    /// The taint's effect.
    pub effect: TaintEffect,
}

impl NodeTaint {
    /// Parses a taint; `None` if its effect is unknown.
    pub fn from_taint(taint: &v1::Taint) -> Option<Self> {
        let effect = TaintEffect::parse(&taint.effect)?;
        Some(Self { key: intern(&taint.key), value: intern(taint.value.as_deref().unwrap_or("")), effect })
    }

    /// Whether the taint keeps pods from being scheduled.
    pub fn prevents_scheduling(&self) -> bool {
        matches!(self.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute)
    }
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodToleration {
    /// Empty tolerates all keys.
    key: Arc<str>,
    operator: TolerationOperator,
    value: Arc<str>,
    /// `None` tolerates all effects.
    effect: Option<TaintEffect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TolerationOperator {
    Equal,
    Exists,
    /// An operator of a later version; tolerates nothing.
    Unknown,
}

impl PodToleration {
    /// Parses a toleration; `None` if its effect is unknown, so that it tolerates nothing.
    pub fn from_toleration(toleration: &v1::Toleration) -> Option<Self> {
        let effect = match toleration.effect.as_deref().unwrap_or("") {
            "" => None,
            name => Some(TaintEffect::parse(name)?),
        };
        let operator = match toleration.operator.as_deref().unwrap_or("") {
            "" | "Equal" => TolerationOperator::Equal,
            "Exists" => TolerationOperator::Exists,
            _ => TolerationOperator::Unknown,
        };
        let text = |text: Option<&String>| intern(text.map_or("", String::as_str));
        Some(Self { key: text(toleration.key.as_ref()), operator, value: text(toleration.value.as_ref()), effect })
    }

    /// Whether the pod tolerates the taint by this toleration.
    pub fn tolerates(&self, taint: &NodeTaint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Exists => true,
                TolerationOperator::Unknown => false,
            }
    }

    /// Whether the toleration is about taints with the effect `PreferNoSchedule`.
    pub fn is_for_preference(&self) -> bool {
        self.effect.is_none_or(|effect| effect == TaintEffect::PreferNoSchedule)
    }
}

/// Whether one of the tolerations tolerates the taint.
pub fn tolerates_taint(tolerations: &[PodToleration], taint: &NodeTaint) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

/// Whether a taint keeps a pod with these tolerations from being scheduled.
pub fn has_untolerated_taint(taints: &[NodeTaint], tolerations: &[PodToleration]) -> bool {
    taints.iter().any(|taint| taint.prevents_scheduling() && !tolerates_taint(tolerations, taint))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(taint: Value, toleration: Value, expected: bool) {
        let taint = NodeTaint::from_taint(&serde_json::from_value(taint).unwrap()).unwrap();
        let toleration = PodToleration::from_toleration(&serde_json::from_value(toleration).unwrap());
        assert_eq!(toleration.is_some_and(|toleration| toleration.tolerates(&taint)), expected);
    }

    #[test]
    fn tolerations_match_like_upstream() {
        let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        check(taint.clone(), json!({"key": "k", "value": "v"}), true);
        check(taint.clone(), json!({"key": "k", "operator": "Exists"}), true);
        check(taint.clone(), json!({"operator": "Exists", "effect": "NoSchedule"}), true);
        check(taint.clone(), json!({"operator": "Exists", "effect": "NoExecute"}), false);
        check(taint.clone(), json!({"key": "k", "value": "w"}), false);
        check(taint, json!({"key": "k", "operator": "Gt", "value": "1"}), false);
    }
}
