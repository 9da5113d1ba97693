//! What is to be admitted: who does what to which object.

use api::{Value, meta, schema::Resource, status::Status};
use apiserver_core::{User, loopback, request::ResourceRequest, storage::ObjectStorage, warnings::Warnings};

use super::reinvocation::ReinvocationContext;

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It, or a part of it, changes.
    Update,
    /// It goes.
    Delete,
    /// A stream to it is opened.
    Connect,
}

impl Operation {
    /// As the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Who does what to which object. The object itself comes with each call.
pub struct AdmissionAttributes<'a> {
    /// Where other objects can be looked up.
    pub registry: &'a dyn ObjectStorage,
    /// The request: resource, subresource, namespace, name, user.
    pub target: &'a ResourceRequest,
    /// What is done.
    pub operation: Operation,
    /// The object before.
    pub old: Option<&'a Value>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The options of a deletion.
    pub options: Option<&'a Value>,
    /// What became of the object so far.
    pub rounds: ReinvocationContext,
}

impl<'a> AdmissionAttributes<'a> {
    fn new(registry: &'a dyn ObjectStorage, target: &'a ResourceRequest, operation: Operation) -> Self {
        Self {
            registry,
            target,
            operation,
            old: None,
            dry_run: false,
            options: None,
            rounds: ReinvocationContext::default(),
        }
    }

    /// Of a new object.
    pub fn create(registry: &'a dyn ObjectStorage, target: &'a ResourceRequest, dry_run: bool) -> Self {
        Self { dry_run, ..Self::new(registry, target, Operation::Create) }
    }

    /// Of a change.
    pub fn update(registry: &'a dyn ObjectStorage, target: &'a ResourceRequest, old: &'a Value, dry_run: bool) -> Self {
        Self { old: Some(old), dry_run, ..Self::new(registry, target, Operation::Update) }
    }

    /// Of a deletion.
    pub fn delete(
        registry: &'a dyn ObjectStorage,
        target: &'a ResourceRequest,
        old: &'a Value,
        options: &'a Value,
    ) -> Self {
        let dry_run = !meta::list_at(options, &["dryRun"]).is_empty();
        Self { old: Some(old), dry_run, options: Some(options), ..Self::new(registry, target, Operation::Delete) }
    }

    /// Of a stream.
    pub fn connect(registry: &'a dyn ObjectStorage, target: &'a ResourceRequest) -> Self {
        Self::new(registry, target, Operation::Connect)
    }

    /// The same of another view of the object before.
    pub fn with_old<'b>(&'b self, old: Option<&'b Value>) -> AdmissionAttributes<'b> {
        AdmissionAttributes {
            old,
            dry_run: self.dry_run,
            ..AdmissionAttributes::new(self.registry, self.target, self.operation)
        }
    }

    /// The row of the resource.
    pub fn resource(&self) -> &Resource {
        &self.target.resource
    }

    /// "" for the object itself.
    pub fn subresource(&self) -> &str {
        // What is proxied has the rest of its path here.
        self.target.subresource.split('/').next().unwrap_or_default()
    }

    /// The namespace; of a namespace, itself.
    pub fn namespace(&self) -> &str {
        &self.target.namespace
    }

    /// Who asks.
    pub fn user(&self) -> &User {
        &self.target.user
    }

    /// Where warnings and annotations go.
    pub fn notes(&self) -> &Warnings {
        &self.target.warnings
    }

    /// Whether this is about objects of a resource, or their subresources.
    pub fn is_of(&self, group: &str, name: &str) -> bool {
        self.resource().name == name && self.resource().group == group
    }

    /// Group, version and kind of what is written: a subresource may have its own.
    pub fn kind(&self) -> (&'static str, &'static str, &'static str) {
        let row = self.resource();
        match row.subresource(self.subresource()) {
            Some(sub) if !self.subresource().is_empty() => {
                let (group, version) = sub.group_version.unwrap_or((row.group, row.version));
                (group, version, sub.kind)
            }
            _ => (row.group, row.version, row.kind),
        }
    }

    /// The name of the request's path, or that of a new object if it has one yet.
    pub fn name<'b>(&'b self, object: &'b Value) -> &'b str {
        if self.target.name.is_empty() && self.operation == Operation::Create {
            meta::name(object)
        } else {
            &self.target.name
        }
    }

    /// 403, about this request.
    pub fn forbidden(&self, object: &Value, why: impl AsRef<str>) -> Status {
        let mut name = self.name(object);
        if name.is_empty() {
            let named = [meta::name(object), meta::string_at(object, &["metadata", "generateName"]), "Unknown"];
            name = named.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        }
        Status::forbidden(self.resource(), name, why.as_ref())
    }

    /// Another object of a built-in resource, or `None`.
    pub async fn find(&self, kind: (&str, &str, &str), namespace: &str, name: &str) -> Result<Option<Value>, Status> {
        let resource = loopback::find_resource(kind.0, kind.1, kind.2)?;
        match self.registry.read_object(resource, namespace, name).await {
            Ok((object, _)) => Ok(Some(object)),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// All objects of a built-in resource, or those of one namespace.
    pub async fn all(&self, kind: (&str, &str, &str), namespace: &str) -> Result<Vec<Value>, Status> {
        self.registry.list_objects(loopback::find_resource(kind.0, kind.1, kind.2)?, namespace).await
    }
}
