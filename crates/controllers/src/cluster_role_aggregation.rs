//! Cluster roles whose rules are those of others: a role with an aggregation rule gets the rules of all roles that its
//! selectors choose, anew whenever any cluster role changes.

use std::sync::Arc;

use client::{ApiErrorExt, Informer, Queue, Requeue};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt},
};
use serde_json::json;

use crate::Context;

const NAME: &str = "clusterrole-aggregation-controller";

struct Controller {
    client: Client,
    roles: Informer<ClusterRole>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let controller = Arc::new(Controller { roles: context.informers.of(), client: context.client });
    let queue: Queue<String> = Queue::new();
    let (wake, roles) = (queue.clone(), controller.roles.clone());
    controller.roles.on_change(move |_| {
        let aggregating = roles.list().into_iter().filter(|role| role.aggregation_rule.is_some());
        aggregating.for_each(|role| wake.add(role.name_any()));
    });
    controller.roles.synced().await;
    for role in controller.roles.list() {
        queue.add(role.name_any());
    }
    let sync = move |name: String| {
        let controller = controller.clone();
        async move { controller.sync(&name).await }
    };
    queue.run(5, context.shutdown, sync).await;
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Requeue, kube::Error> {
        let Some(role) = self.roles.get("", name) else { return Ok(Requeue::No) };
        let Some(rules) = aggregated(&role, self.roles.list()) else { return Ok(Requeue::No) };
        if role.rules.as_deref().unwrap_or_default() == rules {
            return Ok(Requeue::No);
        }
        let apply = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules});
        let api: Api<ClusterRole> = Api::all(self.client.clone());
        match api.patch(name, &PatchParams::apply(NAME).force(), &Patch::Apply(apply)).await {
            Ok(_) => Ok(Requeue::No),
            Err(error) if error.is_not_found() => Ok(Requeue::No),
            Err(error) => Err(error),
        }
    }
}

/// The rules that a role gathers, in the order of the names of whose they are, each once; `None`: it gathers none.
fn aggregated(role: &ClusterRole, mut others: Vec<Arc<ClusterRole>>) -> Option<Vec<PolicyRule>> {
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
    fn a_role_gathers_the_rules_of_those_that_it_chooses() {
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
        let rules = aggregated(&gathers, others.clone()).unwrap();
        let verbs: Vec<&str> = rules.iter().map(|rule| rule.verbs[0].as_str()).collect();
        assert_eq!(verbs, ["get", "watch", "list"]);
        assert_eq!(aggregated(&others[0], others.clone()), None);
    }
}
