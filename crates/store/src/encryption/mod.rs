//! Encryption at rest: a store that encrypts the documents of chosen resources on their way into another store.
//!
//! What is written is encrypted by the first provider of the resource; what is read may be of any of them, which is how
//! keys are rotated. The stored form is kube-apiserver's, so that both read what the other wrote.

mod cipher;
mod config;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

pub use self::config::EncryptionConfig;
use crate::{Error, Event, Follow, Layout, Notice, Notices, Page, Range, Record, Revision, Store, Write};

/// A store whose documents are encrypted in the one below it.
pub struct Encrypted {
    below: Arc<dyn Store>,
    transform: Arc<Transform>,
}

/// How documents change on their way.
struct Transform {
    config: EncryptionConfig,
    /// Gives the name under which a document is sealed: kube-apiserver's key of it in etcd.
    layout: Layout,
}

impl Encrypted {
    /// Encrypts what goes into `below`. `layout` is that of the etcd that is below, or would be.
    pub fn new(below: Arc<dyn Store>, config: EncryptionConfig, layout: Layout) -> Self {
        Self { below, transform: Arc::new(Transform { config, layout }) }
    }
}

impl Transform {
    fn seal(&self, key: &str, value: Bytes) -> Result<Bytes, Error> {
        let Some(providers) = self.config.providers(key) else { return Ok(value) };
        let context = self.layout.to_etcd(key);
        match providers.first() {
            Some(first) => first.seal(context.as_bytes(), value).map_err(|failure| failed(key, failure)),
            None => Ok(value),
        }
    }

    fn open(&self, key: &str, value: Bytes) -> Result<Bytes, Error> {
        let context = self.layout.to_etcd(key);
        let providers = self.config.providers(key).unwrap_or_default();
        match providers.iter().find(|provider| provider.sealed(&value)) {
            Some(provider) => provider.open(context.as_bytes(), value).map_err(|failure| failed(key, failure)),
            None if value.starts_with(cipher::MARK) => Err(failed(key, cipher::Failure::NoKey)),
            None if providers.is_empty() || providers.iter().any(|provider| provider.is_identity()) => Ok(value),
            None => Err(failed(key, cipher::Failure::NotEncrypted)),
        }
    }

    fn record(&self, record: Record) -> Result<Record, Error> {
        let value = self.open(&record.key, record.value)?;
        Ok(Record { value, ..record })
    }

    fn event(&self, event: Event) -> Result<Event, Error> {
        let value = event.value.map(|value| self.open(&event.key, value)).transpose()?;
        let previous = event.previous.map(|record| self.record(record)).transpose()?;
        Ok(Event { value, previous, ..event })
    }
}

fn failed(key: &str, failure: cipher::Failure) -> Error {
    Error::Unusable(format!("{key}: {failure}"))
}

#[async_trait]
impl Store for Encrypted {
    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        self.below.get(key).await?.map(|record| self.transform.record(record)).transpose()
    }

    async fn list(&self, range: Range) -> Result<Page, Error> {
        let page = self.below.list(range).await?;
        let records = page.records.into_iter().map(|record| self.transform.record(record)).collect::<Result<_, _>>()?;
        Ok(Page { records, ..page })
    }

    async fn write(&self, write: Write) -> Result<Revision, Error> {
        let value = write.value.map(|value| self.transform.seal(&write.key, value)).transpose()?;
        match self.below.write(Write { value, ..write }).await {
            Err(Error::Conflict { key, guard, current }) => {
                let current = current.map(|record| self.transform.record(record)).transpose()?;
                Err(Error::Conflict { key, guard, current })
            }
            written => written,
        }
    }

    async fn follow(&self, follow: Follow) -> Result<Notices, Error> {
        let transform = self.transform.clone();
        let notices = self.below.follow(follow).await?;
        let opened = notices.map(move |notice| match notice? {
            Notice::Event(event) => transform.event(event).map(Notice::Event),
            progress => Ok(progress),
        });
        Ok(opened.boxed())
    }

    async fn revision(&self) -> Result<Revision, Error> {
        self.below.revision().await
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        self.below.compact(through).await
    }

    async fn health(&self) -> Result<(), Error> {
        self.below.health().await
    }

    async fn size(&self) -> Result<u64, Error> {
        self.below.size().await
    }

    fn tells_progress(&self) -> bool {
        self.below.tells_progress()
    }
}
