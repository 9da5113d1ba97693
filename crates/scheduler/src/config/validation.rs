//! Validation of the configuration, in upstream's words.

use std::fmt::Display;

use super::{
    ConfigError, SchedulerConfiguration, SchedulerProfile,
    plugin_args::{
        BalancedAllocationArgs, DefaultPreemptionArgs, InterPodAffinityArgs, NodeResourcesFitArgs,
        PodTopologySpreadArgs, ScoringStrategyType, SpreadDefaulting, UtilizationShapePoint, VolumeBindingArgs,
    },
};
use crate::views::resources::is_extended_resource;

/// Plug-ins of earlier versions.
const REMOVED_PLUGINS: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Collects field errors.
#[derive(Default)]
struct FieldErrors(Vec<String>);

impl FieldErrors {
    fn invalid(&mut self, path: impl Display, value: impl Display, why: impl Display) {
        self.0.push(format!("{path}: Invalid value: {value}: {why}"));
    }

    fn required(&mut self, path: impl Display, why: &str) {
        let separator = if why.is_empty() { "" } else { ": " };
        self.0.push(format!("{path}: Required value{separator}{why}"));
    }

    fn duplicate(&mut self, path: impl Display, value: &str) {
        self.0.push(format!("{path}: Duplicate value: {value:?}"));
    }

    fn forbidden(&mut self, path: impl Display, why: &str) {
        self.0.push(format!("{path}: Forbidden: {why}"));
    }
}

impl SchedulerConfiguration {
    /// Checks all values; the error has all that is wrong.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let mut errors = FieldErrors::default();
        if self.leader_election.leader_elect && self.leader_election.resource_lock != "leases" {
            let lock = format!("{:?}", self.leader_election.resource_lock);
            errors.invalid("leaderElection.resourceLock", lock, "resourceLock value must be \"leases\"");
        }
        if self.parallelism <= 0 {
            errors.invalid("parallelism", self.parallelism, "should be an integer value greater than zero");
        }
        self.validate_profiles(&mut errors);
        check_percentage(&mut errors, "percentageOfNodesToScore", self.percentage_of_nodes_to_score);
        if self.pod_initial_backoff_seconds <= 0 {
            errors.invalid("podInitialBackoffSeconds", self.pod_initial_backoff_seconds, "must be greater than 0");
        }
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds {
            let why = "must be greater than or equal to PodInitialBackoffSeconds";
            errors.invalid("podMaxBackoffSeconds", self.pod_max_backoff_seconds, why);
        }
        self.validate_extenders(&mut errors);
        match errors.0.as_slice() {
            [] => Ok(()),
            [only] => Err(ConfigError::Invalid(only.clone())),
            all => Err(ConfigError::Invalid(format!("[{}]", all.join(", ")))),
        }
    }

    fn validate_profiles(&self, errors: &mut FieldErrors) {
        for (index, profile) in self.profiles.iter().enumerate() {
            let path = format!("profiles[{index}]");
            if profile.name().is_empty() {
                errors.required(format!("{path}.schedulerName"), "");
            }
            check_percentage(errors, &format!("{path}.percentageOfNodesToScore"), profile.percentage_of_nodes_to_score);
            validate_plugin_config(errors, &path, profile);
            let same = self.profiles.iter().take(index).position(|other| other.name() == profile.name());
            if let Some(same) = same {
                errors.duplicate(format!("{path}.schedulerName"), &format!("profiles[{same}].schedulerName"));
            }
            let is_other = profile.plugins.queue_sort != self.profiles[0].plugins.queue_sort;
            if is_other {
                let value = format!("{:?}", profile.plugins.queue_sort);
                errors.invalid(format!("{path}.plugins.queueSort"), value, "must be the same for all profiles");
            }
        }
    }

    fn validate_extenders(&self, errors: &mut FieldErrors) {
        let mut seen: Vec<&str> = Vec::new();
        for (index, extender) in self.extenders.iter().enumerate() {
            let path = format!("extenders[{index}]");
            if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
                errors.invalid(format!("{path}.weight"), extender.weight, "must have a positive weight applied to it");
            }
            for (place, resource) in extender.managed_resources.iter().enumerate() {
                let path = format!("{path}.managedResources[{place}].name");
                if !is_extended_resource(&resource.name) {
                    errors.invalid(&path, format!("{:?}", resource.name), "is an invalid extended resource name");
                }
                if seen.contains(&resource.name.as_str()) {
                    errors.invalid(&path, format!("{:?}", resource.name), "duplicate extender managed resource name");
                }
                seen.push(&resource.name);
            }
        }
        let binders = self.extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
        if binders > 1 {
            let value = format!("\"found {binders} extenders implementing bind\"");
            errors.invalid("extenders", value, "only one extender can implement bind");
        }
    }
}

