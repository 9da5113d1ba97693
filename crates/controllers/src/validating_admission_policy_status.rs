//! validatingadmissionpolicy-status-controller: type-checks the expressions of each policy generation and reports
//! warnings in its status.

use client::{ApiErrorExt, RequeueAction, SharedInformer};
use expressions::type_check;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";

struct PolicyStatusController {
    client: Client,
    policies: SharedInformer<ValidatingAdmissionPolicy>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build =
        |_| PolicyStatusController { policies: context.informers.informer_for(), client: context.client.clone() };
    run_controller(&context, build).await;
}

impl Controller for PolicyStatusController {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.policies, |_, event, queue| queue.add(event.object().name_any()));
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        self.sync_policy(name).await
    }
}

impl PolicyStatusController {
    async fn sync_policy(&self, name: &str) -> Result<RequeueAction, kube::Error> {
        let Some(policy) = self.policies.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        let Some(apply) = type_checking_patch(&policy) else { return Ok(RequeueAction::AwaitChange) };
        let api: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        match api.patch_status(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(apply)).await {
            Ok(_) => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
            Err(error) => Err(error),
        }
    }
}

/// Builds the status patch; `None` if this generation has been checked.
fn type_checking_patch(policy: &ValidatingAdmissionPolicy) -> Option<Value> {
    let generation = policy.metadata.generation.unwrap_or_default();
    let observed = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    if generation <= observed {
        return None;
    }
    let object = serde_json::to_value(policy).ok()?;
    let warnings: Vec<Value> = type_check::check_policy_types(&object)
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
        let status = type_checking_patch(&policy).map(|apply| apply["status"].clone());
        assert_eq!(status, want, "{expression}");
    }

    #[test]
    fn each_generation_is_type_checked_once() {
        check("object.spec.replicas > 1", 1, Some(json!({"observedGeneration": 2, "typeChecking": {}})));
        check("object.spec.replicas > 1", 2, None);
        let text = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'\n | object.spec.nope > 1\n | ...........^\n";
        let warning = json!({"fieldRef": "spec.validations[0].expression", "warning": text});
        let status = json!({"observedGeneration": 2, "typeChecking": {"expressionWarnings": [warning]}});
        check("object.spec.nope > 1", 1, Some(status));
    }
}
