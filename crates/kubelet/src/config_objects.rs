//! Reads ConfigMaps and Secrets referenced by pods of one namespace.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use crate::object_cache::ObjectData;
use crate::{
    object_cache::{ConfigObject, ObjectCache, ObjectChanges, ObjectUser},
    pod_metadata::{pod_namespace, pod_uid},
};

/// A ConfigMap or Secret reference could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ObjectReferenceError {
    /// The object does not exist.
    #[error("{kind} {name:?} not found")]
    Object {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object lacks a key.
    #[error("couldn't find key {key} in {title} {namespace}/{name}")]
    Key {
        /// `ConfigMap` or `Secret`.
        title: &'static str,
        /// The object's namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The missing key.
        key: String,
    },
    /// The API server returned an error.
    #[error("failed to get {kind} {name:?}: {source}")]
    Api {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The client error.
        source: Box<kube::Error>,
    },
}

/// Reads the objects of one pod's namespace from the caches.
pub struct ConfigObjects<'a> {
    caches: &'a ObjectCaches,
    user: ObjectUser,
    namespace: String,
}

/// The caches of both kinds.
pub struct ObjectCaches {
    /// ConfigMaps.
    pub config_maps: ObjectCache<ConfigMap>,
    /// Secrets.
    pub secrets: ObjectCache<Secret>,
}

impl ObjectCaches {
    /// Creates empty caches; their watches end at `shutdown`.
    pub fn new(client: Client, shutdown: &CancellationToken) -> Self {
        Self {
            config_maps: ObjectCache::new(client.clone(), shutdown.clone()),
            secrets: ObjectCache::new(client, shutdown.clone()),
        }
    }

    /// Forgets a pod that has ended.
    pub fn release_pod(&self, uid: &str) {
        self.config_maps.release_pod(uid);
        self.secrets.release_pod(uid);
    }
}

impl<'a> ConfigObjects<'a> {
    /// Creates a reader for a pod; `changes` is told when an object that was read has changed.
    pub fn new(caches: &'a ObjectCaches, pod: &Pod, changes: Arc<ObjectChanges>) -> Self {
        let user = ObjectUser { uid: pod_uid(pod).into(), changes };
        Self { caches, user, namespace: pod_namespace(pod).into() }
    }

    /// Returns the data of a ConfigMap; empty if it is absent and optional.
    pub async fn get_config_map(&self, name: &str, optional: Option<bool>) -> Result<ObjectData, ObjectReferenceError> {
        let found = self.caches.config_maps.get(&self.user, &self.namespace, name).await;
        let object = resolve_optional("configmap", name, optional, found)?;
        Ok(object.map(|object| object.to_data()).unwrap_or_default())
    }

    /// Returns the data of a Secret; empty if it is absent and optional.
    pub async fn get_secret(&self, name: &str, optional: Option<bool>) -> Result<ObjectData, ObjectReferenceError> {
        let found = self.caches.secrets.get(&self.user, &self.namespace, name).await;
        let object = resolve_optional("secret", name, optional, found)?;
        Ok(object.map(|object| object.to_data()).unwrap_or_default())
    }

    /// Returns one value of a ConfigMap; `None` if it is absent and optional.
    pub async fn get_config_map_key(
        &self,
        name: &str,
        key: &str,
        optional: Option<bool>,
    ) -> Result<Option<Vec<u8>>, ObjectReferenceError> {
        let data = self.get_config_map(name, optional).await?;
        self.select_key("ConfigMap", name, key, optional, data)
    }

    /// Returns one value of a Secret; `None` if it is absent and optional.
    pub async fn get_secret_key(
        &self,
        name: &str,
        key: &str,
        optional: Option<bool>,
    ) -> Result<Option<Vec<u8>>, ObjectReferenceError> {
        let data = self.get_secret(name, optional).await?;
        self.select_key("Secret", name, key, optional, data)
    }

    fn select_key(
        &self,
        title: &'static str,
        name: &str,
        key: &str,
        optional: Option<bool>,
        mut data: ObjectData,
    ) -> Result<Option<Vec<u8>>, ObjectReferenceError> {
        match data.remove(key) {
            None if optional != Some(true) => Err(ObjectReferenceError::Key {
                title,
                namespace: self.namespace.clone(),
                name: name.into(),
                key: key.into(),
            }),
            value => Ok(value),
        }
    }
}

fn resolve_optional<K>(
    kind: &'static str,
    name: &str,
    optional: Option<bool>,
    result: kube::Result<Option<K>>,
) -> Result<Option<K>, ObjectReferenceError> {
    match result {
        Ok(None) if optional != Some(true) => Err(ObjectReferenceError::Object { kind, name: name.into() }),
        Ok(object) => Ok(object),
        Err(source) => Err(ObjectReferenceError::Api { kind, name: name.into(), source: Box::new(source) }),
    }
}
