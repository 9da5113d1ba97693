//! What aggregated servers say of their API, kept: clients are told of it without anybody being asked.
//!
//! It is asked for whenever a server was found to be there, with the tags of what is known, so that an answer is mostly that
//! nothing changed. What a server said of OpenAPI stays while it is away; its resources are then not told, and stale.

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

use super::{Api, check, identity, legacy, proxy, remote::{self, Remote}, swagger};

/// Everything at once, in either version.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// How long an answer about resources may take.
const QUICK: Duration = Duration::from_secs(5);
/// How long an answer about OpenAPI may take.
const SLOW: Duration = Duration::from_secs(60);
/// The largest answer that is read.
const MOST: usize = 64 << 20;

/// What one server says of one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiServiceDocuments {
    /// Its entry in aggregated discovery; `None`: it did not say.
    pub resources: Option<Value>,
    /// Its document of OpenAPI 2: what is about the version.
    pub swagger: Option<Arc<Value>>,
    /// The tag of that document.
    tag: Option<HeaderValue>,
    /// Where its documents of OpenAPI 3 are.
    pub documents: Map,
}

/// What all servers say, by the name of their API service.
#[derive(Default)]
pub struct DiscoveryCache {
    words: Mutex<HashMap<String, Arc<ApiServiceDocuments>>>,
    generation: AtomicU64,
}

impl DiscoveryCache {
    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What is known of one.
    pub fn of(&self, name: &str) -> Option<Arc<ApiServiceDocuments>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Notes what one says.
    pub fn note(&self, name: &str, words: ApiServiceDocuments) {
        let mut known = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(name).is_none_or(|known| **known != words) {
            known.insert(name.to_owned(), Arc::new(words));
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes which resources one has; `None`: it is away.
    pub fn resources(&self, name: &str, resources: Option<Value>) -> ApiServiceDocuments {
        let before = self.of(name).map(|words| (*words).clone()).unwrap_or_default();
        let words = ApiServiceDocuments { resources, ..before };
        self.note(name, words.clone());
        words
    }

    /// Forgets one.
    pub fn forget(&self, name: &str) {
        if self.words.lock().unwrap_or_else(PoisonError::into_inner).remove(name).is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// A server that is asked about a version.
pub struct Asked<'a> {
    /// Where services lead.
    pub services: &'a ServiceResolver,
    /// The version.
    pub api: &'a Api,
    /// The server.
    pub remote: &'a Remote,
}

type Answer = (StatusCode, HeaderMap, Bytes);

impl Asked<'_> {
    /// The same, with what it says of OpenAPI now.
    pub async fn described(&self, before: &ApiServiceDocuments) -> ApiServiceDocuments {
        let (swagger, documents) = tokio::join!(self.swagger(before), self.documents(before));
        let (swagger, tag) = swagger.unzip();
        ApiServiceDocuments { resources: before.resources.clone(), swagger, tag: tag.flatten(), documents }
    }

    /// Its resources, from the document about everything, else from the one about the version.
    pub async fn resources(&self) -> Option<Value> {
        let (code, headers, body) = self.get("/apis", AGGREGATED, None, &check::aggregator(), QUICK).await?;
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if code == StatusCode::OK && content_type.contains("as=APIGroupDiscoveryList") {
            let list: Value = serde_json::from_slice(&body).ok()?;
            let group = meta::list_at(&list, &["items"]).iter().find(|group| meta::name(group) == self.api.group);
            let versions = group.map_or(&[][..], |group| meta::list_at(group, &["versions"]));
            let found = versions.iter().find(|version| version["version"] == self.api.version.as_str()).cloned();
            return Some(legacy::completed(found.unwrap_or_else(|| json!({"version": self.api.version}))));
        }
        let (code, _, body) = self.get(&self.api.path(), "application/json", None, &check::aggregator(), QUICK).await?;
        let list: Value = serde_json::from_slice(&body).ok()?;
        (code == StatusCode::OK).then(|| legacy::version(&self.api.version, meta::list_at(&list, &["resources"])))
    }

    /// Its document of OpenAPI 2, or the one that is known.
    async fn swagger(&self, before: &ApiServiceDocuments) -> Option<(Arc<Value>, Option<HeaderValue>)> {
        let known = before.swagger.clone().map(|swagger| (swagger, before.tag.clone()));
        let tag = known.as_ref().and_then(|(_, tag)| tag.as_ref());
        match self.get("/openapi/v2", "application/json", tag, &describer(), SLOW).await {
            Some((StatusCode::OK, headers, body)) => {
                let document: Value = serde_json::from_slice(&body).ok()?;
                let filtered = swagger::about(document, &format!("{}/", self.api.path()));
                Some((Arc::new(filtered), headers.get(header::ETAG).cloned()))
            }
            Some((StatusCode::NOT_FOUND, ..)) => None,
            _ => known,
        }
    }

    /// Where its documents of OpenAPI 3 about the version and its group are, or where they were.
    async fn documents(&self, before: &ApiServiceDocuments) -> Map {
        let known = || before.documents.clone();
        match self.get("/openapi/v3", "application/json", None, &describer(), SLOW).await {
            Some((StatusCode::OK, _, body)) => {
                let Ok(index) = serde_json::from_slice::<Value>(&body) else { return known() };
                let about = [self.api.document(), self.api.group_document()];
                let paths = index["paths"].as_object().into_iter().flatten();
                let ours = paths.filter(|(path, _)| about.contains(path));
                ours.map(|(path, entry)| (path.clone(), entry.clone())).collect()
            }
            Some((StatusCode::NOT_FOUND, ..)) => Map::new(),
            _ => known(),
        }
    }

    async fn get(
        &self,
        path: &str,
        accept: &'static str,
        tag: Option<&HeaderValue>,
        user: &User,
        limit: Duration,
    ) -> Option<Answer> {
        let exchange = async {
            let client = self.remote.client.as_ref().ok()?;
            let mut request: Request<Body> = Request::new(full_body(""));
            *request.uri_mut() = remote::url(&self.remote.resolve(self.services).await.ok()?, path).ok()?;
            let headers = request.headers_mut();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            tag.map(|tag| headers.insert(header::IF_NONE_MATCH, tag.clone()));
            identity::tell(headers, user);
            let answer = client.request(request).await;
            let failed =
                |error| tracing::debug!(api = self.api.name, path, why = proxy::why(&error), "cannot be asked");
            let (head, body) = answer.map_err(failed).ok()?.into_parts();
            let body = Limited::new(body, MOST).collect().await.ok()?.to_bytes();
            Some((head.status, head.headers, body))
        };
        tokio::time::timeout(limit, exchange).await.ok()?
    }
}

/// Who this server is when it asks for descriptions, which everybody may read.
fn describer() -> User {
    User { name: "system:aggregator".into(), ..User::default() }
}
