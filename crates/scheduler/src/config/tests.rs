//! Tests of configuration files and policies.

use serde_json::json;

use super::*;
use crate::framework::ExtensionPoint;

fn configuration(more: Value) -> Result<SchedulerConfiguration, ConfigError> {
    let mut document = json!({"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"});
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    SchedulerConfiguration::from_value(document)
}

fn check_invalid(more: Value, expected: &str) {
    let error = configuration(more).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

/// The enabled plug-ins of a point as `name*weight`, if `names` extend it.
fn check_plugins(plugins: Value, point: ExtensionPoint, extending: &[&str], expected: &str) {
    let configuration = configuration(json!({"profiles": [{"plugins": plugins}]})).unwrap();
    let enabled = configuration.profiles[0].plugins.plugins_at(point, |name| extending.contains(&name)).unwrap();
    let names: Vec<String> = enabled.iter().map(|plugin| format!("{}*{}", plugin.name, plugin.weight)).collect();
    assert_eq!(names.join(" "), expected);
}

#[test]
fn defaults_are_upstreams() {
    let configuration = configuration(json!({})).unwrap();
    assert_eq!(configuration.profiles[0].name(), "default-scheduler");
    assert_eq!((configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds), (1, 10));
    assert!(configuration.leader_election.leader_elect);
}

#[test]
fn plugins_are_merged_as_upstream_does() {
    let scoring = ["TaintToleration", "NodeAffinity", "ImageLocality"];
    let point = ExtensionPoint::Score;
    check_plugins(json!({}), point, &scoring, "TaintToleration*3 NodeAffinity*2 ImageLocality*1");
    let weights = json!({"score": {"enabled": [{"name": "ImageLocality", "weight": 9}]}});
    check_plugins(weights, point, &scoring, "ImageLocality*9 TaintToleration*3 NodeAffinity*2");
    let disabled = json!({"score": {"disabled": [{"name": "NodeAffinity"}]}});
    check_plugins(disabled, point, &scoring, "TaintToleration*3 ImageLocality*1");
    let only = json!({"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "ImageLocality", "weight": 2}]}});
    check_plugins(only, point, &scoring, "ImageLocality*2");
    let multi = json!({"multiPoint": {"disabled": [{"name": "ImageLocality"}], "enabled": [{"name": "TaintToleration", "weight": 7}]}});
    check_plugins(multi, point, &scoring, "TaintToleration*7 NodeAffinity*2");
}

#[test]
fn invalid_configurations_are_refused_in_upstreams_words() {
    check_invalid(
        json!({"parallelism": 0}),
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
    );
    check_invalid(
        json!({"percentageOfNodesToScore": 101}),
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
    );
    check_invalid(json!({"podMaxBackoffSeconds": 0}), "must be greater than or equal to PodInitialBackoffSeconds");
    let twice = json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]});
    check_invalid(twice, "profiles[1].schedulerName: Duplicate value: \"profiles[0].schedulerName\"");
    check_invalid(json!({"unknown": 1}), "strict decoding error: unknown field `unknown`");
    let args = |plugin: &str, args: Value| json!({"profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}]});
    check_invalid(
        args("InterPodAffinity", json!({"hardPodAffinityWeight": 101})),
        "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
    );
    check_invalid(
        args("NodeResourcesFit", json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}})),
        "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio",
    );
    let other = json!({"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": "KubeSchedulerConfiguration"});
    assert!(SchedulerConfiguration::from_value(other).is_err());
}

#[test]
fn policies_become_plugins() {
    let policy = json!({"kind": "Policy", "apiVersion": "v1",
        "predicates": [{"name": "PodFitsResources"}, {"name": "MatchInterPodAffinity"}],
        "priorities": [{"name": "MostRequestedPriority", "weight": 4}, {"name": "ImageLocalityPriority", "weight": 2}],
        "hardPodAffinitySymmetricWeight": 7});
    let mut configuration = configuration(json!({})).unwrap();
    policy::SchedulerPolicy::from_value(policy).unwrap().apply(&mut configuration).unwrap();
    let profile = &configuration.profiles[0];
    let names: Vec<&str> = profile.plugins.filter.enabled.iter().map(|plugin| plugin.name.as_str()).collect();
    assert_eq!(names, ["NodeUnschedulable", "TaintToleration", "NodeResourcesFit", "InterPodAffinity"]);
    assert_eq!(profile.plugins.score.enabled[0], EnabledPlugin { name: "NodeResourcesFit".into(), weight: 4 });
    let args: plugin_args::NodeResourcesFitArgs = profile.args("NodeResourcesFit").unwrap();
    assert_eq!(args.scoring_strategy.type_, plugin_args::ScoringStrategyType::MostAllocated);
    let affinity: plugin_args::InterPodAffinityArgs = profile.args("InterPodAffinity").unwrap();
    assert_eq!(affinity.hard_pod_affinity_weight, 7);
    let unknown = policy::SchedulerPolicy::from_value(json!({"predicates": [{"name": "Odd"}]})).unwrap();
    assert!(unknown.apply(&mut configuration).is_err());
}
