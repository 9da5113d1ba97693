//! The generic registry: the implementation of every verb, shared by all resources.
//!
//! The pipeline calls [`Registry::handle_request`] for an authorized request. Writes use optimistic concurrency: read,
//! change, write with a revision precondition. A write is acknowledged after the store has committed it.

pub mod allocate;
mod apply;
pub mod component_status;
mod continue_token;
mod create;
mod delete;
mod initialization;
mod list;
mod list_options;
mod object_decoder;
mod object_storage;
mod raw_extensions;
pub mod reviews;
mod save_error;
mod scale_object;
pub mod selection;
pub mod strategies;
mod subresources;
pub mod token_request;
mod update;
mod updated_object;
mod virtual_resources;
mod write_options;

use std::{
    ops::RangeInclusive,
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::AdmissionChain;
use api::{Value, meta, schema::Resource, status::Status};
use apiextensions::CustomResourceDefinitions;
use apiserver_core::{
    body::RequestBody,
    catalog::BuiltInCatalog,
    document::{self, RawExtensions},
    initializers,
    request::ResourceRequest,
    services::ServiceResolver,
    webhook::WebhookClients,
};
use authz::{AuthorizationOptions, Authorizers};
use bytes::Bytes;
pub use list::ListPage;
pub use list_options::ListOptions;
pub use object_decoder::decode_request_body;
pub use raw_extensions::raw_extensions_in_body;
use save_error::SaveError;
use store::{Precondition, Record, ResourceVersionMatch, Revision, Store, WatchCache, WriteRequest};
pub use subresources::{decode_subresource_body, subresource_kind};
use tracing::Instrument;
pub use virtual_resources::{VirtualResource, VirtualResources};
pub use write_options::{FieldValidation, WriteOptions};

use crate::allocate::AllocationPools;

/// Maximum number of attempts of an update that conflicts with other writers.
const RETRIES: usize = 8;

/// A stored document and its revision.
pub type StoredDocument = (Bytes, Revision);

/// The result of a request, before encoding.
pub enum RequestOutcome {
    /// A stored document, to be sent as it is.
    Document {
        /// The document.
        value: Bytes,
        /// Its revision.
        revision: Revision,
    },
    /// An object that was written or computed.
    Object {
        /// The object.
        object: Value,
        /// The stored document; `None` if nothing was stored or the object differs from it.
        stored: Option<StoredDocument>,
        /// 200 or 201.
        code: u16,
    },
    /// A page of a list.
    List(ListPage),
    /// A list of objects that are not stored.
    Objects(Vec<Value>),
    /// A `Status` of success.
    Success(Value),
}

/// The generic registry of all stored resources.
pub struct Registry {
    store: Arc<dyn Store>,
    cache: Arc<WatchCache>,
    authorizers: Arc<Authorizers>,
    crds: Arc<CustomResourceDefinitions>,
    pools: AllocationPools,
    webhook_clients: Arc<WebhookClients>,
    /// TTL of ephemeral objects.
    event_ttl: Duration,
    /// Timeout of a create that waits for initializers.
    initialization_timeout: Duration,
    /// Set once, before the first request, because plug-ins need components that hold the registry.
    admission: OnceLock<AdmissionChain>,
    /// Set once, before the first request.
    virtual_resources: OnceLock<VirtualResources>,
}

/// The configuration of a registry.
pub struct RegistryConfig<'a> {
    /// Service CIDRs: one, or one per IP family.
    pub service_networks: &'a [allocate::ip_network::IpNetwork],
    /// The range of node ports.
    pub node_ports: RangeInclusive<u16>,
    /// The authorization modes.
    pub authorization: &'a AuthorizationOptions,
    /// The TTL of events.
    pub event_ttl: Duration,
    /// The timeout of initializers.
    pub initialization_timeout: Duration,
}

impl Registry {
    /// Creates a registry over `store` and loads all objects into the watch cache.
    pub async fn new(store: Arc<dyn Store>, config: RegistryConfig<'_>) -> Result<Self, store::StoreError> {
        let cache = Arc::new(
            WatchCache::with_engine(store.clone(), Arc::new(BuiltInCatalog), store::HistoryWindow::default()).await?,
        );
        let authorizers = Authorizers::new(config.authorization, &cache)?;
        let webhook_clients = Arc::new(WebhookClients::new(Arc::new(ServiceResolver::new(&cache)?)));
        let custom = Arc::new(CustomResourceDefinitions::new(&cache, &webhook_clients)?);
        Ok(Self {
            store,
            cache,
            authorizers,
            crds: custom,
            pools: AllocationPools::new(config.service_networks, config.node_ports),
            webhook_clients,
            event_ttl: config.event_ttl,
            initialization_timeout: config.initialization_timeout,
            admission: OnceLock::new(),
            virtual_resources: OnceLock::new(),
        })
    }

