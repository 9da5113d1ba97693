//! The authorizer library: checks built by chaining, as in
//! `authorizer.group('apps').resource('deployments').check('get')`.

use std::{fmt, sync::Arc};

use super::{Bodies, named_format, native::Native, text};
use crate::{error::Error, value::Value};

pub(super) const BODIES: Bodies = &[
    ("path", |args| {
        let path = text(&args[1])?;
        if path.trim().is_empty() {
            return Err(Error::failed("path must not be empty"));
        }
        Ok(Native::PathCheck(user(&args[0])?.ask(Target::Path(path.into()))).value())
    }),
    ("group", |args| {
        let resource = Resource { group: text(&args[1])?.into(), ..Resource::default() };
        Ok(Native::GroupCheck(user(&args[0])?.ask(Target::Resource(resource))).value())
    }),
    ("serviceAccount", |args| {
        let (namespace, name) = (text(&args[1])?, text(&args[2])?);
        named_format::account_names(namespace, name)?;
        let account = Some((namespace.into(), name.into()));
        Ok(Native::Authorizer(User { service_account: account, ..user(&args[0])?.clone() }).value())
    }),
    ("resource", |args| {
        let name = text(&args[1])?;
        if name.trim().is_empty() {
            return Err(Error::failed("resource must not be empty"));
        }
        let Native::GroupCheck(asked) = native(&args[0])? else { return Err(Error::no_such_overload()) };
        Ok(Native::ResourceCheck(asked.with(|resource| resource.resource = name.into())).value())
    }),
    ("subresource", |args| refined(args, |resource, text| resource.subresource = text)),
    ("namespace", |args| refined(args, |resource, text| resource.namespace = text)),
    ("name", |args| refined(args, |resource, text| resource.name = text)),
    ("fieldSelector", |args| refined(args, |resource, text| resource.field_selector = text)),
    ("labelSelector", |args| refined(args, |resource, text| resource.label_selector = text)),
    ("check", |args| {
        let verb = text(&args[1])?;
        let (Native::PathCheck(asked) | Native::ResourceCheck(asked)) = native(&args[0])? else {
            return Err(Error::no_such_overload());
        };
        let account = asked.user.service_account.as_ref();
        let account = account.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let decision = asked.user.authorizer.check(&Check { service_account: account, target: &asked.target, verb });
        Ok(Native::Decision(decision).value())
    }),
    ("allowed", |args| Ok(Value::Bool(decision(&args[0])?.allowed))),
    ("reason", |args| Ok(Value::owned_text(decision(&args[0])?.reason.as_str()))),
    ("errored", |args| Ok(Value::Bool(decision(&args[0])?.error.is_some()))),
    ("error", |args| Ok(Value::owned_text(decision(&args[0])?.error.as_deref().unwrap_or("")))),
];

/// Decides the authorization checks of an expression, on behalf of the user who sent the admission request.
pub trait Authorizer: Send + Sync {
    /// Returns the decision for a check.
    fn check(&self, check: &Check<'_>) -> Decision;
}

/// An authorization check.
#[derive(Debug)]
pub struct Check<'a> {
    /// The service account (namespace and name) to check instead of the user.
    pub service_account: Option<(&'a str, &'a str)>,
    /// The path or resource.
    pub target: &'a Target,
    /// The request verb.
    pub verb: &'a str,
}

/// The target of an authorization check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A non-resource path.
    Path(String),
    /// A resource.
    Resource(Resource),
}

/// The resource attributes of a check; unset attributes are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The API group.
    pub group: String,
    /// The plural resource name.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object name.
    pub name: String,
    /// The field selector.
    pub field_selector: String,
    /// The label selector.
    pub label_selector: String,
}

/// The authorizer's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason for the decision.
    pub reason: String,
    /// The error of the authorizer.
    pub error: Option<String>,
}

/// The user that checks are made for.
#[derive(Clone)]
pub struct User {
    authorizer: Arc<dyn Authorizer>,
    service_account: Option<(String, String)>,
}

impl PartialEq for User {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.authorizer, &other.authorizer) && self.service_account == other.service_account
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("service_account", &self.service_account).finish_non_exhaustive()
    }
}

/// An authorization check under construction.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    user: User,
    target: Target,
}

impl User {
    fn ask(&self, target: Target) -> Asked {
        Asked { user: self.clone(), target }
    }
}

impl Asked {
    fn with(&self, change: impl FnOnce(&mut Resource)) -> Self {
        let mut asked = self.clone();
        if let Target::Resource(resource) = &mut asked.target {
            change(resource);
        }
        asked
    }
}

impl Value<'_> {
    /// The value of the variable `authorizer`.
    pub fn authorizer(authorizer: Arc<dyn Authorizer>) -> Self {
        Native::Authorizer(User { authorizer, service_account: None }).value()
    }

    /// The value of `authorizer.requestResource`.
    pub fn resource_check(authorizer: Arc<dyn Authorizer>, resource: Resource) -> Self {
        let user = User { authorizer, service_account: None };
        Native::ResourceCheck(user.ask(Target::Resource(resource))).value()
    }
}

fn native<'v>(value: &'v Value<'_>) -> Result<&'v Native, Error> {
    match value {
        Value::Native(native) => Ok(native),
        _ => Err(Error::no_such_overload()),
    }
}

fn user<'v>(value: &'v Value<'_>) -> Result<&'v User, Error> {
    match native(value)? {
        Native::Authorizer(user) => Ok(user),
        _ => Err(Error::no_such_overload()),
    }
}

fn decision<'v>(value: &'v Value<'_>) -> Result<&'v Decision, Error> {
    match native(value)? {
        Native::Decision(decision) => Ok(decision),
        _ => Err(Error::no_such_overload()),
    }
}

fn refined<'a>(args: &[Value<'a>], change: fn(&mut Resource, String)) -> Result<Value<'a>, Error> {
    let text = text(&args[1])?.to_owned();
    match native(&args[0])? {
        Native::ResourceCheck(asked) => {
            Ok(Native::ResourceCheck(asked.with(|resource| change(resource, text))).value())
        }
        _ => Err(Error::no_such_overload()),
    }
}
