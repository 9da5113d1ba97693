//! The authorizer library: checks built by chaining, as in
//! `authorizer.group('apps').resource('deployments').check('get')`.

use super::{FunctionBodies, named_format, native_arg, string_arg};
use crate::{
    error::EvalError,
    value::{AuthorizationDecision, AuthorizerValue, CheckTarget, NativeValue, ResourceAttributes, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("path", |args| {
        let path = string_arg(&args[1])?;
        if path.trim().is_empty() {
            return Err(EvalError::new("path must not be empty"));
        }
        Ok(NativeValue::PathCheck(authorizer_arg(&args[0])?.start_check(CheckTarget::Path(path.into()))).into_value())
    }),
    ("group", |args| {
        let resource = ResourceAttributes { group: string_arg(&args[1])?.into(), ..ResourceAttributes::default() };
        Ok(NativeValue::GroupCheck(authorizer_arg(&args[0])?.start_check(CheckTarget::Resource(resource))).into_value())
    }),
    ("serviceAccount", |args| {
        let (namespace, name) = (string_arg(&args[1])?, string_arg(&args[2])?);
        named_format::validate_service_account(namespace, name)?;
        Ok(NativeValue::Authorizer(authorizer_arg(&args[0])?.with_service_account(namespace, name)).into_value())
    }),
    ("resource", |args| {
        let name = string_arg(&args[1])?;
        if name.trim().is_empty() {
            return Err(EvalError::new("resource must not be empty"));
        }
        let NativeValue::GroupCheck(check) = native_arg(&args[0])? else {
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
        let verb = string_arg(&args[1])?;
        let (NativeValue::PathCheck(check) | NativeValue::ResourceCheck(check)) = native_arg(&args[0])? else {
            return Err(EvalError::no_such_overload());
        };
        Ok(NativeValue::Decision(check.authorize(verb)).into_value())
    }),
    ("allowed", |args| Ok(Value::Bool(decision_arg(&args[0])?.allowed))),
    ("reason", |args| Ok(Value::from_owned_string(decision_arg(&args[0])?.reason.as_str()))),
    ("errored", |args| Ok(Value::Bool(decision_arg(&args[0])?.error.is_some()))),
    ("error", |args| Ok(Value::from_owned_string(decision_arg(&args[0])?.error.as_deref().unwrap_or("")))),
];

fn authorizer_arg<'v>(value: &'v Value<'_>) -> Result<&'v AuthorizerValue, EvalError> {
    let NativeValue::Authorizer(authorizer) = native_arg(value)? else { return Err(EvalError::no_such_overload()) };
    Ok(authorizer)
}

fn decision_arg<'v>(value: &'v Value<'_>) -> Result<&'v AuthorizationDecision, EvalError> {
    let NativeValue::Decision(decision) = native_arg(value)? else { return Err(EvalError::no_such_overload()) };
    Ok(decision)
}

fn refine_check<'a>(args: &[Value<'a>], change: fn(&mut ResourceAttributes, String)) -> Result<Value<'a>, EvalError> {
    let text = string_arg(&args[1])?.to_owned();
    match native_arg(&args[0])? {
        NativeValue::ResourceCheck(check) => {
            Ok(NativeValue::ResourceCheck(check.with_resource(|resource| change(resource, text))).into_value())
        }
        _ => Err(EvalError::no_such_overload()),
    }
}