    /// The authorizer chain.
    pub fn authorizers(&self) -> &Arc<Authorizers> {
        &self.authorizers
    }

    /// The CRDs and the custom resources they define.
    pub fn crds(&self) -> &Arc<CustomResourceDefinitions> {
        &self.crds
    }

    /// Timeout of a create that waits for initializers.
    pub fn initialization_timeout(&self) -> Duration {
        self.initialization_timeout
    }

    /// The allocation pools of the cluster.
    pub fn pools(&self) -> &AllocationPools {
        &self.pools
    }

    /// The admission chain; empty until [`Self::set_admission`].
    pub fn admission(&self) -> AdmissionChain {
        self.admission.get().cloned().unwrap_or_default()
    }

    /// Sets the admission chain; only the first call has an effect.
    pub fn set_admission(&self, admission: AdmissionChain) {
        self.admission.get_or_init(|| admission);
    }

    /// Sets the virtual resources; only the first call has an effect.
    pub fn set_virtual_resources(&self, resources: VirtualResources) {
        self.virtual_resources.get_or_init(|| resources);
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The watch cache, which serves lists and watches.
    pub fn cache(&self) -> &Arc<WatchCache> {
        &self.cache
    }

    /// Handles a request.
    pub async fn handle_request(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let virtual_resources = self.virtual_resources.get();
        if let Some(handler) =
            virtual_resources.and_then(|all| all.find_handler(&request.resource, &request.subresource))
        {
            return handler.handle(self, request, body).await;
        }
        if !request.subresource.is_empty() || request.resource.name == "bindings" {
            return self.handle_subresource(request, body).await;
        }
        match request.verb {
            "get" => {
                self.check_min_revision(request).await?;
                self.get_object(request).await
            }
            "list" => self.list(request).await.map(RequestOutcome::List),
            "create" => self.create(request, body).await,
            "update" => self.update(request, body).await,
            "patch" => self.patch(request, body).await,
            "delete" => self.delete(request, body).await,
            "deletecollection" => self.delete_collection(request, body).await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// Returns the stored object of a get request, in the version of the request.
    async fn get_object(&self, request: &ResourceRequest) -> Result<RequestOutcome, Status> {
        let record = self.read_record(&request.resource, &request.namespace, &request.name).await?;
        if initializers::is_enabled() {
            initializers::check_visible(request, &document::decode_record(&record).map_err(Status::internal_error)?)?;
        }
        if CustomResourceDefinitions::is_converted_by_webhook(&request.resource) {
            let object = document::decode_record(&record).map_err(Status::internal_error)?;
            let object = self.crds.convert_stored_object(&request.resource, object).await?;
            return Ok(RequestOutcome::Object { object, stored: None, code: 200 });
        }
        Ok(RequestOutcome::Document { value: record.value, revision: record.revision })
    }

    /// Reads the record of an object; 404 if it does not exist.
    pub async fn read_record(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Record, Status> {
        let key = document::storage_key(resource, namespace, name);
        match self.store.get(&key).await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(Status::not_found(resource, name)),
            Err(error) => Err(status_from_store_error(resource, name, error)),
        }
    }

    /// Reads an object in the version of `resource`; 404 if it does not exist.
    pub async fn read_object(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(Value, Revision), Status> {
        let record = self.read_record(resource, namespace, name).await?;
        let object = document::decode_record(&record).map_err(Status::internal_error)?;
        Ok((self.crds.convert_stored_object(resource, object).await?, record.revision))
    }

    /// Lists all objects of a resource, or of one namespace, in the version of `resource`.
    pub async fn list_objects(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Status> {
        let snapshot =
            self.cache.snapshot(&document::storage_key(resource, namespace, ""), ResourceVersionMatch::Newest).await;
        let snapshot = snapshot.map_err(Status::internal_error)?;
        let decoded = snapshot.items_after(None).map(|item| document::decode_record(&item.record));
        let decoded = decoded.collect::<Result<Vec<Value>, _>>().map_err(Status::internal_error)?;
        self.crds.convert_stored(resource, decoded).await
    }

    /// Runs the escalation check of the resource, if it has one.
    async fn check_escalation_of_write(
        &self,
        request: &ResourceRequest,
        object: &Value,
        current: Option<&Value>,
    ) -> Result<(), Status> {
        match strategies::strategy_for(&request.resource).escalation_check() {
            Some(check) => {
                let authorizers = &self.authorizers;
                check
                    .check_escalation(authz::EscalationAttributes { authorizers, target: request, object, current })
                    .await
            }
            None => Ok(()),
        }
    }

    /// Writes an object and sets its `resourceVersion`. A dry run stores nothing.
    async fn save_object(
        &self,
        resource: &Resource,
        object: Value,
        precondition: Precondition,
        dry_run: bool,
    ) -> Result<(Value, Option<StoredDocument>), SaveError> {
        self.save_object_with(resource, object, precondition, dry_run, &RawExtensions::default()).await
    }

    /// As [`Self::save_object`], with raw fields in the bytes that the client sent.
    async fn save_object_with(
        &self,
        resource: &Resource,
        mut object: Value,
        precondition: Precondition,
        dry_run: bool,
        raw_extensions: &RawExtensions,
    ) -> Result<(Value, Option<StoredDocument>), SaveError> {
        let key = document::storage_key(resource, meta::namespace(&object), meta::name(&object));
        let other = self.crds.convert_to_storage_version(resource, &object).await?;
        if dry_run {
            let current = if precondition == Precondition::Absent { self.store.get(&key).await? } else { None };
            let taken = |current| store::StoreError::Conflict { key: key.into(), precondition, current: Some(current) };
            return match (current, other) {
                (Some(current), _) => Err(taken(current).into()),
                (None, Some(other)) => Ok((self.crds.convert_stored_object(resource, other).await?, None)),
                (None, None) => Ok((object, None)),
            };
        }
        let ttl = strategies::strategy_for(resource).is_ephemeral().then_some(self.event_ttl);
        let value = document::encode_with(other.as_ref().unwrap_or(&object), raw_extensions);
        let write = WriteRequest { key: key.as_str().into(), precondition, value: Some(value.clone()), ttl };
        let span = tracing::debug_span!(target: "stage", "store", key);
        let revision = self.store.write(write).instrument(span).await?;
        self.cache.wait_until_cached(&key, revision).await;
        let mut is_whole = true;
        match (other, &resource.custom_schema) {
            (Some(other), _) => object = self.crds.convert_stored_object(resource, other).await?,
            // A status that the schema defaults is not stored with a new object, but it is returned.
            (None, Some(custom)) if object.get("status").is_none() => {
                custom.default(&mut object);
                is_whole = object.get("status").is_none();
            }
            _ => {}
        }
        meta::metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
        Ok((object, is_whole.then_some((value, revision))))
    }

    /// Deletes an object from the store and releases its allocations.
    async fn remove_object(
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
        allocate::release_removed(self, strategies::strategy_for(resource).allocator(), object).await;
        Ok(())
    }
}

/// Whether a deletion still waits for a finalizer, the strategy or the grace period.
fn deletion_waits(resource: &Resource, object: &Value) -> bool {
    meta::finalizers(object).next().is_some()
        || strategies::strategy_for(resource).holds_deletion(object)
        || meta::integer_at(object, &["metadata", "deletionGracePeriodSeconds"]) > 0
}

/// 409 for a failed UID or resourceVersion precondition, in the words of upstream's storage layer.
fn precondition_failed(resource: &Resource, object: &Value, what: &str, wanted: &str, found: &str) -> Status {
    let key = document::storage_key(resource, meta::namespace(object), meta::name(object));
    let key = store::KeyLayout::Upstream("/registry".into()).to_etcd(&key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in \
         precondition: {wanted}, {what} in object meta: {found}"
    );
    Status::conflict(resource, meta::name(object), &why)
}

/// Converts a store error into the response status.
pub fn status_from_store_error(resource: &Resource, name: &str, error: store::StoreError) -> Status {
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
            tracing::error!(%error, "registry: store request failed, responding with 500");
            Status::internal_error(error)
        }
    }
}
