//! Admission attributes: operation, resource, object, user and options of one request.

use api::{Value, meta, schema::Resource, status::Status};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    loopback,
    request::ResourceRequest,
    storage::ObjectStorage,
    warnings::Warnings,
};
use authz::{Authorizers, Decision};

use super::reinvocation::ReinvocationContext;

/// Admission operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of the object or of a subresource.
    Update,
    /// A deletion.
    Delete,
    /// A stream to a subresource, such as `exec` or `proxy`.
    Connect,
}

impl Operation {
    /// Create and update.
    pub const WRITES: &'static [Self] = &[Self::Create, Self::Update];
    /// All operations.
    pub const ALL: &'static [Self] = &[Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// Returns the operation as the API spells it, such as `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Admission attributes of one request. The object itself is passed to each call.
pub struct AdmissionAttributes<'a> {
    /// Reads other objects.
    pub registry: &'a dyn ObjectStorage,
    /// The request: resource, subresource, namespace, name, user.
    pub target: &'a ResourceRequest,
    /// The operation.
    pub operation: Operation,
    /// The old object; `None` for creates and connects.
    pub old: Option<&'a Value>,
    /// Whether this is a dry run, which stores nothing.
    pub dry_run: bool,
    /// The `DeleteOptions` of a deletion.
    pub options: Option<&'a Value>,
    /// Reinvocation state of the mutating plug-ins.
    pub reinvocation: ReinvocationContext,
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
            reinvocation: ReinvocationContext::default(),
        }
    }

    /// Attributes of a create.
    pub fn for_create(registry: &'a dyn ObjectStorage, target: &'a ResourceRequest, dry_run: bool) -> Self {
        Self { dry_run, ..Self::new(registry, target, Operation::Create) }
    }

    /// Attributes of an update.
    pub fn for_update(
        registry: &'a dyn ObjectStorage,
        target: &'a ResourceRequest,
        old: &'a Value,
        dry_run: bool,
    ) -> Self {
        Self { old: Some(old), dry_run, ..Self::new(registry, target, Operation::Update) }
    }

    /// Attributes of a deletion.
    pub fn for_delete(
        registry: &'a dyn ObjectStorage,
        target: &'a ResourceRequest,
        old: &'a Value,
        options: &'a Value,
    ) -> Self {
        let dry_run = !meta::list_at(options, &["dryRun"]).is_empty();
        Self { old: Some(old), dry_run, options: Some(options), ..Self::new(registry, target, Operation::Delete) }
    }

    /// Attributes of a connect.
    pub fn for_connect(registry: &'a dyn ObjectStorage, target: &'a ResourceRequest) -> Self {
        Self::new(registry, target, Operation::Connect)
    }

    /// Returns the same attributes with another old object.
    pub fn with_old_object<'b>(&'b self, old: Option<&'b Value>) -> AdmissionAttributes<'b> {
        AdmissionAttributes {
            old,
            dry_run: self.dry_run,
            ..AdmissionAttributes::new(self.registry, self.target, self.operation)
        }
    }

    /// The requested resource.
    pub fn resource(&self) -> &Resource {
        &self.target.resource
    }

    /// The subresource; "" for the object itself.
    pub fn subresource(&self) -> &str {
        // Proxy requests carry the rest of the path in the subresource.
        self.target.subresource.split('/').next().unwrap_or_default()
    }

    /// The namespace of the request; for a namespace, its own name.
    pub fn namespace(&self) -> &str {
        &self.target.namespace
    }

    /// The user who sends the request.
    pub fn user(&self) -> &User {
        &self.target.user
    }

    /// Collects warnings and audit annotations.
    pub fn warnings(&self) -> &Warnings {
        &self.target.warnings
    }

    /// Whether the request targets this resource or one of its subresources.
    pub fn targets_resource(&self, group: &str, name: &str) -> bool {
        self.resource().name == name && self.resource().group == group
    }

    /// Group, version and kind of the written object; a subresource may have its own kind.
    pub fn group_version_kind(&self) -> (&'static str, &'static str, &'static str) {
        let descriptor = self.resource();
        match descriptor.subresource(self.subresource()) {
            Some(sub) if !self.subresource().is_empty() => {
                let (group, version) = sub.group_version.unwrap_or((descriptor.group, descriptor.version));
                (group, version, sub.kind)
            }
            _ => (descriptor.group, descriptor.version, descriptor.kind),
        }
    }

    /// The name in the request path, or a new object's own name if it is already set.
    pub fn object_name<'b>(&'b self, object: &'b Value) -> &'b str {
        if self.target.name.is_empty() && self.operation == Operation::Create {
            meta::name(object)
        } else {
            &self.target.name
        }
    }

    /// Authorizes the user of the request for another verb or resource.
    pub async fn authorize_user(
        &self,
        authorizers: &Authorizers,
        verb: &str,
        resource: ResourceAttributes<'_>,
    ) -> Decision {
        let target = AttributesTarget::Resource(resource);
        authorizers.authorize(&Attributes { user: self.user(), verb, target }).await
    }

    /// Builds a 403 Forbidden status for this request.
    pub fn new_forbidden(&self, object: &Value, why: impl AsRef<str>) -> Status {
        let mut name = self.object_name(object);
        if name.is_empty() {
            let named = [meta::name(object), meta::string_at(object, &["metadata", "generateName"]), "Unknown"];
            name = named.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        }
        Status::forbidden(self.resource(), name, why.as_ref())
    }

    /// Reads an object of a built-in resource; `None` if it does not exist.
    pub async fn get_object(
        &self,
        kind: (&str, &str, &str),
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let resource = loopback::find_resource(kind.0, kind.1, kind.2)?;
        match self.registry.read_object(resource, namespace, name).await {
            Ok((object, _)) => Ok(Some(object)),
            Err(status) if status.is_not_found() => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Lists the objects of a built-in resource, in one namespace or, with "", in all.
    pub async fn list_objects(&self, kind: (&str, &str, &str), namespace: &str) -> Result<Vec<Value>, Status> {
        self.registry.list_objects(loopback::find_resource(kind.0, kind.1, kind.2)?, namespace).await
    }
}
