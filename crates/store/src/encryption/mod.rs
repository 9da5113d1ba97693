//! Encryption at rest: a store that encrypts the documents of configured resources in another store.
//!
//! The first provider of a resource encrypts writes; any of them decrypts reads, which allows key rotation. The stored
//! format is kube-apiserver's, so that either reads the other's documents.

mod cipher;
mod config;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

pub use self::config::EncryptionConfig;
use crate::{
    KeyLayout, ListOptions, ListPage, Record, Revision, Store, StoreError, StoreEvent, WatchItem, WatchItems,
    WatchOptions, WriteRequest,
};

/// A store whose documents are encrypted in the one below it.
pub struct EncryptedStore {
    below: Arc<dyn Store>,
    transform: Arc<ValueTransformer>,
}

/// Encrypts and decrypts documents.
struct ValueTransformer {
    config: EncryptionConfig,
    /// Provides the authenticated data: kube-apiserver's etcd key of the document.
    layout: KeyLayout,
}

impl EncryptedStore {
    /// Encrypts what goes into `below`. `layout` is that of the etcd that is below, or would be.
    pub fn new(below: Arc<dyn Store>, config: EncryptionConfig, layout: KeyLayout) -> Self {
        Self { below, transform: Arc::new(ValueTransformer { config, layout }) }
    }
}

impl ValueTransformer {
    fn encrypt_value(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        let Some(providers) = self.config.providers_for_key(key) else { return Ok(value) };
        let context = self.layout.to_etcd(key);
        match providers.first() {
            Some(first) => first.encrypt_value(context.as_bytes(), value).map_err(|failure| unusable(key, failure)),
            None => Ok(value),
        }
    }

    fn decrypt_value(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        let context = self.layout.to_etcd(key);
        let providers = self.config.providers_for_key(key).unwrap_or_default();
        match providers.iter().find(|provider| provider.has_encrypted(&value)) {
            Some(provider) => {
                provider.decrypt_value(context.as_bytes(), value).map_err(|failure| unusable(key, failure))
            }
            None if value.starts_with(cipher::ENCRYPTED_PREFIX) => Err(unusable(key, cipher::TransformError::NoKey)),
            None if providers.is_empty() || providers.iter().any(|provider| provider.is_identity()) => Ok(value),
            None => Err(unusable(key, cipher::TransformError::NotEncrypted)),
        }
    }

    fn decrypt_record(&self, record: Record) -> Result<Record, StoreError> {
        let value = self.decrypt_value(&record.key, record.value)?;
        Ok(Record { value, ..record })
    }

    fn decrypt_event(&self, event: StoreEvent) -> Result<StoreEvent, StoreError> {
        let value = event.value.map(|value| self.decrypt_value(&event.key, value)).transpose()?;
        let previous = event.previous.map(|record| self.decrypt_record(record)).transpose()?;
        Ok(StoreEvent { value, previous, ..event })
    }
}

fn unusable(key: &str, failure: cipher::TransformError) -> StoreError {
    StoreError::Unusable(format!("{key}: {failure}"))
}

#[async_trait]
impl Store for EncryptedStore {
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        self.below.get(key).await?.map(|record| self.transform.decrypt_record(record)).transpose()
    }

    async fn list(&self, range: ListOptions) -> Result<ListPage, StoreError> {
        let page = self.below.list(range).await?;
        let records =
            page.records.into_iter().map(|record| self.transform.decrypt_record(record)).collect::<Result<_, _>>()?;
        Ok(ListPage { records, ..page })
    }

    async fn write(&self, write: WriteRequest) -> Result<Revision, StoreError> {
        let value = write.value.map(|value| self.transform.encrypt_value(&write.key, value)).transpose()?;
        match self.below.write(WriteRequest { value, ..write }).await {
            Err(StoreError::Conflict { key, precondition, current }) => {
                let current = current.map(|record| self.transform.decrypt_record(record)).transpose()?;
                Err(StoreError::Conflict { key, precondition, current })
            }
            written => written,
        }
    }

    async fn watch_items(&self, follow: WatchOptions) -> Result<WatchItems, StoreError> {
        let transform = self.transform.clone();
        let notices = self.below.watch_items(follow).await?;
        let opened = notices.map(move |notice| match notice? {
            WatchItem::Event(event) => transform.decrypt_event(event).map(WatchItem::Event),
            progress => Ok(progress),
        });
        Ok(opened.boxed())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.below.revision().await
    }

    async fn compact(&self, through: Revision) -> Result<(), StoreError> {
        self.below.compact(through).await
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        self.below.check_health().await
    }

    async fn disk_usage(&self) -> Result<u64, StoreError> {
        self.below.disk_usage().await
    }

    fn supports_progress_requests(&self) -> bool {
        self.below.supports_progress_requests()
    }
}
