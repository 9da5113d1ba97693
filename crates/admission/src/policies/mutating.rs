//! MutatingAdmissionPolicy: evaluates policies in order, each on the object that the previous ones produced. A change
//! causes a reinvocation of the policies with `reinvocationPolicy: IfNeeded`.

use std::{fmt::Display, sync::Arc};

use api::{Value, apply, decode, meta, patch, status::Status};
use async_trait::async_trait;
use authz::Authorizers;
use expressions::admission::{MatchResult, MutatingPolicy, MutationResult};
use serde_json::json;

use super::{
    is_exempt,
    policy_source::{CompiledPolicy, PolicyBinding, PolicyHook, PolicySource},
};
use crate::{
    AdmissionAttributes, DenialReason, Plugin,
    deferred_authorizer::DeferredAuthorizer,
    matching::Invocation,
    reinvocation::ReinvocationGroup,
    versioned_attributes::{VersionedAttributes, namespace_object},
    versioned_request::VersionedRequest,
};

/// The MutatingAdmissionPolicy plug-in.
pub struct MutatingAdmissionPolicy {
    pub(super) policies: PolicySource<MutatingPolicy>,
    pub(super) authorizers: Arc<Authorizers>,
}

/// An evaluation of a matching policy with one parameter object.
struct MutationInvocation<'h> {
    policy: &'h CompiledPolicy<MutatingPolicy>,
    binding: &'h PolicyBinding,
    params: Value,
    invocation: Invocation,
}

/// The error of a policy that rejects the request.
struct PolicyError {
    message: String,
    /// Whether evaluation failed, as opposed to configuration.
    evaluated: bool,
}

/// The evaluation of all policies for one request.
struct MutatingDispatcher<'a, 'b> {
    attributes: &'b AdmissionAttributes<'a>,
    authorizers: &'b Authorizers,
    authorizer: Arc<DeferredAuthorizer>,
    errors: Vec<PolicyError>,
}

#[async_trait]
impl Plugin for MutatingAdmissionPolicy {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        !self.policies.is_empty() && !is_exempt(attributes)
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let hooks = self.policies.hooks();
        let (authorizers, authorizer) = (&*self.authorizers, Arc::default());
        let mut dispatcher = MutatingDispatcher { attributes, authorizers, authorizer, errors: Vec::new() };
        let mut invocations = Vec::new();
        for hook in hooks.iter() {
            dispatcher.collect_invocations(hook, object, &mut invocations).await;
        }
        if !invocations.is_empty() {
            attributes.reinvocation.begin_group(ReinvocationGroup::Policies, object);
            let namespace = namespace_object(attributes).await?;
            for call in &invocations {
                dispatcher.invoke_policy(call, object, &namespace).await?;
            }
            attributes.reinvocation.end_group(ReinvocationGroup::Policies, object);
        }
        match dispatcher.errors.as_slice() {
            [] => Ok(()),
            errors => Err(new_denied_status(attributes, object, errors)),
        }
    }
}

impl MutatingDispatcher<'_, '_> {
    /// Collects the evaluations of a policy: one for each matching binding and parameter object.
    async fn collect_invocations<'h>(
        &mut self,
        hook: &'h PolicyHook<MutatingPolicy>,
        object: &Value,
        invocations: &mut Vec<MutationInvocation<'h>>,
    ) {
        let policy = &*hook.policy;
        let (invocation, bindings) = match hook.match_request(self.attributes, object).await {
            Ok(Some(matched)) => matched,
            Ok(None) => return,
            Err(why) => return self.record_configuration_error(policy, None, why),
        };
        for (binding, params) in bindings {
            match params {
                Ok(all) => invocations.extend(all.into_iter().map(|params| MutationInvocation {
                    policy,
                    binding,
                    params,
                    invocation: invocation.clone(),
                })),
                Err(why) => self.record_configuration_error(policy, Some(binding), why),
            }
        }
    }

    async fn invoke_policy(
        &mut self,
        call: &MutationInvocation<'_>,
        object: &mut Value,
        namespace: &Value,
    ) -> Result<(), Status> {
        let (attributes, compiled) = (self.attributes, &call.policy.compiled);
        let versioned = VersionedAttributes::new(attributes, call.invocation.clone(), object, namespace).await?;
        let input = versioned.evaluation_input(&call.params, &self.authorizer);
        let check = || compiled.match_request(&input);
        match self.authorizer.evaluate(self.authorizers, attributes.user(), check).await {
            MatchResult::Yes => {}
            MatchResult::No => return Ok(()),
            MatchResult::Failed(why) => {
                self.record_evaluation_error(call, &why);
                return Ok(());
            }
        }
        let id = call.id();
        if !attributes.reinvocation.should_invoke(ReinvocationGroup::Policies, &id) {
            return Ok(());
        }
        let before = object.clone();
        for at in 0..compiled.mutations.len() {
            if object.is_null() {
                break;
            }
            if let Err(why) = self.apply_mutation(call, at, object, namespace).await? {
                self.record_evaluation_error(call, &why);
            }
        }
        let changed = *object != before;
        attributes.reinvocation.record_call(ReinvocationGroup::Policies, &id, call.policy.reinvoke_if_needed, changed);
        Ok(())
    }

    /// Applies one mutation. The inner error is subject to the failure policy; the outer one ends the request.
    async fn apply_mutation(
        &self,
        call: &MutationInvocation<'_>,
        at: usize,
        object: &mut Value,
        namespace: &Value,
    ) -> Result<Result<(), DenialReason>, Status> {
        let versioned = VersionedAttributes::new(self.attributes, call.invocation.clone(), object, namespace).await?;
        let input = versioned.evaluation_input(&call.params, &self.authorizer);
        let compiled = &call.policy.compiled;
        let change = || compiled.evaluate_mutation(&compiled.mutations[at], &input);
        let change = match self.authorizer.evaluate(self.authorizers, self.attributes.user(), change).await {
            Ok(change) => change,
            Err(why) => return Ok(Err(why.to_string().into())),
        };
        let request = VersionedRequest { attributes: self.attributes, invocation: call.invocation.clone() };
        let changed = match apply_change(&request, &versioned.object, change)? {
            Ok(Some(changed)) => request.restore_request_version(object, changed).await?,
            Ok(None) => return Ok(Ok(())),
            Err(why) => return Ok(Err(why)),
        };
        *object = changed;
        Ok(Ok(()))
    }

    fn record_configuration_error(
        &mut self,
        policy: &CompiledPolicy<MutatingPolicy>,
        binding: Option<&PolicyBinding>,
        why: impl Display,
    ) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.record_error(policy, binding, format!("failed to configure {what}: {why}"), false);
    }

    fn record_evaluation_error(&mut self, call: &MutationInvocation<'_>, why: impl Display) {
        self.record_error(call.policy, Some(call.binding), why, true);
    }

    fn record_error(
        &mut self,
        policy: &CompiledPolicy<MutatingPolicy>,
        binding: Option<&PolicyBinding>,
        why: impl Display,
        evaluated: bool,
    ) {
        if policy.ignores_failure {
            return;
        }
        let name = &policy.name;
        let message = match binding {
            Some(binding) => format!("policy '{name}' with binding '{}' denied request: {why}", binding.name),
            None => format!("policy {name:?} denied request: {why}"),
        };
        self.errors.push(PolicyError { message, evaluated });
    }
}

