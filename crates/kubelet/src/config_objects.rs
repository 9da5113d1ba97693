//! Reads ConfigMaps and Secrets referenced by pods of one namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

/// Values of an object by key.
pub type ObjectData = BTreeMap<String, Vec<u8>>;

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

/// Reads the objects of one namespace.
#[derive(Clone)]
pub struct ConfigObjects {
    client: Client,
    namespace: String,
}

impl ConfigObjects {
    /// Creates a reader for `namespace`.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.into() }
    }

    /// Returns the data of a ConfigMap; empty if it is absent and optional.
    pub async fn get_config_map(&self, name: &str, optional: Option<bool>) -> Result<ObjectData, ObjectReferenceError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(object) = resolve_optional("configmap", name, optional, api.get_opt(name).await)? else {
            return Ok(ObjectData::new());
        };
        let text = object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = object.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        Ok(text.chain(binary).collect())
    }

    /// Returns the data of a Secret; empty if it is absent and optional.
    pub async fn get_secret(&self, name: &str, optional: Option<bool>) -> Result<ObjectData, ObjectReferenceError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = resolve_optional("secret", name, optional, api.get_opt(name).await)?;
        let data = object.and_then(|object| object.data).unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
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
