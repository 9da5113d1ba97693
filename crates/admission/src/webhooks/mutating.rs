//! MutatingAdmissionWebhook: calls webhooks in order and applies their patches.

use api::{Value, patch, status::Status};
use async_trait::async_trait;
use serde::Serialize;

use super::{Configured, call::decide, hook::Hook};
use crate::{AdmissionAttributes, Plugin, matching::Invocation, reinvocation::ReinvocationGroup, subject::Subject};

const AUDIT: &str = "mutation.webhook.admission.k8s.io";
const PATCH_AUDIT: &str = "patch.webhook.admission.k8s.io";
const FAILED_AUDIT: &str = "failed-open.mutation.webhook.admission.k8s.io";

/// The mutation audit annotation of a call; fields in upstream's order.
#[derive(Serialize)]
struct CallNote<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// The patch audit annotation of a call; fields in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchNote<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a Value,
    patch_type: &'static str,
}

/// The MutatingAdmissionWebhook plug-in.
pub struct Mutating(pub(super) Configured);

#[async_trait]
impl Plugin for Mutating {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.0.concerns(attributes)
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        attributes.rounds.begin(ReinvocationGroup::Webhooks, object);
        for (at, hook) in self.0.hooks().iter().enumerate() {
            if !attributes.rounds.includes(ReinvocationGroup::Webhooks, &hook.id) {
                continue;
            }
            let Some(invocation) = hook.asked(attributes, object, &self.0.authorizers).await? else { continue };
            let changed = self.call(hook, invocation, attributes, object, at).await?;
            attributes.rounds.called(ReinvocationGroup::Webhooks, &hook.id, hook.again, changed);
        }
        attributes.rounds.end(ReinvocationGroup::Webhooks, object);
        Ok(())
    }
}

impl Mutating {
    /// Calls one webhook and applies its patch; returns whether the object changed.
    async fn call(
        &self,
        hook: &Hook,
        invocation: Invocation,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        at: usize,
    ) -> Result<bool, Status> {
        let place = format!("round_{}_index_{at}", attributes.rounds.round());
        let verdict = match self.0.call(hook, invocation.clone(), attributes, object, true).await {
            Ok(verdict) => verdict,
            Err(failure) => {
                note(attributes, hook, &place, false);
                decide(hook, failure)?;
                attributes.notes().annotate_audit(format!("{FAILED_AUDIT}/{place}"), hook.name.as_str());
                return Ok(false);
            }
        };
        let Some(operations) = verdict.patch.filter(|patch| patch.as_array().is_none_or(|list| !list.is_empty()))
        else {
            note(attributes, hook, &place, false);
            return Ok(false);
        };
        let (configuration, webhook) = (&*hook.configuration, &*hook.name);
        let patch = PatchNote { configuration, webhook, patch: &operations, patch_type: "JSONPatch" };
        attributes
            .notes()
            .annotate_audit(format!("{PATCH_AUDIT}/{place}"), serde_json::to_string(&patch).unwrap_or_default());
        if object.is_null() {
            let why = "attempted to modify the object, which is not supported for this operation";
            return Err(Status::internal_error(format!("admission webhook {:?} {why}", hook.name)));
        }
        let patched = patched(&Subject { attributes, invocation }, object, &operations).await?;
        let changed = patched != *object;
        *object = patched;
        note(attributes, hook, &place, changed);
        Ok(changed)
    }
}

fn note(attributes: &AdmissionAttributes<'_>, hook: &Hook, place: &str, mutated: bool) {
    let note = CallNote { configuration: &hook.configuration, webhook: &hook.name, mutated };
    attributes.notes().annotate_audit(format!("{AUDIT}/{place}"), serde_json::to_string(&note).unwrap_or_default());
}

/// Applies a JSON patch to the object in the webhook's version, then restores the request's version and defaults.
async fn patched(subject: &Subject<'_, '_>, object: &Value, operations: &Value) -> Result<Value, Status> {
    let shown = subject.shown(object).await?;
    let changed = patch::PatchType::Json.apply_patch(subject.ty()?, &shown, operations).map_err(unpatched)?;
    subject.completed(object, changed).await
}

/// Formats the error of a patch that cannot be applied.
fn unpatched(error: patch::PatchError) -> Status {
    Status::internal_error(match error {
        patch::PatchError::Malformed(why)
        | patch::PatchError::Unprocessable(why)
        | patch::PatchError::Failed(why)
        | patch::PatchError::Inapplicable { why, .. } => why,
    })
}
