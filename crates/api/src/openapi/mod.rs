//! OpenAPI documents, built from the schema on demand: v3 as one document per group-version, v2 as one document, in
//! JSON and protobuf.
//!
//! Documents are large and rarely read: [`DocumentCache`](crate::document_cache::DocumentCache) caches them after the first
//! request. v3 documents have hashes for client caches.

mod components;
mod conventions;
mod custom_component;
mod custom_resources;
mod descriptions;
mod document_writer;
mod documents;
mod enums;
mod group_version_kinds;
mod operation_descriptions;
mod operations;
mod path_names;
mod resource_routes;
mod route;
mod v2_protobuf;

pub use custom_component::model_name;
pub use custom_resources::{custom_resource_document, custom_resource_paths_v2};

use std::sync::OnceLock;

use serde_json::json;

use crate::{
    Map, Value,
    cached_document::CachedDocument,
    discovery::{ALL_ENABLED, EnabledFilter},
};

/// `/openapi/v3`: the paths of the enabled documents with their hashes.
pub fn v3_index(enabled: EnabledFilter) -> Value {
    let served = documents::list_documents(enabled);
    let entry = |(path, hash): &(String, String)| {
        (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}))
    };
    let paths: Map =
        document_hashes().iter().filter(|(path, _)| served.iter().any(|d| d.path == *path)).map(entry).collect();
    json!({"paths": paths})
}

/// The document at a path below `/openapi/v3/`, for example `apis/apps/v1`, `apis/apps`, `api` or `version`.
pub fn v3_document(path: &str) -> Option<Value> {
    let document = documents::list_documents(ALL_ENABLED).into_iter().find(|document| document.path == path)?;
    Some(document_writer::write_v3(&document))
}

/// Whether a document exists at a path below `/openapi/v3/`.
pub fn has_v3_document(path: &str, enabled: EnabledFilter) -> bool {
    documents::list_documents(enabled).iter().any(|document| document.path == path)
}

/// `/openapi/v2` with the enabled group-versions.
pub fn v2_document(enabled: EnabledFilter) -> Value {
    document_writer::write_v2(&documents::list_documents(enabled))
}

/// Encodes a v2 document as `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`.
pub fn encode_v2_protobuf(document: &Value) -> Vec<u8> {
    v2_protobuf::encode_document(document)
}

/// `/openapi/v2` with the enabled group-versions as `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`.
pub fn v2_protobuf(enabled: EnabledFilter) -> Vec<u8> {
    v2_protobuf::encode_document(&v2_document(enabled))
}

/// Path and hash of every v3 document.
fn document_hashes() -> &'static [(String, String)] {
    static HASHES: OnceLock<Vec<(String, String)>> = OnceLock::new();
    HASHES.get_or_init(|| {
        documents::list_documents(ALL_ENABLED)
            .into_iter()
            .map(|document| {
                (document.path.clone(), CachedDocument::new(document_writer::write_v3(&document).to_string()).hash)
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_resolves() {
        for document in documents::list_documents(ALL_ENABLED) {
            let body = document_writer::write_v3(&document);
            let text = body.to_string();
            for reference in text.split("#/components/schemas/").skip(1) {
                let name = reference.split('"').next().unwrap();
                assert!(!body["components"]["schemas"][name].is_null(), "{}: {name}", document.path);
            }
        }
        let body = v2_document(ALL_ENABLED);
        for reference in body.to_string().split("#/definitions/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(!body["definitions"][name].is_null(), "{name}");
        }
    }

    #[test]
    fn write_operations_have_field_validation() {
        let body = v3_document("apis/apps/v1").unwrap();
        let patch = &body["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert!(patch["parameters"].to_string().contains("fieldValidation"));
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    }

    #[test]
    fn disabled_versions_are_left_out() {
        let index = v3_index(&crate::discovery::enabled_by_default);
        assert!(index["paths"]["apis/apps/v1"].is_object() && index["paths"]["version"].is_object());
        assert!(index["paths"]["apis/storage.k8s.io/v1beta1"].is_null());
        assert!(v3_document("apis/nope/v1").is_none());
    }
}
