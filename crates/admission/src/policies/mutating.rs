//! MutatingAdmissionPolicy: evaluates policies in order, each on the object that the previous ones produced. A change
//! causes a reinvocation of the policies with `reinvocationPolicy: IfNeeded`.

use std::sync::Arc;

use api::{Value, apply, decode, meta, patch, status::Status};
use async_trait::async_trait;
use authz::Authorizers;
use expressions::admission::{Change, Match, MutatingPolicy};
use serde_json::json;

use super::{
    is_exempt, params,
    source::{Binding, Hook, Policy, Source},
};
use crate::{
    AdmissionAttributes, Plugin,
    deferred_authorizer::DeferredAuthorizer,
    matching::Invocation,
    reinvocation::ReinvocationGroup,
    subject::Subject,
    versioned_attributes::{VersionedAttributes, namespace_object},
};

/// The MutatingAdmissionPolicy plug-in.
pub struct Mutating {
    pub(super) policies: Source<MutatingPolicy>,
    pub(super) authorizers: Arc<Authorizers>,
}

/// An evaluation of a matching policy with one parameter object.
struct Call<'h> {
    policy: &'h Policy<MutatingPolicy>,
    binding: &'h Binding,
    params: Value,
    invocation: Invocation,
}

/// The error of a policy that rejects the request.
struct Refused {
    message: String,
    /// Whether evaluation failed, as opposed to configuration.
    evaluated: bool,
}

/// The evaluation of all policies for one request.
struct Case<'a, 'b> {
    attributes: &'b AdmissionAttributes<'a>,
    authorizers: &'b Authorizers,
    asking: Arc<DeferredAuthorizer>,
    refused: Vec<Refused>,
}

#[async_trait]
impl Plugin for Mutating {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        !self.policies.is_empty() && !is_exempt(attributes)
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let hooks = self.policies.hooks();
        let mut case = Case { attributes, authorizers: &self.authorizers, asking: Arc::default(), refused: Vec::new() };
        let mut calls = Vec::new();
        for hook in hooks.iter() {
            case.collect(hook, object, &mut calls).await;
        }
        if !calls.is_empty() {
            attributes.rounds.begin(ReinvocationGroup::Policies, object);
            let namespace = namespace_object(attributes).await?;
            for call in &calls {
                case.call(call, object, &namespace).await?;
            }
            attributes.rounds.end(ReinvocationGroup::Policies, object);
        }
        case.refused.is_empty().then_some(()).ok_or_else(|| refusal(attributes, object, &case.refused))
    }
}

impl Case<'_, '_> {
    /// Collects the evaluations of a policy: one for each matching binding and parameter object.
    async fn collect<'h>(&mut self, hook: &'h Hook<MutatingPolicy>, object: &Value, calls: &mut Vec<Call<'h>>) {
        let policy = &*hook.policy;
        let invocation = match policy.constraints.about(self.attributes, object).await {
            Ok(Some(invocation)) => invocation,
            Ok(None) => return,
            Err(status) => return self.misconfigured(policy, None, &status.message),
        };
        let resource = match policy.params.as_ref().map(|kind| kind.resource(self.attributes)).transpose() {
            Ok(resource) => resource,
            Err(why) => return self.misconfigured(policy, None, &why),
        };
        for binding in &hook.bindings {
            match binding.is_about(self.attributes, object).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(status) => {
                    self.misconfigured(policy, Some(binding), &status.message);
                    continue;
                }
            }
            match params::collect(resource.as_deref(), binding.params.as_ref(), self.attributes).await {
                Ok(all) => calls.extend(all.into_iter().map(|params| Call {
                    policy,
                    binding,
                    params,
                    invocation: invocation.clone(),
                })),
                Err(why) => self.misconfigured(policy, Some(binding), &why),
            }
        }
    }

    async fn call(&mut self, call: &Call<'_>, object: &mut Value, namespace: &Value) -> Result<(), Status> {
        let (attributes, compiled) = (self.attributes, &call.policy.compiled);
        let shown = VersionedAttributes::new(attributes, call.invocation.clone(), object, namespace).await?;
        let input = shown.input(&call.params, &self.asking);
        let check = || compiled.matches(&input);
        match self.asking.evaluate(self.authorizers, attributes.user(), check).await {
            Match::Yes => {}
            Match::No => return Ok(()),
            Match::Failed(why) => {
                self.failed(call, &why);
                return Ok(());
            }
        }
        let id = call.id();
        if !attributes.rounds.includes(ReinvocationGroup::Policies, &id) {
            return Ok(());
        }
        let before = object.clone();
        for at in 0..compiled.mutations.len() {
            if object.is_null() {
                break;
            }
            if let Err(why) = self.mutate(call, at, object, namespace).await? {
                self.failed(call, &why);
            }
        }
        let changed = *object != before;
        attributes.rounds.called(ReinvocationGroup::Policies, &id, call.policy.again, changed);
        Ok(())
    }

    /// Applies one mutation. The inner error is subject to the failure policy; the outer one ends the request.
    async fn mutate(
        &self,
        call: &Call<'_>,
        at: usize,
        object: &mut Value,
        namespace: &Value,
    ) -> Result<Result<(), String>, Status> {
        let shown = VersionedAttributes::new(self.attributes, call.invocation.clone(), object, namespace).await?;
        let input = shown.input(&call.params, &self.asking);
        let compiled = &call.policy.compiled;
        let change = || compiled.change(&compiled.mutations[at], &input);
        let change = match self.asking.evaluate(self.authorizers, self.attributes.user(), change).await {
            Ok(change) => change,
            Err(why) => return Ok(Err(why)),
        };
        let subject = Subject { attributes: self.attributes, invocation: call.invocation.clone() };
        let changed = match changed(&subject, &shown.object, change)? {
            Ok(Some(changed)) => subject.completed(object, changed).await?,
            Ok(None) => return Ok(Ok(())),
            Err(why) => return Ok(Err(why)),
        };
        *object = changed;
        Ok(Ok(()))
    }

    fn misconfigured(&mut self, policy: &Policy<MutatingPolicy>, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.refuse(policy, binding, &format!("failed to configure {what}: {why}"), false);
    }

    fn failed(&mut self, call: &Call<'_>, why: &str) {
        self.refuse(call.policy, Some(call.binding), why, true);
    }

    fn refuse(&mut self, policy: &Policy<MutatingPolicy>, binding: Option<&Binding>, why: &str, evaluated: bool) {
        if policy.ignores_failure {
            return;
        }
        let name = &policy.name;
        let message = match binding {
            Some(binding) => format!("policy '{name}' with binding '{}' denied request: {why}", binding.name),
            None => format!("policy {name:?} denied request: {why}"),
        };
        self.refused.push(Refused { message, evaluated });
    }
}

