//! Cached discovery and OpenAPI documents of aggregated servers.
//!
//! Documents are fetched after each successful availability check, with ETags. OpenAPI documents of an unavailable
//! server are kept; its resources are reported as stale.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api::{Map, Value, meta};
use apiserver_core::{Body, User, body::full_body, services::ServiceResolver};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::json;

use super::{
    ApiService, check, identity, legacy,
    remote::{self, AggregatedServer},
    swagger,
};

/// `Accept` header of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// Timeout of discovery requests.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of OpenAPI requests.
const OPENAPI_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a document in bytes.
const MAX_DOCUMENT: usize = 64 << 20;

/// The documents of one API service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiServiceDocuments {
    /// Its entry in aggregated discovery; `None` if it is not known.
    pub resources: Option<Value>,
    /// The part of its OpenAPI v2 document for the group-version.
    pub swagger: Option<Arc<Value>>,
    /// The ETag of the OpenAPI v2 document.
    etag: Option<HeaderValue>,
    /// Its entries of the OpenAPI v3 index.
    pub openapi_paths: Map,
}

/// The documents of all aggregated servers, by `APIService` name.
#[derive(Default)]
pub struct DiscoveryCache {
    documents: Mutex<HashMap<String, Arc<ApiServiceDocuments>>>,
    generation: AtomicU64,
}

impl DiscoveryCache {
    /// A counter of changes.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The cached documents of an API service.
    pub fn get_documents(&self, name: &str) -> Option<Arc<ApiServiceDocuments>> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Stores the documents of an API service.
    pub fn set_documents(&self, name: &str, words: ApiServiceDocuments) {
        let mut known = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(name).is_none_or(|known| **known != words) {
            known.insert(name.to_owned(), Arc::new(words));
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Stores the resources of an API service, `None` if it is unavailable; returns its documents.
    pub fn set_resources(&self, name: &str, resources: Option<Value>) -> ApiServiceDocuments {
        let before = self.get_documents(name).map(|words| (*words).clone()).unwrap_or_default();
        let words = ApiServiceDocuments { resources, ..before };
        self.set_documents(name, words.clone());
        words
    }

    /// Removes an API service.
    pub fn remove_service(&self, name: &str) {
        if self.documents.lock().unwrap_or_else(PoisonError::into_inner).remove(name).is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Fetches the documents of an API service.
pub struct DiscoveryClient<'a> {
    /// Resolves service endpoints.
    pub services: &'a ServiceResolver,
    /// The version.
    pub api: &'a ApiService,
    /// The server.
    pub remote: &'a AggregatedServer,
}

type FetchedResponse = (StatusCode, HeaderMap, Bytes);

impl DiscoveryClient<'_> {
    /// Fetches the OpenAPI documents.
    pub async fn fetch_openapi(&self, before: &ApiServiceDocuments) -> ApiServiceDocuments {
        let (swagger, documents) = tokio::join!(self.fetch_swagger(before), self.fetch_openapi_v3_index(before));
        let (swagger, tag) = swagger.unzip();
        ApiServiceDocuments {
            resources: before.resources.clone(),
            swagger,
            etag: tag.flatten(),
            openapi_paths: documents,
        }
    }

    /// Fetches the resources from aggregated discovery, else from the legacy resource list.
    pub async fn fetch_resources(&self) -> Option<Value> {
        let (code, headers, body) =
            self.send_get("/apis", AGGREGATED, None, &check::aggregator_user(), DISCOVERY_TIMEOUT).await?;
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if code == StatusCode::OK && content_type.contains("as=APIGroupDiscoveryList") {
            let list: Value = serde_json::from_slice(&body).ok()?;
            let group = meta::list_at(&list, &["items"]).iter().find(|group| meta::name(group) == self.api.group);
            let versions = group.map_or(&[][..], |group| meta::list_at(group, &["versions"]));
            let found = versions.iter().find(|version| version["version"] == self.api.version.as_str()).cloned();
            return Some(legacy::complete_entry(found.unwrap_or_else(|| json!({"version": self.api.version}))));
        }
        let (code, _, body) = self
            .send_get(
                &self.api.group_version_path(),
                "application/json",
                None,
                &check::aggregator_user(),
                DISCOVERY_TIMEOUT,
            )
            .await?;
        let list: Value = serde_json::from_slice(&body).ok()?;
        (code == StatusCode::OK).then(|| legacy::version_entry(&self.api.version, meta::list_at(&list, &["resources"])))
    }

    /// Fetches the OpenAPI v2 document; keeps the cached one on failure.
    async fn fetch_swagger(&self, before: &ApiServiceDocuments) -> Option<(Arc<Value>, Option<HeaderValue>)> {
        let known = before.swagger.clone().map(|swagger| (swagger, before.etag.clone()));
        let tag = known.as_ref().and_then(|(_, tag)| tag.as_ref());
        match self.send_get("/openapi/v2", "application/json", tag, &openapi_user(), OPENAPI_TIMEOUT).await {
            Some((StatusCode::OK, headers, body)) => {
                let document: Value = serde_json::from_slice(&body).ok()?;
                let filtered = swagger::filter_by_prefix(document, &format!("{}/", self.api.group_version_path()));
                Some((Arc::new(filtered), headers.get(header::ETAG).cloned()))
            }
            Some((StatusCode::NOT_FOUND, ..)) => None,
            _ => known,
        }
    }

    /// Fetches the OpenAPI v3 index entries of the group and version; keeps the cached ones on failure.
    async fn fetch_openapi_v3_index(&self, before: &ApiServiceDocuments) -> Map {
        let known = || before.openapi_paths.clone();
        match self.send_get("/openapi/v3", "application/json", None, &openapi_user(), OPENAPI_TIMEOUT).await {
            Some((StatusCode::OK, _, body)) => {
                let Ok(index) = serde_json::from_slice::<Value>(&body) else { return known() };
                let about = [self.api.openapi_document(), self.api.group_document()];
                let paths = index["paths"].as_object().into_iter().flatten();
                let ours = paths.filter(|(path, _)| about.contains(path));
                ours.map(|(path, entry)| (path.clone(), entry.clone())).collect()
            }
            Some((StatusCode::NOT_FOUND, ..)) => Map::new(),
            _ => known(),
        }
    }

    async fn send_get(
        &self,
        path: &str,
        accept: &'static str,
        tag: Option<&HeaderValue>,
        user: &User,
        limit: Duration,
    ) -> Option<FetchedResponse> {
        let exchange = async {
            let client = self.remote.client.as_ref().ok()?;
            let mut request: Request<Body> = Request::new(full_body(""));
            *request.uri_mut() =
                remote::build_url(&self.remote.resolve_authority(self.services).await.ok()?, path).ok()?;
            let headers = request.headers_mut();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            tag.map(|tag| headers.insert(header::IF_NONE_MATCH, tag.clone()));
            identity::set_user_headers(headers, user);
            let answer = client.send_request(request).await;
            let failed =
                |error| tracing::debug!(api = self.api.name, path, %error, "aggregator: document request failed");
            let (head, body) = answer.map_err(failed).ok()?.into_parts();
            let body = Limited::new(body, MAX_DOCUMENT).collect().await.ok()?.to_bytes();
            Some((head.status, head.headers, body))
        };
        tokio::time::timeout(limit, exchange).await.ok()?
    }
}

/// The user of OpenAPI requests.
fn openapi_user() -> User {
    User { name: "system:aggregator".into(), ..User::default() }
}
