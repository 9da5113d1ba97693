//! A read-only registry on loopback for images that were loaded by hand.
//!
//! The runtime consults it before the image's own registry, so that `imagePullPolicy: Always` works for loaded images
//! without network. For anything else it returns 404 and the runtime pulls as usual.

use std::{convert::Infallible, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::{io::ReaderStream, sync::CancellationToken};
use transport::query::Query;

type Body = BoxBody<Bytes, std::io::Error>;

/// OCI annotation with an image's name in `index.json`.
const REF_NAME_ANNOTATION: &str = "org.opencontainers.image.ref.name";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Maximum manifest size, as the distribution specification suggests.
const MAX_MANIFEST_SIZE: u64 = 4 << 20;

/// Serves the OCI image layout in `dir` (which may appear or change later) until `shutdown`.
///
/// `index.json` names images by the annotation `org.opencontainers.image.ref.name` with the full reference, for example
/// `docker.io/library/nginx:latest`; the runtime passes the registry host in the query `ns=docker.io`.
pub async fn serve_mirror(listener: TcpListener, dir: PathBuf, shutdown: CancellationToken) {
    let layout = Arc::new(ImageLayout { dir });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, layout.clone(), shutdown.clone()));
            }
            // Probably out of file descriptors; retry shortly.
            Err(error) => {
                tracing::warn!(%error, "image mirror: accept failed, retrying");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(stream: tokio::net::TcpStream, layout: Arc<ImageLayout>, shutdown: CancellationToken) {
    let service = hyper::service::service_fn(move |request| {
        let layout = layout.clone();
        async move { Ok::<_, Infallible>(handle_request(&layout, &request).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        result = serving => if let Err(error) = result {
            tracing::debug!(%error, "image mirror: connection failed");
        },
        () = shutdown.cancelled() => {}
    }
}

/// A registry request.
#[derive(Debug, PartialEq, Eq)]
enum RegistryRequest<'a> {
    Version,
    Manifest { name: &'a str, reference: &'a str },
    Blob { digest: &'a str },
}

fn parse_request_path(path: &str) -> Option<RegistryRequest<'_>> {
    let rest = path.strip_prefix("/v2")?;
    if rest.is_empty() || rest == "/" {
        return Some(RegistryRequest::Version);
    }
    let rest = rest.strip_prefix('/')?;
    if let Some((name, digest)) = rest.rsplit_once("/blobs/") {
        return (!name.is_empty()).then_some(RegistryRequest::Blob { digest });
    }
    let (name, reference) = rest.rsplit_once("/manifests/")?;
    (!name.is_empty()).then_some(RegistryRequest::Manifest { name, reference })
}

async fn handle_request(layout: &ImageLayout, request: &Request<Incoming>) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return error_response(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "this registry is read-only");
    }
    let found = match parse_request_path(request.uri().path()) {
        Some(RegistryRequest::Version) => return Response::new(full_body("{}")),
        Some(RegistryRequest::Manifest { name, reference }) => {
            layout.find_manifest(registry_namespace(request.uri().query()).as_deref(), name, reference).await
        }
        Some(RegistryRequest::Blob { digest }) => layout.open_blob(digest).await,
        None => return error_response(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "no such resource"),
    };
    match found {
        Ok(found) => found.into_response(request.method() == Method::HEAD),
        Err(missing) => error_response(StatusCode::NOT_FOUND, missing.error_code(), &missing.to_string()),
    }
}

/// Returns the registry host from the query.
fn registry_namespace(query: Option<&str>) -> Option<String> {
    Query::parse(query?).get("ns").map(str::to_owned)
}

/// A manifest or blob is not available.
#[derive(Debug, thiserror::Error)]
enum RegistryError {
    #[error("manifest unknown: {0}")]
    Manifest(String),
    #[error("blob unknown: {0}")]
    Blob(String),
    #[error("{0:?} is not a digest of the form sha256:<64 hexadecimal digits>")]
    Digest(String),
}

impl RegistryError {
    fn error_code(&self) -> &'static str {
        match self {
            RegistryError::Manifest(_) => "MANIFEST_UNKNOWN",
            RegistryError::Blob(_) => "BLOB_UNKNOWN",
            RegistryError::Digest(_) => "DIGEST_INVALID",
        }
    }
}