fn check_percentage(errors: &mut FieldErrors, path: &str, percentage: Option<i32>) {
    if let Some(percentage) = percentage.filter(|percentage| !(0..=100).contains(percentage)) {
        errors.invalid(path, percentage, "not in valid range [0-100]");
    }
}

fn validate_plugin_config(errors: &mut FieldErrors, path: &str, profile: &SchedulerProfile) {
    let points = crate::framework::ExtensionPoint::ALL;
    for point in points {
        for (index, plugin) in profile.plugins.at(point).enabled.iter().enumerate() {
            if REMOVED_PLUGINS.contains(&plugin.name.as_str()) {
                let name = format!("{point:?}");
                let stage = format!("{}{}", name[..1].to_ascii_lowercase(), &name[1..]);
                errors.invalid(
                    format!("{path}.plugins.{stage}.enabled[{index}]"),
                    format!("{:?}", plugin.name),
                    removed_message(),
                );
            }
        }
    }
    for (index, config) in profile.plugin_config.iter().enumerate() {
        let path = format!("{path}.pluginConfig[{index}]");
        let name = config.name.as_str();
        if profile.plugin_config.iter().take(index).any(|other| other.name == name) {
            errors.duplicate(&path, name);
        } else if REMOVED_PLUGINS.contains(&name) {
            errors.invalid(&path, format!("{name:?}"), removed_message());
        } else if let Err(error) = validate_args(errors, &format!("{path}.args"), name, profile) {
            errors.0.push(format!("decoding {path}.args: {error}"));
        }
    }
}

fn removed_message() -> String {
    let version = super::API_VERSION;
    format!("was invalid in version {version:?} (KubeSchedulerConfiguration is version {version:?})")
}

fn validate_args(
    errors: &mut FieldErrors,
    path: &str,
    plugin: &str,
    profile: &SchedulerProfile,
) -> Result<(), ConfigError> {
    match plugin {
        "DefaultPreemption" => validate_preemption(errors, path, &profile.args(plugin)?),
        "InterPodAffinity" => {
            let args: InterPodAffinityArgs = profile.args(plugin)?;
            if !(0..=100).contains(&args.hard_pod_affinity_weight) {
                let path = format!("{path}.hardPodAffinityWeight");
                errors.invalid(path, args.hard_pod_affinity_weight, "not in valid range [0, 100]");
            }
        }
        "NodeResourcesBalancedAllocation" => validate_balanced(errors, path, &profile.args(plugin)?),
        "NodeResourcesFit" => validate_fit(errors, path, &profile.args(plugin)?),
        "PodTopologySpread" => validate_spread(errors, path, &profile.args(plugin)?),
        "VolumeBinding" => {
            let args: VolumeBindingArgs = profile.args(plugin)?;
            if args.bind_timeout_seconds < 0 {
                let why = "invalid BindTimeoutSeconds, should not be a negative value";
                errors.invalid(format!("{path}.bindTimeoutSeconds"), args.bind_timeout_seconds, why);
            }
            if !args.shape.is_empty() {
                let why = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
                errors.invalid(format!("{path}.shape"), format!("{:?}", args.shape), why);
            }
        }
        _ => {}
    }
    Ok(())
}

fn validate_preemption(errors: &mut FieldErrors, path: &str, args: &DefaultPreemptionArgs) {
    let (percentage, absolute) = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
    let percentage_path = format!("{path}.minCandidateNodesPercentage");
    let absolute_path = format!("{path}.minCandidateNodesAbsolute");
    if !(0..=100).contains(&percentage) {
        errors.invalid(&percentage_path, percentage, "not in valid range [0, 100]");
    }
    if absolute < 0 {
        errors.invalid(&absolute_path, absolute, "not in valid range [0, inf)");
    }
    if percentage == 0 && absolute == 0 {
        errors.invalid(&percentage_path, 0, "cannot be zero at the same time as minCandidateNodesAbsolute");
        errors.invalid(&absolute_path, 0, "cannot be zero at the same time as minCandidateNodesPercentage");
    }
}

