//! The historic scheduler policy (`--policy-config-file`): predicates and priorities by their old names, mapped to plug-ins.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ConfigError, EnabledPlugin, ExtenderConfig, PluginConfig, PluginSelection, SchedulerConfiguration};

/// A policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SchedulerPolicy {
    /// Filters; `None` means the defaults.
    predicates: Option<Vec<NamedPolicy>>,
    /// Scores; `None` means the defaults.
    priorities: Option<Vec<NamedPolicy>>,
    extenders: Vec<LegacyExtender>,
    /// Weight of required affinity in scores.
    hard_pod_affinity_symmetric_weight: i32,
}

/// An extender of a policy: as of the configuration, with the names of its time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LegacyExtender {
    #[serde(flatten)]
    config: Value,
}

/// A predicate or priority.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NamedPolicy {
    name: String,
    weight: i64,
    argument: Option<Value>,
}

/// Predicates and the plug-ins that took their place.
const PREDICATES: [(&str, &[&str]); 18] = [
    ("PodFitsHostPorts", &["NodePorts"]),
    ("PodFitsPorts", &["NodePorts"]),
    ("PodFitsResources", &["NodeResourcesFit"]),
    ("HostName", &["NodeName"]),
    ("MatchNodeSelector", &["NodeAffinity"]),
    ("NoVolumeZoneConflict", &["VolumeZone"]),
    ("MaxCSIVolumeCountPred", &["NodeVolumeLimits"]),
    ("MaxEBSVolumeCount", &["NodeVolumeLimits"]),
    ("MaxGCEPDVolumeCount", &["NodeVolumeLimits"]),
    ("MaxAzureDiskVolumeCount", &["NodeVolumeLimits"]),
    ("NoDiskConflict", &["VolumeRestrictions"]),
    ("GeneralPredicates", &["NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"]),
    ("PodToleratesNodeTaints", &["TaintToleration"]),
    ("CheckNodeUnschedulable", &["NodeUnschedulable"]),
    ("CheckVolumeBinding", &["VolumeBinding"]),
    ("MatchInterPodAffinity", &["InterPodAffinity"]),
    ("EvenPodsSpread", &["PodTopologySpread"]),
    ("EvenPodsSpreadPred", &["PodTopologySpread"]),
];

/// Priorities and the plug-ins that took their place; the last two are strategies of `NodeResourcesFit`.
const PRIORITIES: [(&str, &str); 11] = [
    ("SelectorSpreadPriority", "PodTopologySpread"),
    ("ServiceSpreadingPriority", "PodTopologySpread"),
    ("EvenPodsSpreadPriority", "PodTopologySpread"),
    ("InterPodAffinityPriority", "InterPodAffinity"),
    ("LeastRequestedPriority", "NodeResourcesFit"),
    ("MostRequestedPriority", "NodeResourcesFit"),
    ("RequestedToCapacityRatioPriority", "NodeResourcesFit"),
    ("BalancedResourceAllocation", "NodeResourcesBalancedAllocation"),
    ("NodeAffinityPriority", "NodeAffinity"),
    ("TaintTolerationPriority", "TaintToleration"),
    ("ImageLocalityPriority", "ImageLocality"),
];

impl SchedulerPolicy {
    /// Reads a policy document.
    pub fn from_value(document: Value) -> Result<Self, ConfigError> {
        match document["kind"].as_str() {
            Some("Policy") | None => Ok(serde_json::from_value(document)?),
            Some(kind) => Err(ConfigError::Unknown {
                kind: kind.into(),
                version: document["apiVersion"].as_str().unwrap_or("").into(),
            }),
        }
    }

    /// Applies the policy to all profiles of a configuration.
    pub fn apply(&self, configuration: &mut SchedulerConfiguration) -> Result<(), ConfigError> {
        let (filters, scores) = (self.filters()?, self.scores()?);
        for profile in &mut configuration.profiles {
            if let Some(filters) = &filters {
                profile.plugins.filter = only(filters);
                let pre_filters = ["NodePorts", "NodeAffinity", "VolumeRestrictions", "NodeVolumeLimits"];
                let pre_filters = pre_filters.into_iter().chain([
                    "VolumeBinding",
                    "VolumeZone",
                    "PodTopologySpread",
                    "InterPodAffinity",
                    "NodeName",
                ]);
                let used = pre_filters.filter(|name| filters.iter().any(|plugin| plugin.name == *name));
                let used: Vec<_> = used.map(|name| EnabledPlugin { name: name.into(), weight: 0 }).collect();
                profile.plugins.pre_filter = only(&used);
            }
            if let Some(scores) = &scores {
                profile.plugins.score = only(scores);
            }
            if let Some(strategy) = self.scoring_strategy()? {
                let args = json!({"scoringStrategy": strategy});
                profile.plugin_config.push(PluginConfig { name: "NodeResourcesFit".into(), args });
            }
            if self.hard_pod_affinity_symmetric_weight != 0 {
                let args = json!({"hardPodAffinityWeight": self.hard_pod_affinity_symmetric_weight});
                profile.plugin_config.push(PluginConfig { name: "InterPodAffinity".into(), args });
            }
        }
        let extenders = self.extenders.iter().map(legacy_extender).collect::<Result<Vec<_>, _>>()?;
        configuration.extenders.extend(extenders);
        configuration.validate()
    }