/// A blob to send.
struct BlobResponse {
    digest: String,
    media_type: String,
    length: u64,
    file: tokio::fs::File,
}

impl BlobResponse {
    fn into_response(self, head: bool) -> Response<Body> {
        let body = match head {
            true => full_body(""),
            false => StreamBody::new(ReaderStream::with_capacity(self.file, 64 << 10).map_ok(Frame::data)).boxed(),
        };
        let response = Response::builder()
            .header(header::CONTENT_TYPE, self.media_type)
            .header(header::CONTENT_LENGTH, self.length)
            .header("Docker-Content-Digest", self.digest)
            .body(body);
        response.unwrap_or_else(|_| {
            error_response(StatusCode::NOT_FOUND, "MANIFEST_INVALID", "its media type is not valid")
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciDescriptor {
    digest: String,
    media_type: Option<String>,
    #[serde(default)]
    annotations: std::collections::HashMap<String, String>,
}

#[derive(Default, Deserialize)]
struct OciIndex {
    #[serde(default)]
    manifests: Vec<OciDescriptor>,
}

/// Distinguishes an index from a manifest without media type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestKind {
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
}

struct ImageLayout {
    dir: PathBuf,
}

impl ImageLayout {
    async fn find_manifest(
        &self,
        registry: Option<&str>,
        name: &str,
        reference: &str,
    ) -> Result<BlobResponse, RegistryError> {
        let repository = registry.map_or_else(|| name.to_string(), |registry| format!("{registry}/{name}"));
        let missing = || RegistryError::Manifest(format!("{repository} {reference}"));
        if reference.contains(':') {
            return self.manifest_blob(reference).await.map_err(|_| missing());
        }
        let wanted = format!("{repository}:{reference}");
        let index = self.read_index().await;
        let named = index.manifests.iter().find(|entry| entry.annotations.get(REF_NAME_ANNOTATION) == Some(&wanted));
        let entry = named.ok_or_else(missing)?;
        let found = self.manifest_blob(&entry.digest).await?;
        Ok(BlobResponse { media_type: entry.media_type.clone().unwrap_or(found.media_type.clone()), ..found })
    }

    /// Reads the index; an absent or incomplete layout is empty.
    async fn read_index(&self) -> OciIndex {
        let Ok(bytes) = tokio::fs::read(self.dir.join("index.json")).await else { return OciIndex::default() };
        serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, dir = %self.dir.display(), "image mirror: index.json is invalid, serving no images");
            OciIndex::default()
        })
    }

    async fn manifest_blob(&self, digest: &str) -> Result<BlobResponse, RegistryError> {
        let found = self.open_blob(digest).await?;
        if found.length > MAX_MANIFEST_SIZE {
            return Err(RegistryError::Manifest(digest.into()));
        }
        let bytes =
            tokio::fs::read(self.blob_path(digest)?).await.map_err(|_| RegistryError::Manifest(digest.into()))?;
        let kind: ManifestKind = serde_json::from_slice(&bytes).map_err(|_| RegistryError::Manifest(digest.into()))?;
        let default = if kind.manifests.is_some() { OCI_INDEX } else { OCI_MANIFEST };
        Ok(BlobResponse { media_type: kind.media_type.unwrap_or_else(|| default.into()), ..found })
    }

    async fn open_blob(&self, digest: &str) -> Result<BlobResponse, RegistryError> {
        let missing = || RegistryError::Blob(digest.into());
        let file = tokio::fs::File::open(self.blob_path(digest)?).await.map_err(|_| missing())?;
        let length = file.metadata().await.map_err(|_| missing())?.len();
        Ok(BlobResponse { digest: digest.into(), media_type: "application/octet-stream".into(), length, file })
    }

    /// Returns the path of a blob; only a valid digest becomes part of a path.
    fn blob_path(&self, digest: &str) -> Result<PathBuf, RegistryError> {
        let is_hex = |hex: &&str| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let hex = digest.strip_prefix("sha256:").filter(is_hex).ok_or_else(|| RegistryError::Digest(digest.into()))?;
        Ok(self.dir.join("blobs/sha256").join(hex))
    }
}

fn full_body(text: &str) -> Body {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed()
}

/// Builds an error response as in the distribution specification.
fn error_response(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let body = serde_json::json!({ "errors": [{ "code": code, "message": message }] }).to_string();
    let mut response = Response::new(full_body(&body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
