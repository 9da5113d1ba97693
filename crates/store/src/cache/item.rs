//! Cached documents and their changes, shared by all lists and watches.

use std::{
    any::Any,
    borrow::Borrow,
    cmp::Ordering,
    mem::size_of,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::{SelectableFields, SelectionBloomFilter};
use crate::{Record, Revision, StoreEvent};

/// A record with its labels and selectable fields.
#[derive(Debug)]
pub struct CachedItem {
    /// The record, as the engine has it.
    pub record: Record,
    /// Labels and selectable fields.
    pub selectable_fields: SelectableFields,
    /// Other encodings of the document, made on first use.
    forms: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl CachedItem {
    /// An item without other encodings.
    pub(super) fn new(record: Record, marks: SelectableFields) -> Self {
        Self { record, selectable_fields: marks, forms: Mutex::default() }
    }

    /// The caller's storage for other encodings of the document, for as long as it is cached. `T` is the same for all
    /// callers; `None` if it is not.
    pub fn forms<T: Default + Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        forms.get_or_insert_with(|| Arc::<T>::default()).clone().downcast().ok()
    }

    /// Drops the other encodings, once the document was replaced.
    pub(super) fn drop_encodings(&self) {
        drop(self.forms.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl PartialEq for CachedItem {
    fn eq(&self, other: &Self) -> bool {
        (&self.record, &self.selectable_fields) == (&other.record, &other.selectable_fields)
    }
}

impl Eq for CachedItem {}

/// Items in the order of their keys, to be looked up by them.
#[derive(Clone, Debug)]
pub(super) struct ItemByKey {
    pub item: Arc<CachedItem>,
    /// The filter of the item's selectable fields, to be read without the item.
    pub filter: SelectionBloomFilter,
}

impl From<Arc<CachedItem>> for ItemByKey {
    fn from(item: Arc<CachedItem>) -> Self {
        Self { filter: item.selectable_fields.bloom_filter(), item }
    }
}

impl Borrow<str> for ItemByKey {
    fn borrow(&self) -> &str {
        &self.item.record.key
    }
}

impl Ord for ItemByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.item.record.key.cmp(&other.item.record.key)
    }
}

impl PartialOrd for ItemByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ItemByKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ItemByKey {}

/// Encoded bytes by the name of the encoding.
type NamedEncodings = Vec<(Arc<str>, Bytes)>;

/// One change of one document; at least one of `item` and `previous` is set.
#[derive(Debug)]
pub struct CachedChange {
    /// The write that made the change.
    pub revision: Revision,
    /// The document after the change; `None`: it was deleted.
    pub item: Option<Arc<CachedItem>>,
    /// The document before the change; `None`: it was created.
    pub previous: Option<Arc<CachedItem>>,
    /// Encoded watch events by the name of the encoding; `None`: too old to be kept.
    encoded: Mutex<Option<NamedEncodings>>,
}

impl CachedChange {
    /// `None` if there is a document neither before nor after.
    pub(super) fn new(
        revision: Revision,
        item: Option<Arc<CachedItem>>,
        previous: Option<Arc<CachedItem>>,
    ) -> Option<Self> {
        item.as_ref().or(previous.as_ref())?;
        Some(Self { revision, item, previous, encoded: Mutex::new(Some(Vec::new())) })
    }

    /// The key of the document.
    pub fn key(&self) -> &Arc<str> {
        // `new` ensures that one of the two is set.
        static NONE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| "".into());
        self.item.as_ref().or(self.previous.as_ref()).map_or(&NONE, |item| &item.record.key)
    }

    /// The encoded change, made on first use and then shared. Encodings with the same name are equal.
    pub fn encoded<E>(&self, form: &Arc<str>, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        // Locked while encoding: others would encode the same.
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(forms) = &mut *encoded else {
            drop(encoded);
            return make();
        };
        if let Some((_, bytes)) = forms.iter().find(|(name, _)| name == form) {
            return Ok(bytes.clone());
        }
        let bytes = make()?;
        forms.push((form.clone(), bytes.clone()));
        Ok(bytes)
    }

    /// Drops the encoded events; slow watchers encode their own.
    pub(super) fn drop_encoded(&self) {
        drop(self.encoded.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The approximate length of an encoding.
    pub(super) fn encoded_len_estimate(&self) -> usize {
        self.item.as_ref().or(self.previous.as_ref()).map_or(0, |item| item.record.value.len())
    }

    /// The memory it takes, without the newest document.
    pub(super) fn memory_cost(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |item| item.record.value.len() + size_of::<CachedItem>());
        size_of::<Self>() + 64 + previous
    }

    /// The change as an event of the store.
    pub fn to_event(&self) -> StoreEvent {
        StoreEvent {
            revision: self.revision,
            key: self.key().clone(),
            value: self.item.as_ref().map(|item| item.record.value.clone()),
            previous: self.previous.as_ref().map(|item| item.record.clone()),
        }
    }
}
