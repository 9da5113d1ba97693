//! Tests of policy evaluation.

use apiserver_core::{User, attributes::ResourceAttributes};

use super::*;

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: [system:kube-proxy]
  verbs: [watch]
- level: None
  nonResourceURLs: [/healthz*, /version]
- level: Metadata
  resources:
  - {group: '', resources: [secrets, pods/log]}
  - {group: '', resources: ['*/status', 'nodes/*']}
- level: Request
  userGroups: [devs]
  namespaces: [a]
  omitManagedFields: false
- level: RequestResponse
  resources:
  - {group: apps}
  - {group: '', resources: [configmaps], resourceNames: [x]}
  omitStages: [ResponseStarted]
- level: Metadata
  verbs: [delete]
";

fn assert_level(policy: &Policy, user: &str, verb: &str, target: AttributesTarget<'_>, want: Level) {
    let (name, group) = user.split_once('/').unwrap_or((user, ""));
    let user = User { name: name.into(), groups: vec![group.into()], ..User::default() };
    assert_eq!(
        policy.evaluate_policy_rule(&Attributes { user: &user, verb, target }).level,
        want,
        "{name} {verb} {target:?}"
    );
}

#[test]
fn first_matching_rule_decides() {
    let policy = Policy::parse(POLICY).unwrap();
    let of = |resource, subresource, namespace, name| {
        AttributesTarget::Resource(ResourceAttributes {
            resource,
            subresource,
            namespace,
            name,
            ..ResourceAttributes::default()
        })
    };
    let apps = AttributesTarget::Resource(ResourceAttributes {
        group: "apps",
        resource: "deployments",
        ..ResourceAttributes::default()
    });
    for (user, verb, target, want) in [
        ("system:kube-proxy", "watch", of("secrets", "", "", ""), Level::None),
        ("system:kube-proxy", "list", of("secrets", "", "", ""), Level::Metadata),
        ("joe", "get", AttributesTarget::NonResource("/healthz"), Level::None),
        ("joe", "get", AttributesTarget::NonResource("/healthz/ping"), Level::None),
        ("joe", "get", AttributesTarget::NonResource("/version"), Level::None),
        ("joe", "delete", AttributesTarget::NonResource("/version/x"), Level::Metadata),
        ("joe", "get", of("secrets", "", "a", "s"), Level::Metadata),
        ("joe/devs", "get", of("secrets", "", "a", "s"), Level::Metadata),
        ("joe", "get", of("pods", "log", "a", "p"), Level::Metadata),
        ("joe", "get", of("pods", "", "a", "p"), Level::None),
        ("joe", "get", of("pods", "status", "a", "p"), Level::Metadata),
        ("joe", "get", of("nodes", "proxy", "", "n"), Level::Metadata),
        ("joe", "get", of("nodes", "", "", "n"), Level::Metadata),
        ("joe/devs", "get", of("pods", "", "a", "p"), Level::Request),
        ("joe/devs", "get", of("pods", "", "b", "p"), Level::None),
        ("joe", "get", apps, Level::RequestResponse),
        ("joe", "get", of("configmaps", "", "a", "x"), Level::RequestResponse),
        ("joe", "get", of("configmaps", "", "a", "y"), Level::None),
        ("joe", "delete", of("configmaps", "", "a", "y"), Level::Metadata),
    ] {
        assert_level(&policy, user, verb, target, want);
    }
}

#[test]
fn stages_and_managed_fields_are_omitted() {
    let policy = Policy::parse(POLICY).unwrap();
    let user = User { groups: vec!["devs".into()], ..User::default() };
    let apps = AttributesTarget::Resource(ResourceAttributes {
        group: "apps",
        resource: "deployments",
        ..ResourceAttributes::default()
    });
    let config = policy.evaluate_policy_rule(&Attributes { user: &user, verb: "get", target: apps });
    assert!(!config.records_stage(Stage::RequestReceived) && !config.records_stage(Stage::ResponseStarted));
    assert!(
        config.records_stage(Stage::ResponseComplete)
            && config.records_stage(Stage::Panic)
            && config.omit_managed_fields
    );
    let pods = AttributesTarget::Resource(ResourceAttributes {
        resource: "pods",
        namespace: "a",
        ..ResourceAttributes::default()
    });
    let config = policy.evaluate_policy_rule(&Attributes { user: &user, verb: "get", target: pods });
    assert!(
        !config.records_stage(Stage::RequestReceived)
            && config.records_stage(Stage::ResponseStarted)
            && !config.omit_managed_fields
    );
    let none = policy.evaluate_policy_rule(&Attributes {
        user: &user,
        verb: "get",
        target: AttributesTarget::NonResource("/version"),
    });
    assert!(!none.records_stage(Stage::ResponseComplete));
}

#[test]
fn invalid_policies_are_rejected() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    for (text, want) in [
        ("apiVersion: v1\nkind: Pod\n".to_owned(), "no kind \"Pod\" is registered for version \"v1\""),
        ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n".to_owned(), "no kind \"Policy\" is registered"),
        (head.to_owned(), "loaded illegal policy with 0 rules"),
        (format!("{head}rules: [{{level: Some}}]"), "unknown variant `Some`"),
        (format!("{head}rules: [{{}}]"), "missing field `level`"),
        (format!("{head}rules: [{{level: None, user: [x]}}]"), "unknown field `user`"),
        (format!("{head}rules: [{{level: None, omitStages: [Late]}}]"), "unknown variant `Late`"),
        (
            format!("{head}rules: [{{level: None, nonResourceURLs: [/x], namespaces: [a]}}]"),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and",
        ),
        (format!("{head}rules: [{{level: None, nonResourceURLs: [x]}}]"), "must begin with a '/' character"),
        (format!("{head}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]"), "must be the final character"),
        (
            format!("{head}rules: [{{level: None, resources: [{{group: a, resourceNames: [x]}}]}}]"),
            "using resourceNames requires at least one resource",
        ),
        (format!("{head}rules: [{{level: None, resources: [{{group: a/b}}]}}]"), "resources[0].group: Invalid value"),
        ("{".to_owned(), "it is not YAML"),
    ] {
        let error = Policy::parse(&text).unwrap_err().to_string();
        assert!(error.contains(want), "{text}\n{error}");
    }
}