    fn filters(&self) -> Result<Option<Vec<EnabledPlugin>>, ConfigError> {
        let Some(predicates) = &self.predicates else { return Ok(None) };
        // Nodes that are marked unschedulable were excluded whatever the policy said.
        let mut names: Vec<&str> = vec!["NodeUnschedulable", "TaintToleration"];
        for predicate in predicates {
            let known = PREDICATES.iter().find(|(name, _)| *name == predicate.name);
            let (_, plugins) =
                known.filter(|_| predicate.argument.is_none()).ok_or_else(|| unsupported("Predicate", predicate))?;
            names.extend(plugins.iter().filter(|plugin| !names.contains(plugin)).copied().collect::<Vec<_>>());
        }
        Ok(Some(names.into_iter().map(|name| EnabledPlugin { name: name.into(), weight: 0 }).collect()))
    }

    fn scores(&self) -> Result<Option<Vec<EnabledPlugin>>, ConfigError> {
        let Some(priorities) = &self.priorities else { return Ok(None) };
        let mut scores: Vec<EnabledPlugin> = Vec::new();
        for priority in priorities {
            if priority.weight <= 0 {
                let message = format!("priority {} should have a positive weight applied to it", priority.name);
                return Err(ConfigError::Invalid(message));
            }
            if priority.name == "EqualPriority" {
                continue;
            }
            let by_argument = priority
                .argument
                .as_ref()
                .is_some_and(|argument| argument.get("requestedToCapacityRatioArguments").is_some());
            let known = PRIORITIES.iter().find(|(name, _)| *name == priority.name);
            let plugin = match known {
                _ if by_argument => "NodeResourcesFit",
                Some((_, plugin)) if priority.argument.is_none() => plugin,
                _ => return Err(unsupported("Priority", priority)),
            };
            match scores.iter_mut().find(|score| score.name == plugin) {
                Some(score) => score.weight += priority.weight,
                None => scores.push(EnabledPlugin { name: plugin.into(), weight: priority.weight }),
            }
        }
        Ok(Some(scores))
    }

    /// Returns the strategy of `NodeResourcesFit`, if a priority stands for one.
    fn scoring_strategy(&self) -> Result<Option<Value>, ConfigError> {
        let mut strategies = Vec::new();
        for priority in self.priorities.iter().flatten() {
            let ratio =
                priority.argument.as_ref().and_then(|argument| argument.get("requestedToCapacityRatioArguments"));
            match (priority.name.as_str(), ratio) {
                (_, Some(arguments)) => strategies.push(json!({
                    "type": "RequestedToCapacityRatio",
                    "resources": arguments.get("resources").cloned().unwrap_or(json!([{"name": "cpu"}, {"name": "memory"}])),
                    "requestedToCapacityRatio": {"shape": arguments.get("shape")},
                })),
                ("LeastRequestedPriority", _) => strategies.push(json!({"type": "LeastAllocated"})),
                ("MostRequestedPriority", _) => strategies.push(json!({"type": "MostAllocated"})),
                _ => {}
            }
        }
        match strategies.len() {
            0 | 1 => Ok(strategies.pop()),
            _ => Err(ConfigError::Invalid("a policy can have only one of the priorities LeastRequestedPriority, MostRequestedPriority and RequestedToCapacityRatioPriority".into())),
        }
    }
}

fn only(plugins: &[EnabledPlugin]) -> PluginSelection {
    let all = EnabledPlugin { name: "*".into(), weight: 0 };
    PluginSelection { enabled: plugins.to_vec(), disabled: vec![all] }
}

fn unsupported(what: &str, policy: &NamedPolicy) -> ConfigError {
    ConfigError::Invalid(format!("Invalid configuration: {what} type not found for {:?}", policy.name))
}

/// Reads an extender with the field names of policies.
fn legacy_extender(extender: &LegacyExtender) -> Result<ExtenderConfig, ConfigError> {
    let mut config = extender.config.clone();
    if let Some(fields) = config.as_object_mut() {
        for (old, new) in [("enableHttps", "enableHTTPS"), ("urlprefix", "urlPrefix")] {
            if let Some(value) = fields.remove(old) {
                fields.insert(new.into(), value);
            }
        }
        // Nanoseconds then, a text now.
        if let Some(nanos) = fields.get("httpTimeout").and_then(Value::as_i64) {
            fields.insert("httpTimeout".into(), Value::from(api::duration::format(nanos)));
        }
    }
    Ok(serde_json::from_value(config)?)
}