impl MutationInvocation<'_> {
    /// Identifies the evaluation among those of a request, for reinvocation.
    fn id(&self) -> String {
        let (namespace, name) = (meta::namespace(&self.params), meta::name(&self.params));
        format!("{}/{}/{namespace}/{name}", self.policy.name, self.binding.name)
    }
}

/// Applies a mutation to the object in the matched version; `None` if it changes nothing.
fn apply_change(
    request: &VersionedRequest<'_, '_>,
    versioned: &Value,
    change: MutationResult,
) -> Result<Result<Option<Value>, DenialReason>, Status> {
    match change {
        MutationResult::Apply(mut config) => {
            for field in ["apiVersion", "kind"] {
                config[field] = versioned[field].clone();
            }
            let merged = apply::apply_unowned(&apply_target(request)?, versioned, &config);
            Ok(merged.map(Some).map_err(|error| format!("error applying patch: {error}").into()))
        }
        MutationResult::Patch(operations) => {
            match patch::PatchType::Json.apply_patch(request.object_type()?, versioned, &operations) {
                Ok(changed) => decode_strictly(request, changed).map(|changed| Ok(Some(changed))),
                // A failed JSON Patch `test` operation means that the policy skips the mutation.
                Err(patch::PatchError::Inapplicable { test: true, .. }) => Ok(Ok(None)),
                Err(patch::PatchError::Inapplicable { why, .. }) => Ok(Err(format!("JSON Patch: {why}").into())),
                Err(error) => Ok(Err(format!("JSON Patch: {error}").into())),
            }
        }
    }
}

/// The schema that server-side apply merges the matched object with.
fn apply_target<'s>(request: &'s VersionedRequest<'_, '_>) -> Result<apply::ApplyTarget<'s>, Status> {
    if request.is_own_kind() {
        return Ok(apply::ApplyTarget::for_resource(&request.invocation.resource, request.attributes.subresource()));
    }
    let (group, version, kind) = request.attributes.group_version_kind();
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(apply::ApplyTarget::for_kind(&version, kind, request.object_type()?, request.attributes.subresource()))
}

/// Decodes a patched object of a built-in type strictly: unknown fields are errors.
fn decode_strictly(request: &VersionedRequest<'_, '_>, changed: Value) -> Result<Value, Status> {
    if request.is_own_kind() && request.invocation.resource.custom_schema.is_some() {
        return Ok(changed);
    }
    let decoded = decode::canonicalize(request.object_type()?, changed).map_err(Status::internal_error)?;
    match decoded.unknown.first() {
        Some(first) => Err(Status::internal_error(format!("strict decoding error: unknown field {first:?}"))),
        None => Ok(decoded.object),
    }
}

/// Formats all rejections as one status; the first is the message.
fn new_denied_status(attributes: &AdmissionAttributes<'_>, object: &Value, errors: &[PolicyError]) -> Status {
    let mut status = attributes.new_forbidden(object, "");
    let causes: Vec<Value> = errors.iter().map(|errors| json!({"message": errors.message})).collect();
    if let Some(first) = errors.first() {
        status.message.clone_from(&first.message);
        status.reason = if first.evaluated { "Invalid" } else { status.reason };
    }
    if let Some(details) = &mut status.details {
        details["causes"] = Value::Array(causes);
    }
    status
}