fn validate_balanced(errors: &mut FieldErrors, path: &str, args: &BalancedAllocationArgs) {
    for (index, resource) in args.resources.iter().enumerate() {
        if args.resources.iter().take(index).any(|other| other.name == resource.name) {
            errors.duplicate(format!("{path}.resources[{index}].name"), &resource.name);
        }
        if resource.weight != 1 {
            errors.invalid(format!("{path}.resources[{index}].weight"), resource.weight, "must be 1");
        }
    }
}

fn validate_fit(errors: &mut FieldErrors, path: &str, args: &NodeResourcesFitArgs) {
    for (index, group) in args.ignored_resource_groups.iter().enumerate() {
        if group.contains('/') {
            let path = format!("{path}.ignoredResourceGroups[{index}]");
            errors.invalid(path, format!("{group:?}"), "resource group name can't contain '/'");
        }
    }
    let strategy = &args.scoring_strategy;
    let path = format!("{path}.scoringStrategy");
    for (index, resource) in strategy.resources.iter().enumerate() {
        if !(1..=100).contains(&resource.weight) {
            let why = format!("resource weight of {} not in valid range (0, 100]", resource.name);
            errors.invalid(format!("{path}.resources[{index}].weight"), resource.weight, why);
        }
    }
    let ratio_path = format!("{path}.requestedToCapacityRatio");
    match (&strategy.requested_to_capacity_ratio, strategy.type_) {
        (Some(ratio), ScoringStrategyType::RequestedToCapacityRatio) => {
            validate_shape(errors, &format!("{ratio_path}.shape"), &ratio.shape);
        }
        (None, ScoringStrategyType::RequestedToCapacityRatio) => {
            errors.required(ratio_path, "must be specified when type is RequestedToCapacityRatio");
        }
        (Some(_), _) => errors.forbidden(ratio_path, "must be nil when type is not RequestedToCapacityRatio"),
        (None, _) => {}
    }
}

fn validate_shape(errors: &mut FieldErrors, path: &str, shape: &[UtilizationShapePoint]) {
    if shape.is_empty() {
        errors.required(path, "at least one point must be specified");
    }
    let unsorted = shape.windows(2).position(|pair| pair[0].utilization >= pair[1].utilization);
    if let Some(place) = unsorted {
        let path = format!("{path}[{}].utilization", place + 1);
        errors.invalid(path, shape[place + 1].utilization, "values must be sorted in increasing order");
    }
    for (index, point) in shape.iter().enumerate() {
        if !(0..=100).contains(&point.utilization) {
            let path = format!("{path}[{index}].utilization");
            errors.invalid(path, point.utilization, "not in valid range [0, 100]");
        }
        if !(0..=10).contains(&point.score) {
            errors.invalid(format!("{path}[{index}].score"), point.score, "not in valid range [0, 10]");
        }
    }
}

fn validate_spread(errors: &mut FieldErrors, path: &str, args: &PodTopologySpreadArgs) {
    if args.defaulting_type == SpreadDefaulting::System && !args.default_constraints.is_empty() {
        errors.invalid(format!("{path}.defaultingType"), "\"System\"", "when .defaultConstraints are not empty");
    }
    for (index, constraint) in args.default_constraints.iter().enumerate() {
        let path = format!("{path}.defaultConstraints[{index}]");
        if constraint.max_skew <= 0 {
            errors.invalid(format!("{path}.maxSkew"), constraint.max_skew, "not in valid range (0, inf)");
        }
        if constraint.topology_key.is_empty() {
            errors.required(format!("{path}.topologyKey"), "can not be empty");
        }
        match constraint.when_unsatisfiable.as_str() {
            "" => errors.required(format!("{path}.whenUnsatisfiable"), "can not be empty"),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            other => errors.0.push(format!(
                "{path}.whenUnsatisfiable: Unsupported value: {other:?}: supported values: \"DoNotSchedule\", \"ScheduleAnyway\""
            )),
        }
        if constraint.label_selector.is_some() {
            let why = "constraint must not define a selector, as they deduced for each pod";
            errors.forbidden(format!("{path}.labelSelector"), why);
        }
        let repeats = args.default_constraints.iter().take(index).any(|other| {
            other.topology_key == constraint.topology_key && other.when_unsatisfiable == constraint.when_unsatisfiable
        });
        if repeats {
            let value = format!("{{{}, {}}}", constraint.topology_key, constraint.when_unsatisfiable);
            errors.duplicate(&path, &value);
        }
    }
}
