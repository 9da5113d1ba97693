//! Eviction thresholds: signals, their limits, and when they are met.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// A resource of the node that can run short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvictionSignal {
    /// Memory that is not in use.
    MemoryAvailable,
    /// Bytes of the file system of volumes and logs.
    NodeFsAvailable,
    /// Inodes of the file system of volumes and logs.
    NodeFsInodesFree,
    /// Bytes of the file system of images.
    ImageFsAvailable,
    /// Inodes of the file system of images.
    ImageFsInodesFree,
    /// Process ids.
    PidAvailable,
}

impl EvictionSignal {
    /// All signals with their names, memory first, which is relieved first.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::MemoryAvailable, "memory.available"),
        (Self::NodeFsAvailable, "nodefs.available"),
        (Self::NodeFsInodesFree, "nodefs.inodesFree"),
        (Self::ImageFsAvailable, "imagefs.available"),
        (Self::ImageFsInodesFree, "imagefs.inodesFree"),
        (Self::PidAvailable, "pid.available"),
    ];

    /// Parses a name such as `memory.available`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(signal, _)| signal)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| name)
    }

    /// Returns the resource that messages name.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodeFsAvailable | Self::ImageFsAvailable => "ephemeral-storage",
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }

    /// Returns the node condition of the signal.
    pub fn condition(self) -> NodePressure {
        match self {
            Self::MemoryAvailable => NodePressure::Memory,
            Self::PidAvailable => NodePressure::Pid,
            _ => NodePressure::Disk,
        }
    }
}

/// A node condition that says that a resource runs short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodePressure {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`.
    Disk,
    /// `PIDPressure`.
    Pid,
}

impl NodePressure {
    /// Returns the type of the condition.
    pub fn condition_type(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Pid => "PIDPressure",
        }
    }
}

/// An amount, or a part of the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdValue {
    /// Bytes, inodes or process ids.
    Amount(i64),
    /// Percent of the capacity.
    Percentage(f64),
}

impl ThresholdValue {
    /// Parses a quantity or a percentage from 0 to 100.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().ok()?;
            return (0.0..=100.0).contains(&percent).then_some(Self::Percentage(percent));
        }
        let is_number = text.starts_with(|first: char| first.is_ascii_digit());
        is_number.then(|| Self::Amount(quantity::to_units(&Quantity(text.into()))))
    }

    /// Returns the amount for a capacity.
    pub fn amount(self, capacity: i64) -> i64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Percentage(percent) => (capacity as f64 * percent / 100.0) as i64,
        }
    }
}

impl std::fmt::Display for ThresholdValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Amount(amount) => formatter.write_str(&binary_quantity(*amount)),
            Self::Percentage(percent) => write!(formatter, "{percent}%"),
        }
    }
}

/// Formats an amount with the largest binary suffix that keeps it whole, as Go does.
pub fn binary_quantity(amount: i64) -> String {
    let suffixes = ["Ti", "Gi", "Mi", "Ki"];
    let exact = suffixes.into_iter().zip([40, 30, 20, 10]).find(|(_, shift)| amount != 0 && amount % (1 << shift) == 0);
    exact.map_or_else(|| amount.to_string(), |(suffix, shift)| format!("{}{suffix}", amount >> shift))
}

/// A limit below which pods are evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionThreshold {
    /// The observed resource.
    pub signal: EvictionSignal,
    /// The limit.
    pub value: ThresholdValue,
    /// Time below the limit before pods are evicted; `None` is at once, without grace for the pods.
    pub grace_period: Option<Duration>,
}

/// When and how pods are evicted.
#[derive(Clone, Debug)]
pub struct EvictionSettings {
    /// The limits.
    pub thresholds: Vec<EvictionThreshold>,
    /// The amount that must be available beyond a limit before it is no longer met.
    pub minimum_reclaim: BTreeMap<EvictionSignal, ThresholdValue>,
    /// The longest grace period of pods that a soft limit evicts.
    pub max_pod_grace_period: Duration,
    /// Time for which a pressure condition stays.
    pub pressure_transition_period: Duration,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        let hard = |signal, value| EvictionThreshold { signal, value, grace_period: None };
        Self {
            thresholds: vec![
                hard(EvictionSignal::MemoryAvailable, ThresholdValue::Amount(100 << 20)),
                hard(EvictionSignal::NodeFsAvailable, ThresholdValue::Percentage(10.0)),
                hard(EvictionSignal::NodeFsInodesFree, ThresholdValue::Percentage(5.0)),
                hard(EvictionSignal::ImageFsAvailable, ThresholdValue::Percentage(15.0)),
                hard(EvictionSignal::ImageFsInodesFree, ThresholdValue::Percentage(5.0)),
            ],
            minimum_reclaim: BTreeMap::new(),
            max_pod_grace_period: Duration::ZERO,
            pressure_transition_period: Duration::from_secs(300),
        }
    }
}

impl EvictionSettings {
    /// Returns the amount that a hard limit keeps free.
    pub fn hard_limit(&self, signal: EvictionSignal, capacity: i64) -> i64 {
        let hard = self.thresholds.iter().find(|limit| limit.signal == signal && limit.grace_period.is_none());
        hard.map_or(0, |limit| limit.value.amount(capacity))
    }
}

/// A measured resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The free amount.
    pub available: i64,
    /// All there is.
    pub capacity: i64,
}

/// Measured resources.
pub type Observations = BTreeMap<EvictionSignal, Observation>;

impl EvictionThreshold {
    /// Whether less is available than the limit, or, if `was_met`, than the limit and the minimum reclaim.
    pub fn is_met(&self, settings: &EvictionSettings, observations: &Observations, was_met: bool) -> bool {
        let Some(observed) = observations.get(&self.signal) else { return false };
        let reclaim = settings.minimum_reclaim.get(&self.signal).filter(|_| was_met);
        let limit = self.value.amount(observed.capacity) + reclaim.map_or(0, |more| more.amount(observed.capacity));
        observed.available < limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_amounts_or_percentages() {
        assert_eq!(ThresholdValue::parse("100Mi"), Some(ThresholdValue::Amount(100 << 20)));
        assert_eq!(ThresholdValue::parse("10%").map(|value| value.amount(2000)), Some(200));
        assert_eq!((ThresholdValue::parse("120%"), ThresholdValue::parse("x")), (None, None));
        assert!(EvictionSignal::ALL.iter().all(|(signal, name)| EvictionSignal::from_name(name) == Some(*signal)));
    }

    #[test]
    fn met_limit_stays_met_until_the_minimum_is_reclaimed() {
        let signal = EvictionSignal::MemoryAvailable;
        let limit = EvictionThreshold { signal, value: ThresholdValue::Amount(100), grace_period: None };
        let minimum_reclaim = [(signal, ThresholdValue::Amount(50))].into();
        let settings = EvictionSettings { minimum_reclaim, ..Default::default() };
        let met = |available, was_met| {
            limit.is_met(&settings, &[(signal, Observation { available, capacity: 1000 })].into(), was_met)
        };
        assert_eq!([met(99, false), met(120, false), met(120, true), met(150, true)], [true, false, true, false]);
        assert!(!limit.is_met(&settings, &Observations::new(), true));
    }
}
