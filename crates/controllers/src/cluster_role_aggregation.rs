//! clusterrole-aggregation-controller: fills the rules of aggregated cluster roles from the roles their selectors
//! match.

use std::sync::Arc;

use client::{ApiErrorExt, RequeueAction, SharedInformer};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt},
};
use serde_json::json;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

const FIELD_MANAGER: &str = "clusterrole-aggregation-controller";

struct ClusterRoleAggregationController {
    client: Client,
    roles: SharedInformer<ClusterRole>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| ClusterRoleAggregationController {
        roles: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for ClusterRoleAggregationController {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    /// Any change may affect the rules of every aggregated role.
    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.roles, |this, _, queue| {
            let aggregated = this.roles.list().into_iter().filter(|role| role.aggregation_rule.is_some());
            aggregated.for_each(|role| queue.add(role.name_any()));
        });
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        self.sync_cluster_role(name).await
    }
}

impl ClusterRoleAggregationController {
    async fn sync_cluster_role(&self, name: &str) -> Result<RequeueAction, kube::Error> {
        let Some(role) = self.roles.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        let Some(rules) = aggregate_rules(&role, self.roles.list()) else { return Ok(RequeueAction::AwaitChange) };
        if role.rules.as_deref().unwrap_or_default() == rules {
            return Ok(RequeueAction::AwaitChange);
        }
        let apply = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules});
        let api: Api<ClusterRole> = Api::all(self.client.clone());
        match api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(apply)).await {
            Ok(_) => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
            Err(error) => Err(error),
        }
    }
}

/// Collects the rules of the matching roles, ordered by role name and without duplicates; `None` if `role` is not
/// aggregated.
fn aggregate_rules(role: &ClusterRole, mut others: Vec<Arc<ClusterRole>>) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_deref().unwrap_or_default();
    others.sort_by_key(|other| other.name_any());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for choose in selectors.iter().filter_map(|selector| Selector::try_from(selector.clone()).ok()) {
        let chosen = others.iter().filter(|other| other.name_any() != role.name_any());
        let chosen = chosen.filter(|other| choose.matches(other.labels()));
        for rule in chosen.flat_map(|other| other.rules.as_deref().unwrap_or_default()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, label: &str, verbs: &[&str]) -> Arc<ClusterRole> {
        let role = json!({"metadata": {"name": name, "labels": {label: "true"}},
            "rules": verbs.iter().map(|verb| json!({"verbs": [verb]})).collect::<Vec<_>>()});
        Arc::new(serde_json::from_value(role).unwrap())
    }

    #[test]
    fn aggregated_role_collects_the_rules_of_matching_roles() {
        let gathers: ClusterRole = serde_json::from_value(json!({"metadata": {"name": "all", "labels": {"a": "true"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"b": "true"}}, {"matchLabels": {"a": "true"}}]},
            "rules": [{"verbs": ["own"]}]}))
        .unwrap();
        let others = vec![
            role("z", "a", &["get", "list"]),
            role("y", "a", &["watch"]),
            role("x", "b", &["get"]),
            role("w", "c", &["delete"]),
            Arc::new(gathers.clone()),
        ];
        let rules = aggregate_rules(&gathers, others.clone()).unwrap();
        let verbs: Vec<&str> = rules.iter().map(|rule| rule.verbs[0].as_str()).collect();
        assert_eq!(verbs, ["get", "watch", "list"]);
        assert_eq!(aggregate_rules(&others[0], others.clone()), None);
    }
}
