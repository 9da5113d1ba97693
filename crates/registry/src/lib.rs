//! The registry: what every verb does to stored objects, the same for every resource.
//!
//! [`Registry::perform`] is called by the pipeline once a request is routed and allowed. Writes are "read, change, write if
//! unchanged"; nothing is acknowledged before the store has it.

pub mod allocate;
mod apply;
pub mod component_status;
mod create;
mod delete;
mod initialization;
mod list;
mod list_options;
mod list_token;
mod options;
mod raw;
pub mod reviews;
mod save_error;
pub mod selection;
mod storage;
pub mod strategies;
mod subresources;
pub mod token_request;
mod update;
mod virtual_resources;

use std::{
    ops::RangeInclusive,
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::Admission;
use api::{Value, meta, schema::Resource, status::Status};
use apiextensions::CustomResourceDefinitions;
use apiserver_core::{
    body::RequestBody, catalog::BuiltIn, document, document::RawExtensions, initializers, request::ResourceRequest,
    services::Services,
};
use authz::{Authorization, Authorizers};
use bytes::Bytes;
pub use create::body;
pub use list::List;
pub use list_options::ListOptions;
pub use options::{FieldValidation, WriteOptions};
pub use raw::words;
use save_error::SaveError;
use store::{Precondition, Record, ResourceVersionMatch, Revision, Store, WatchCache, WriteRequest};
pub use subresources::{kind_of, posted};
use subresources::{scale_of, set_replicas};
pub use virtual_resources::{VirtualResource, VirtualResources};

use crate::allocate::Pools;

/// How often a change is tried again when somebody else wrote in between.
const RETRIES: usize = 8;

/// A document, and its revision.
pub type Stored = (Bytes, Revision);

/// What a request came to.
pub enum Outcome {
    /// A stored document, to be sent as it is.
    Document {
        /// The document.
        value: Bytes,
        /// Its revision.
        revision: Revision,
    },
    /// An object that was written or made.
    Object {
        /// The object.
        object: Value,
        /// As it is stored, if it is.
        stored: Option<Stored>,
        /// 200 or 201.
        code: u16,
    },
    /// A page of a list.
    List(List),
    /// A list of objects that are not stored.
    Objects(Vec<Value>),
    /// A `Status` of success.
    Success(Value),
}

/// All objects, behind the verbs.
pub struct Registry {
    store: Arc<dyn Store>,
    cache: Arc<WatchCache>,
    authorizers: Arc<Authorizers>,
    custom: Arc<CustomResourceDefinitions>,
    pools: Pools,
    services: Arc<Services>,
    /// How long ephemeral objects are kept.
    event_ttl: Duration,
    /// How long a creation waits for initializers.
    initialization: Duration,
    /// Set once, before the first request: its plug-ins need what is made of a registry.
    admission: OnceLock<Admission>,
    /// Set once, before the first request.
    virtual_resources: OnceLock<VirtualResources>,
}

/// The configuration of a registry.
pub struct RegistryConfig<'a> {
    /// The ranges of service addresses: one, or one of each family.
    pub service_networks: &'a [allocate::network::Network],
    /// The range of node ports.
    pub node_ports: RangeInclusive<u16>,
    /// The authorization modes.
    pub authorization: &'a Authorization,
    /// The TTL of events.
    pub event_ttl: Duration,
    /// The timeout of initializers.
    pub initialization: Duration,
}

impl Registry {
    /// A registry over a store, all of which is loaded into the watch cache.
    pub async fn new(store: Arc<dyn Store>, config: RegistryConfig<'_>) -> Result<Self, store::StoreError> {
        let cache =
            Arc::new(WatchCache::with_engine(store.clone(), Arc::new(BuiltIn), store::HistoryWindow::default()).await?);
        let authorizers = Authorizers::new(config.authorization, &cache)?;
        let services = Arc::new(Services::new(&cache)?);
        let custom = Arc::new(CustomResourceDefinitions::new(&cache, &services)?);
        Ok(Self {
            store,
            cache,
            authorizers,
            custom,
            pools: Pools::new(config.service_networks, config.node_ports),
            services,
            event_ttl: config.event_ttl,
            initialization: config.initialization,
            admission: OnceLock::new(),
            virtual_resources: OnceLock::new(),
        })
    }

