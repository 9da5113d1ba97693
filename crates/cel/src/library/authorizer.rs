//! Questions to the authorizer, built step by step: `authorizer.group('apps').resource('deployments').check('get')`.

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

/// Decides about requests that an expression asks about, for the user whose request is judged.
pub trait Authorizer: Send + Sync {
    /// Whether a request would be allowed.
    fn check(&self, check: &Check<'_>) -> Decision;
}

/// A question to the authorizer.
#[derive(Debug)]
pub struct Check<'a> {
    /// Asked about this service account (namespace and name) instead of the user.
    pub service_account: Option<(&'a str, &'a str)>,
    /// What is asked for.
    pub target: &'a Target,
    /// What would be done.
    pub verb: &'a str,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path that is no resource.
    Path(String),
    /// A resource.
    Resource(Resource),
}

/// A resource that is asked for; what was not said is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Its API group.
    pub group: String,
    /// Its plural name.
    pub resource: String,
    /// What is below it.
    pub subresource: String,
    /// Where it is.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// Which fields the objects have.
    pub field_selector: String,
    /// Which labels the objects have.
    pub label_selector: String,
}

/// What the authorizer answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong.
    pub error: Option<String>,
}

/// Whom the authorizer is asked about.
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

/// A question that is not yet complete.
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
    /// The value of `authorizer`.
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
