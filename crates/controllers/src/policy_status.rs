//! What may be wrong with the expressions of admission policies: each generation of a `ValidatingAdmissionPolicy` is checked
//! with the types of what it is about, and its status tells.

use std::sync::Arc;

use client::{ApiErrorExt, Informer, Queue, Requeue};
use expressions::type_check;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::Context;

const NAME: &str = "validatingadmissionpolicy-status";

struct Controller {
    client: Client,
    policies: Informer<ValidatingAdmissionPolicy>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let controller = Arc::new(Controller { policies: context.informers.of(), client: context.client });
    let queue: Queue<String> = Queue::new();
    let wake = queue.clone();
    controller.policies.on_change(move |change| wake.add(change.object().name_any()));
    let sync = move |name: String| {
        let controller = controller.clone();
        async move { controller.sync(&name).await }
    };
    queue.run(5, context.shutdown, sync).await;
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Requeue, kube::Error> {
        let Some(policy) = self.policies.get("", name) else { return Ok(Requeue::No) };
        let Some(apply) = checked(&policy) else { return Ok(Requeue::No) };
        let api: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        match api.patch_status(name, &PatchParams::apply(NAME).force(), &Patch::Apply(apply)).await {
            Ok(_) => Ok(Requeue::No),
            Err(error) if error.is_not_found() => Ok(Requeue::No),
            Err(error) => Err(error),
        }
    }
}

/// What is to be applied to the status of a policy; `None`: this generation was checked already.
fn checked(policy: &ValidatingAdmissionPolicy) -> Option<Value> {
    let generation = policy.metadata.generation.unwrap_or_default();
    let observed = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    if generation <= observed {
        return None;
    }
    let object = serde_json::to_value(policy).ok()?;
    let warnings: Vec<Value> = type_check::check(&object)
        .into_iter()
        .map(|warning| json!({"fieldRef": warning.field, "warning": warning.text}))
        .collect();
    let checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    Some(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": policy.name_any()},
        "status": {"observedGeneration": generation, "typeChecking": checking}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, observed: i64, want: Option<Value>) {
        let rule =
            json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]});
        let policy = json!({"metadata": {"name": "p", "generation": 2}, "status": {"observedGeneration": observed},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}});
        let policy: ValidatingAdmissionPolicy = serde_json::from_value(policy).unwrap();
        let status = checked(&policy).map(|apply| apply["status"].clone());
        assert_eq!(status, want, "{expression}");
    }

    #[test]
    fn a_generation_is_checked_once() {
        check("object.spec.replicas > 1", 1, Some(json!({"observedGeneration": 2, "typeChecking": {}})));
        check("object.spec.replicas > 1", 2, None);
        let text = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'\n | object.spec.nope > 1\n | ...........^\n";
        let warning = json!({"fieldRef": "spec.validations[0].expression", "warning": text});
        let status = json!({"observedGeneration": 2, "typeChecking": {"expressionWarnings": [warning]}});
        check("object.spec.nope > 1", 1, Some(status));
    }
}
