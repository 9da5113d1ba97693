//! MutatingAdmissionWebhook: calls webhooks in order and applies their patches.

use api::{Value, patch, status::Status};
use async_trait::async_trait;
use serde::Serialize;

use super::{WebhookSource, accessor::WebhookAccessor, dispatcher::apply_failure_policy};
use crate::{
    AdmissionAttributes, Plugin, matching::Invocation, reinvocation::ReinvocationGroup,
    versioned_request::VersionedRequest,
};

const MUTATION_AUDIT: &str = "mutation.webhook.admission.k8s.io";
const PATCH_AUDIT: &str = "patch.webhook.admission.k8s.io";
const FAILED_AUDIT: &str = "failed-open.mutation.webhook.admission.k8s.io";

/// The mutation audit annotation of a call; fields in upstream's order.
#[derive(Serialize)]
struct MutationAuditAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// The patch audit annotation of a call; fields in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchAuditAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a Value,
    patch_type: &'static str,
}

/// The MutatingAdmissionWebhook plug-in.
pub struct MutatingWebhook(pub(super) WebhookSource);

#[async_trait]
impl Plugin for MutatingWebhook {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.0.handles(attributes)
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        attributes.reinvocation.begin_group(ReinvocationGroup::Webhooks, object);
        for (at, webhook) in self.0.webhooks().iter().enumerate() {
            if !attributes.reinvocation.should_invoke(ReinvocationGroup::Webhooks, &webhook.id) {
                continue;
            }
            let Some(invocation) = webhook.match_request(attributes, object, &self.0.authorizers).await? else {
                continue;
            };
            let changed = self.call_and_patch(webhook, invocation, attributes, object, at).await?;
            attributes.reinvocation.record_call(
                ReinvocationGroup::Webhooks,
                &webhook.id,
                webhook.reinvoke_if_needed,
                changed,
            );
        }
        attributes.reinvocation.end_group(ReinvocationGroup::Webhooks, object);
        Ok(())
    }
}

impl MutatingWebhook {
    /// Calls one webhook and applies its patch; returns whether the object changed.
    async fn call_and_patch(
        &self,
        webhook: &WebhookAccessor,
        invocation: Invocation,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        at: usize,
    ) -> Result<bool, Status> {
        let key_suffix = format!("round_{}_index_{at}", attributes.reinvocation.round());
        let response = match self.0.call_webhook(webhook, invocation.clone(), attributes, object, true).await {
            Ok(response) => response,
            Err(error) => {
                annotate_mutation(attributes, webhook, &key_suffix, false);
                apply_failure_policy(webhook, error)?;
                attributes.warnings().annotate_audit(format!("{FAILED_AUDIT}/{key_suffix}"), webhook.name.as_str());
                return Ok(false);
            }
        };
        let Some(operations) = response.patch.filter(|patch| patch.as_array().is_none_or(|list| !list.is_empty()))
        else {
            annotate_mutation(attributes, webhook, &key_suffix, false);
            return Ok(false);
        };
        let (configuration, name) = (&*webhook.configuration, &*webhook.name);
        let patch = PatchAuditAnnotation { configuration, webhook: name, patch: &operations, patch_type: "JSONPatch" };
        attributes
            .warnings()
            .annotate_audit(format!("{PATCH_AUDIT}/{key_suffix}"), serde_json::to_string(&patch).unwrap_or_default());
        if object.is_null() {
            let why = "attempted to modify the object, which is not supported for this operation";
            return Err(Status::internal_error(format!("admission webhook {:?} {why}", webhook.name)));
        }
        let patched = apply_webhook_patch(&VersionedRequest { attributes, invocation }, object, &operations).await?;
        let changed = patched != *object;
        *object = patched;
        annotate_mutation(attributes, webhook, &key_suffix, changed);
        Ok(changed)
    }
}

fn annotate_mutation(attributes: &AdmissionAttributes<'_>, webhook: &WebhookAccessor, key_suffix: &str, mutated: bool) {
    let annotation = MutationAuditAnnotation { configuration: &webhook.configuration, webhook: &webhook.name, mutated };
    attributes.warnings().annotate_audit(
        format!("{MUTATION_AUDIT}/{key_suffix}"),
        serde_json::to_string(&annotation).unwrap_or_default(),
    );
}

/// Applies a JSON patch to the object in the webhook's version, then restores the request's version and defaults.
async fn apply_webhook_patch(
    versioned_request: &VersionedRequest<'_, '_>,
    object: &Value,
    operations: &Value,
) -> Result<Value, Status> {
    let versioned = versioned_request.convert_object(object).await?;
    let changed = patch::PatchType::Json
        .apply_patch(versioned_request.object_type()?, &versioned, operations)
        .map_err(new_patch_error)?;
    versioned_request.restore_request_version(object, changed).await
}

/// Formats the error of a patch that cannot be applied.
fn new_patch_error(error: patch::PatchError) -> Status {
    Status::internal_error(match error {
        patch::PatchError::Malformed(why)
        | patch::PatchError::Unprocessable(why)
        | patch::PatchError::Failed(why)
        | patch::PatchError::Inapplicable { why, .. } => why,
    })
}
