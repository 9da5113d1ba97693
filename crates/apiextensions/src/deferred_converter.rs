//! Conversions between the versions of a custom resource that server-side apply needs, resolved between its attempts.

use std::collections::BTreeMap;

use api::{Value, apply, meta, schema::Resource, status::Status};
use apiserver_core::deferred::DeferredLookups;

use crate::CustomResourceDefinitions;

/// The version converter of one request. A conversion that is not known yet renames the version only.
#[derive(Debug, Default)]
pub struct DeferredConverter {
    conversions: DeferredLookups<PendingConversion, Result<Value, Status>>,
}

#[derive(Clone, Debug, PartialEq)]
struct PendingConversion {
    object: Value,
    api_version: String,
}

impl apply::VersionConverter for DeferredConverter {
    fn convert_object(&self, object: &Value, api_version: &str) -> Option<Value> {
        let mut object = object.clone();
        // Managed fields are compared, not converted.
        if let Some(metadata) = object.get_mut("metadata") {
            meta::object_mut(metadata).remove("managedFields");
        }
        let is_same = |known: &PendingConversion| known.api_version == api_version && known.object == object;
        let pending = || PendingConversion { object: object.clone(), api_version: api_version.to_owned() };
        let known = if has_only_type_meta(&object) { None } else { self.conversions.get_or_record(is_same, pending) };
        match known {
            Some(converted) => converted.ok(),
            None => {
                object["apiVersion"] = api_version.into();
                Some(object)
            }
        }
    }
}

impl DeferredConverter {
    /// Runs `change` until all conversions that it needs are known.
    pub async fn run_converted<T>(
        &self,
        crds: &CustomResourceDefinitions,
        resource: &Resource,
        mut change: impl FnMut() -> T,
    ) -> T {
        loop {
            let outcome = change();
            let pending = self.conversions.unresolved();
            if pending.is_empty() {
                return outcome;
            }
            self.conversions.resolve(convert_pending(crds, resource, &pending).await);
        }
    }

    /// The error of the first conversion that failed.
    pub fn failure(&self) -> Option<Status> {
        self.conversions.find_result(|converted| converted.as_ref().err().cloned())
    }
}

/// Converts objects with one webhook call per version.
async fn convert_pending(
    crds: &CustomResourceDefinitions,
    resource: &Resource,
    pending: &[PendingConversion],
) -> Vec<Result<Value, Status>> {
    let mut by_version: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, conversion) in pending.iter().enumerate() {
        by_version.entry(&conversion.api_version).or_default().push(index);
    }
    let mut results = vec![Ok(Value::Null); pending.len()];
    for (api_version, indexes) in by_version {
        let objects = indexes.iter().map(|index| pending[*index].object.clone()).collect();
        let mut converted = crds.convert_to_version(resource, objects, api_version).await.map(Vec::into_iter);
        for index in indexes {
            results[index] = match &mut converted {
                Ok(objects) => Ok(objects.next().unwrap_or_default()),
                Err(status) => Err(status.clone()),
            };
        }
    }
    results
}

/// Whether an object has no fields but `apiVersion` and `kind`.
fn has_only_type_meta(object: &Value) -> bool {
    object.as_object().is_some_and(|fields| fields.keys().all(|field| field == "apiVersion" || field == "kind"))
}