impl Call<'_> {
    /// Identifies the evaluation among those of a request, for reinvocation.
    fn id(&self) -> String {
        let (namespace, name) = (meta::namespace(&self.params), meta::name(&self.params));
        format!("{}/{}/{namespace}/{name}", self.policy.name, self.binding.name)
    }
}

/// Applies a mutation to the object in the matched version; `None` if it changes nothing.
fn changed(subject: &Subject<'_, '_>, shown: &Value, change: Change) -> Result<Result<Option<Value>, String>, Status> {
    match change {
        Change::Apply(mut config) => {
            for field in ["apiVersion", "kind"] {
                config[field] = shown[field].clone();
            }
            let merged = apply::apply_unowned(&kind(subject)?, shown, &config);
            Ok(merged.map(Some).map_err(|error| format!("error applying patch: {error}")))
        }
        Change::Patch(operations) => match patch::PatchType::Json.apply_patch(subject.ty()?, shown, &operations) {
            Ok(changed) => strict(subject, changed).map(|changed| Ok(Some(changed))),
            // A failed JSON Patch `test` operation means that the policy skips the mutation.
            Err(patch::PatchError::Inapplicable { test: true, .. }) => Ok(Ok(None)),
            Err(patch::PatchError::Inapplicable { why, .. }) => Ok(Err(format!("JSON Patch: {why}"))),
            Err(error) => Ok(Err(format!("JSON Patch: {error}"))),
        },
    }
}

/// The schema that server-side apply merges the matched object with.
fn kind<'s>(subject: &'s Subject<'_, '_>) -> Result<apply::ApplyTarget<'s>, Status> {
    if subject.is_own_kind() {
        return Ok(apply::ApplyTarget::for_resource(&subject.invocation.resource, subject.attributes.subresource()));
    }
    let (group, version, kind) = subject.attributes.kind();
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(apply::ApplyTarget::for_kind(&version, kind, subject.ty()?, subject.attributes.subresource()))
}

/// Decodes a patched object of a built-in type strictly: unknown fields are errors.
fn strict(subject: &Subject<'_, '_>, changed: Value) -> Result<Value, Status> {
    if subject.is_own_kind() && subject.invocation.resource.custom_schema.is_some() {
        return Ok(changed);
    }
    let decoded = decode::canonicalize(subject.ty()?, changed).map_err(Status::internal_error)?;
    match decoded.unknown.first() {
        Some(first) => Err(Status::internal_error(format!("strict decoding error: unknown field {first:?}"))),
        None => Ok(decoded.object),
    }
}

/// Formats all rejections as one status; the first is the message.
fn refusal(attributes: &AdmissionAttributes<'_>, object: &Value, refused: &[Refused]) -> Status {
    let mut status = attributes.forbidden(object, "");
    let causes: Vec<Value> = refused.iter().map(|refused| json!({"message": refused.message})).collect();
    if let Some(first) = refused.first() {
        status.message.clone_from(&first.message);
        status.reason = if first.evaluated { "Invalid" } else { status.reason };
    }
    if let Some(details) = &mut status.details {
        details["causes"] = Value::Array(causes);
    }
    status
}
