//! The authorizer library: checks built by chaining, as in
//! `authorizer.group('apps').resource('deployments').check('get')`.

use super::{FunctionBodies, named_format, string_argument};
use crate::{
    error::EvalError,
    value::{AuthorizationDecision, AuthorizerValue, CheckTarget, NativeValue, ResourceAttributes, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("path", |args| {
        let path = string_argument(&args[1])?;
        if path.trim().is_empty() {
            return Err(EvalError::new("path must not be empty"));
        }
        Ok(NativeValue::PathCheck(authorizer_argument(&args[0])?.start_check(CheckTarget::Path(path.into())))
            .into_value())
    }),
    ("group", |args| {
        let resource = ResourceAttributes { group: string_argument(&args[1])?.into(), ..ResourceAttributes::default() };
        Ok(NativeValue::GroupCheck(authorizer_argument(&args[0])?.start_check(CheckTarget::Resource(resource)))
            .into_value())
    }),
    ("serviceAccount", |args| {
        let (namespace, name) = (string_argument(&args[1])?, string_argument(&args[2])?);
        named_format::validate_service_account(namespace, name)?;
        Ok(NativeValue::Authorizer(authorizer_argument(&args[0])?.with_service_account(namespace, name)).into_value())
    }),
    ("resource", |args| {
        let name = string_argument(&args[1])?;
        if name.trim().is_empty() {
            return Err(EvalError::new("resource must not be empty"));
        }
        let NativeValue::GroupCheck(check) = native_argument(&args[0])? else {
            return Err(EvalError::no_such_overload());
        };
        Ok(NativeValue::ResourceCheck(check.with_resource(|resource| resource.resource = name.into())).into_value())
    }),
    ("subresource", |args| refine_check(args, |resource, text| resource.subresource = text)),
    ("namespace", |args| refine_check(args, |resource, text| resource.namespace = text)),
    ("name", |args| refine_check(args, |resource, text| resource.name = text)),
    ("fieldSelector", |args| refine_check(args, |resource, text| resource.field_selector = text)),
    ("labelSelector", |args| refine_check(args, |resource, text| resource.label_selector = text)),
    ("check", |args| {
        let verb = string_argument(&args[1])?;
        let (NativeValue::PathCheck(check) | NativeValue::ResourceCheck(check)) = native_argument(&args[0])? else {
            return Err(EvalError::no_such_overload());
        };
        Ok(NativeValue::Decision(check.authorize(verb)).into_value())
    }),
    ("allowed", |args| Ok(Value::Bool(decision_argument(&args[0])?.allowed))),
    ("reason", |args| Ok(Value::from_owned_string(decision_argument(&args[0])?.reason.as_str()))),
    ("errored", |args| Ok(Value::Bool(decision_argument(&args[0])?.error.is_some()))),
    ("error", |args| Ok(Value::from_owned_string(decision_argument(&args[0])?.error.as_deref().unwrap_or("")))),
];

fn native_argument<'v>(value: &'v Value<'_>) -> Result<&'v NativeValue, EvalError> {
    match value {
        Value::Native(native) => Ok(native),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn authorizer_argument<'v>(value: &'v Value<'_>) -> Result<&'v AuthorizerValue, EvalError> {
    match native_argument(value)? {
        NativeValue::Authorizer(authorizer) => Ok(authorizer),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn decision_argument<'v>(value: &'v Value<'_>) -> Result<&'v AuthorizationDecision, EvalError> {
    match native_argument(value)? {
        NativeValue::Decision(decision) => Ok(decision),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn refine_check<'a>(args: &[Value<'a>], change: fn(&mut ResourceAttributes, String)) -> Result<Value<'a>, EvalError> {
    let text = string_argument(&args[1])?.to_owned();
    match native_argument(&args[0])? {
        NativeValue::ResourceCheck(check) => {
            Ok(NativeValue::ResourceCheck(check.with_resource(|resource| change(resource, text))).into_value())
        }
        _ => Err(EvalError::no_such_overload()),
    }
}
