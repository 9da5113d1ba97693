//! A read-only image registry on loopback, for images that were loaded by hand.
//!
//! The runtime asks it before the registry that an image name points to, so that `imagePullPolicy: Always` works for a
//! loaded image with no registry in reach, and everything else is pulled as usual: what is not there is a plain 404.

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

type Body = BoxBody<Bytes, std::io::Error>;

/// Where OCI says that an entry of `index.json` carries its name.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Manifests are read into memory; the distribution specification suggests this limit.
const MAX_MANIFEST: u64 = 4 << 20;

/// Serves the OCI image layout in `dir` (which need not exist yet, and may change) until `shutdown`.
///
/// `index.json` names images by the annotation `org.opencontainers.image.ref.name`, with the whole reference, for example
/// `docker.io/library/nginx:latest`; the runtime tells the registry's host in the query `ns=docker.io`.
pub async fn serve(listener: TcpListener, dir: PathBuf, shutdown: CancellationToken) {
    let layout = Arc::new(Layout { dir });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, layout.clone(), shutdown.clone()));
            }
            // Out of descriptors, most likely: the next connection can wait a moment.
            Err(error) => {
                tracing::warn!(%error, "the image mirror cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, layout: Arc<Layout>, shutdown: CancellationToken) {
    let service = hyper::service::service_fn(move |request| {
        let layout = layout.clone();
        async move { Ok::<_, Infallible>(answer(&layout, &request).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        result = serving => if let Err(error) = result {
            tracing::debug!(%error, "a connection to the image mirror broke off");
        },
        () = shutdown.cancelled() => {}
    }
}

/// What one request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    Version,
    Manifest { name: &'a str, reference: &'a str },
    Blob { digest: &'a str },
}

fn parse(path: &str) -> Option<Asked<'_>> {
    let rest = path.strip_prefix("/v2")?;
    if rest.is_empty() || rest == "/" {
        return Some(Asked::Version);
    }
    let rest = rest.strip_prefix('/')?;
    if let Some((name, digest)) = rest.rsplit_once("/blobs/") {
        return (!name.is_empty()).then_some(Asked::Blob { digest });
    }
    let (name, reference) = rest.rsplit_once("/manifests/")?;
    (!name.is_empty()).then_some(Asked::Manifest { name, reference })
}

async fn answer(layout: &Layout, request: &Request<Incoming>) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return error(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "this registry is read-only");
    }
    let found = match parse(request.uri().path()) {
        Some(Asked::Version) => return Response::new(full("{}")),
        Some(Asked::Manifest { name, reference }) => {
            layout.manifest(registry(request.uri().query()), name, reference).await
        }
        Some(Asked::Blob { digest }) => layout.blob(digest).await,
        None => return error(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "no such resource"),
    };
    match found {
        Ok(found) => found.respond(request.method() == Method::HEAD),
        Err(missing) => error(StatusCode::NOT_FOUND, missing.code(), &missing.to_string()),
    }
}

/// The registry that the image name points to.
fn registry(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix("ns=")).filter(|ns| !ns.is_empty())
}

/// Why something is not served.
#[derive(Debug, thiserror::Error)]
enum Missing {
    #[error("manifest unknown: {0}")]
    Manifest(String),
    #[error("blob unknown: {0}")]
    Blob(String),
    #[error("{0:?} is not a digest of the form sha256:<64 hexadecimal digits>")]
    Digest(String),
}

impl Missing {
    fn code(&self) -> &'static str {
        match self {
            Missing::Manifest(_) => "MANIFEST_UNKNOWN",
            Missing::Blob(_) => "BLOB_UNKNOWN",
            Missing::Digest(_) => "DIGEST_INVALID",
        }
    }
}

/// A file to send.
struct Found {
    digest: String,
    media_type: String,
    length: u64,
    file: tokio::fs::File,
}

impl Found {
    fn respond(self, head: bool) -> Response<Body> {
        let body = match head {
            true => full(""),
            false => StreamBody::new(ReaderStream::with_capacity(self.file, 64 << 10).map_ok(Frame::data)).boxed(),
        };
        let response = Response::builder()
            .header(header::CONTENT_TYPE, self.media_type)
            .header(header::CONTENT_LENGTH, self.length)
            .header("Docker-Content-Digest", self.digest)
            .body(body);
        response.unwrap_or_else(|_| error(StatusCode::NOT_FOUND, "MANIFEST_INVALID", "its media type is not valid"))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    media_type: Option<String>,
    #[serde(default)]
    annotations: std::collections::HashMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

/// What tells an index from a manifest when it does not say so itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
}

struct Layout {
    dir: PathBuf,
}

impl Layout {
    async fn manifest(&self, registry: Option<&str>, name: &str, reference: &str) -> Result<Found, Missing> {
        let repository = registry.map_or_else(|| name.to_string(), |registry| format!("{registry}/{name}"));
        let missing = || Missing::Manifest(format!("{repository} {reference}"));
        if reference.contains(':') {
            return self.manifest_blob(reference).await.map_err(|_| missing());
        }
        let wanted = format!("{repository}:{reference}");
        let index = self.index().await;
        let named = index.manifests.iter().find(|entry| entry.annotations.get(REF_NAME) == Some(&wanted));
        let entry = named.ok_or_else(missing)?;
        let found = self.manifest_blob(&entry.digest).await?;
        Ok(Found { media_type: entry.media_type.clone().unwrap_or(found.media_type.clone()), ..found })
    }

    /// The names; a layout that is not there, or is being written, has none.
    async fn index(&self) -> Index {
        let Ok(bytes) = tokio::fs::read(self.dir.join("index.json")).await else { return Index::default() };
        serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, dir = %self.dir.display(), "the image layout's index.json cannot be read");
            Index::default()
        })
    }

    async fn manifest_blob(&self, digest: &str) -> Result<Found, Missing> {
        let found = self.blob(digest).await?;
        if found.length > MAX_MANIFEST {
            return Err(Missing::Manifest(digest.into()));
        }
        let bytes = tokio::fs::read(self.path(digest)?).await.map_err(|_| Missing::Manifest(digest.into()))?;
        let kind: Kind = serde_json::from_slice(&bytes).map_err(|_| Missing::Manifest(digest.into()))?;
        let default = if kind.manifests.is_some() { OCI_INDEX } else { OCI_MANIFEST };
        Ok(Found { media_type: kind.media_type.unwrap_or_else(|| default.into()), ..found })
    }

    async fn blob(&self, digest: &str) -> Result<Found, Missing> {
        let missing = || Missing::Blob(digest.into());
        let file = tokio::fs::File::open(self.path(digest)?).await.map_err(|_| missing())?;
        let length = file.metadata().await.map_err(|_| missing())?.len();
        Ok(Found { digest: digest.into(), media_type: "application/octet-stream".into(), length, file })
    }

    /// The file of a digest; only a valid digest becomes part of a path.
    fn path(&self, digest: &str) -> Result<PathBuf, Missing> {
        let is_hex = |hex: &&str| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let hex = digest.strip_prefix("sha256:").filter(is_hex).ok_or_else(|| Missing::Digest(digest.into()))?;
        Ok(self.dir.join("blobs/sha256").join(hex))
    }
}

fn full(text: &str) -> Body {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed()
}

/// An error as the distribution specification writes it.
fn error(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let body = serde_json::json!({ "errors": [{ "code": code, "message": message }] }).to_string();
    let mut response = Response::new(full(&body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
