//! ConfigMaps and Secrets of one namespace, as pods refer to them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

/// The data of an object by key.
pub type Data = BTreeMap<String, Vec<u8>>;

/// Why a reference leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// There is no such object.
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
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
        /// The missing key.
        key: String,
    },
    /// The API server did not answer.
    #[error("failed to get {kind} {name:?}: {source}")]
    Api {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What went wrong.
        source: Box<kube::Error>,
    },
}

/// Reads the objects of one namespace.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    namespace: String,
}

impl Objects {
    /// For the pods of `namespace`.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.into() }
    }

    /// All data of a ConfigMap; none of one that is missing and may be.
    pub async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Data, Missing> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(object) = found("configmap", name, optional, api.get_opt(name).await)? else { return Ok(Data::new()) };
        let text = object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = object.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        Ok(text.chain(binary).collect())
    }

    /// All data of a Secret; none of one that is missing and may be.
    pub async fn secret(&self, name: &str, optional: Option<bool>) -> Result<Data, Missing> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = found("secret", name, optional, api.get_opt(name).await)?;
        let data = object.and_then(|object| object.data).unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
    }

    /// One value of a ConfigMap; nothing if it is missing and may be.
    pub async fn config_map_key(
        &self,
        name: &str,
        key: &str,
        optional: Option<bool>,
    ) -> Result<Option<Vec<u8>>, Missing> {
        let data = self.config_map(name, optional).await?;
        self.key("ConfigMap", name, key, optional, data)
    }

    /// One value of a Secret; nothing if it is missing and may be.
    pub async fn secret_key(&self, name: &str, key: &str, optional: Option<bool>) -> Result<Option<Vec<u8>>, Missing> {
        let data = self.secret(name, optional).await?;
        self.key("Secret", name, key, optional, data)
    }

    fn key(
        &self,
        title: &'static str,
        name: &str,
        key: &str,
        optional: Option<bool>,
        mut data: Data,
    ) -> Result<Option<Vec<u8>>, Missing> {
        match data.remove(key) {
            None if optional != Some(true) => {
                Err(Missing::Key { title, namespace: self.namespace.clone(), name: name.into(), key: key.into() })
            }
            value => Ok(value),
        }
    }
}

fn found<K>(
    kind: &'static str,
    name: &str,
    optional: Option<bool>,
    result: kube::Result<Option<K>>,
) -> Result<Option<K>, Missing> {
    match result {
        Ok(None) if optional != Some(true) => Err(Missing::Object { kind, name: name.into() }),
        Ok(object) => Ok(object),
        Err(source) => Err(Missing::Api { kind, name: name.into(), source: Box::new(source) }),
    }
}