    /// Who knows who may do what.
    pub fn authorizers(&self) -> &Arc<Authorizers> {
        &self.authorizers
    }

    /// The definitions of custom resources.
    pub fn custom(&self) -> &Arc<CustomResourceDefinitions> {
        &self.custom
    }

    /// How long a creation waits for initializers.
    pub fn initialization(&self) -> Duration {
        self.initialization
    }

    /// What can be handed out.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Where services lead.
    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Who is asked before every write. Until it is set everything is admitted.
    pub fn admission(&self) -> Admission {
        self.admission.get().cloned().unwrap_or_default()
    }

    /// Sets who is asked; the first call counts.
    pub fn set_admission(&self, admission: Admission) {
        self.admission.get_or_init(|| admission);
    }

    /// Sets the virtual resources; the first call counts.
    pub fn set_virtual_resources(&self, resources: VirtualResources) {
        self.virtual_resources.get_or_init(|| resources);
    }

    /// The store, for health.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What lists and watches read.
    pub fn cache(&self) -> &Arc<WatchCache> {
        &self.cache
    }

    /// Does what a request asks for.
    pub async fn perform(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        let virtual_resources = self.virtual_resources.get();
        if let Some(handler) = virtual_resources.and_then(|all| all.find(&target.resource, &target.subresource)) {
            return handler.handle(self, target, input).await;
        }
        if !target.subresource.is_empty() || target.resource.name == "bindings" {
            return self.subresource(target, input).await;
        }
        match target.verb {
            "get" => {
                self.has_reached(target).await?;
                self.shown(target).await
            }
            "list" => self.list(target).await.map(Outcome::List),
            "create" => self.create(target, input).await,
            "update" => self.update(target, input).await,
            "patch" => self.patch(target, input).await,
            "delete" => self.delete(target, input).await,
            "deletecollection" => self.delete_collection(target, input).await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// The object of a request as it is stored, if who asks may see it.
    async fn shown(&self, target: &ResourceRequest) -> Result<Outcome, Status> {
        let record = self.read(&target.resource, &target.namespace, &target.name).await?;
        if initializers::enabled() {
            initializers::visible(target, &document::decode_record(&record).map_err(Status::internal_error)?)?;
        }
        if CustomResourceDefinitions::is_converted_by_webhook(&target.resource) {
            let object = document::decode_record(&record).map_err(Status::internal_error)?;
            let object = self.custom.one_in_version(&target.resource, object).await?;
            return Ok(Outcome::Object { object, stored: None, code: 200 });
        }
        Ok(Outcome::Document { value: record.value, revision: record.revision })
    }

    /// The record of an object, or 404.
    pub async fn read(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Record, Status> {
        let key = document::storage_key(resource, namespace, name);
        match self.store.get(&key).await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(Status::not_found(resource, name)),
            Err(error) => Err(failed(resource, name, error)),
        }
    }

    /// The object itself, in the version of `resource`, or 404.
    pub async fn read_object(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(Value, Revision), Status> {
        let record = self.read(resource, namespace, name).await?;
        let object = document::decode_record(&record).map_err(Status::internal_error)?;
        Ok((self.custom.one_in_version(resource, object).await?, record.revision))
    }

    /// All objects of a resource, or those of one namespace, in its version.
    pub async fn objects(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Status> {
        let snapshot =
            self.cache.snapshot(&document::storage_key(resource, namespace, ""), ResourceVersionMatch::Newest).await;
        let snapshot = snapshot.map_err(Status::internal_error)?;
        let decoded = snapshot.items_after(None).map(|item| document::decode_record(&item.record));
        let decoded = decoded.collect::<Result<Vec<Value>, _>>().map_err(Status::internal_error)?;
        self.custom.in_version(resource, decoded).await
    }

    /// Asks whoever looks at what a write would grant.
    async fn check_escalation(
        &self,
        target: &ResourceRequest,
        object: &Value,
        current: Option<&Value>,
    ) -> Result<(), Status> {
        match strategies::of(&target.resource).escalation_check() {
            Some(guard) => {
                let authorizers = &self.authorizers;
                guard.check_escalation(authz::EscalationAttributes { authorizers, target, object, current }).await
            }
            None => Ok(()),
        }
    }

    /// Writes an object and gives it its revision. Of a dry run nothing is stored.
    async fn save(
        &self,
        resource: &Resource,
        object: Value,
        guard: Precondition,
        dry_run: bool,
    ) -> Result<(Value, Option<Stored>), SaveError> {
        self.save_with(resource, object, guard, dry_run, &RawExtensions::default()).await
    }

    /// The same, with raw fields in the words that they came in.
    async fn save_with(
        &self,
        resource: &Resource,
        mut object: Value,
        guard: Precondition,
        dry_run: bool,
        words: &RawExtensions,
    ) -> Result<(Value, Option<Stored>), SaveError> {
        let key = document::storage_key(resource, meta::namespace(&object), meta::name(&object));
        let other = self.custom.to_stored(resource, &object).await?;
        if dry_run {
            let current = if guard == Precondition::Absent { self.store.get(&key).await? } else { None };
            let taken =
                |current| store::StoreError::Conflict { key: key.into(), precondition: guard, current: Some(current) };
            return match (current, other) {
                (Some(current), _) => Err(taken(current).into()),
                (None, Some(other)) => Ok((self.custom.one_in_version(resource, other).await?, None)),
                (None, None) => Ok((object, None)),
            };
        }
        let ttl = strategies::of(resource).is_ephemeral().then_some(self.event_ttl);
        let value = document::encode_with(other.as_ref().unwrap_or(&object), words);
        let write = WriteRequest { key: key.as_str().into(), precondition: guard, value: Some(value.clone()), ttl };
        let revision = self.store.write(write).await?;
        self.cache.wait_until_cached(&key, revision).await;
        let mut is_whole = true;
        match (other, &resource.custom_schema) {
            (Some(other), _) => object = self.custom.one_in_version(resource, other).await?,
            // A status that the schema fills in is not stored with a new object, but it is read.
            (None, Some(custom)) if object.get("status").is_none() => {
                custom.default(&mut object);
                is_whole = object.get("status").is_none();
            }
            _ => {}
        }
        meta::metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
        Ok((object, is_whole.then_some((value, revision))))
    }

    /// Removes an object for good.
    async fn remove(
        &self,
        resource: &Resource,
        object: &Value,
        revision: Revision,
        dry_run: bool,
    ) -> Result<(), store::StoreError> {
        if dry_run {
            return Ok(());
        }
        let key = document::storage_key(resource, meta::namespace(object), meta::name(object));
        let write = WriteRequest {
            key: key.as_str().into(),
            precondition: Precondition::Revision(revision),
            value: None,
            ttl: None,
        };
        let revision = self.store.write(write).await?;
        self.cache.wait_until_cached(&key, revision).await;
        allocate::removed(self, resource, object).await;
        Ok(())
    }
}

/// Whether an object that is being deleted still waits: for a finalizer, for its strategy, or for its grace period.
fn deletion_waits(resource: &Resource, object: &Value) -> bool {
    meta::finalizers(object).next().is_some()
        || strategies::of(resource).holds_deletion(object)
        || meta::integer_at(object, &["metadata", "deletionGracePeriodSeconds"]) > 0
}

/// 409: the object is not the one that a change means, said as upstream's storage says it, key included.
fn precondition_failed(resource: &Resource, object: &Value, what: &str, wanted: &str, found: &str) -> Status {
    let key = document::storage_key(resource, meta::namespace(object), meta::name(object));
    let key = store::KeyLayout::Upstream("/registry".into()).to_etcd(&key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in \
         precondition: {wanted}, {what} in object meta: {found}"
    );
    Status::conflict(resource, meta::name(object), &why)
}

/// A store's error as a client sees it.
pub fn failed(resource: &Resource, name: &str, error: store::StoreError) -> Status {
    match error {
        store::StoreError::Conflict { current: None, .. } => Status::not_found(resource, name),
        store::StoreError::Conflict { precondition: Precondition::Absent, .. } => {
            Status::already_exists(resource, name)
        }
        store::StoreError::Conflict { .. } => Status::object_modified(resource, name),
        store::StoreError::Compacted { requested, oldest } => {
            Status::resource_expired(format!("too old resource version: {requested} ({oldest})"))
        }
        store::StoreError::Future { requested, current } => Status::resource_version_too_large(requested, current),
        error => {
            tracing::error!(%error, "the store failed");
            Status::internal_error(error)
        }
    }
}
