//! Static pods from a URL that serves a pod or a list of pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::{
    SourceReading,
    manifest::{ManifestError, ManifestOrigin, decode_manifest},
};
use crate::settings::StaticPodSettings;

/// Name of the source, in the annotation of its pods.
pub const SOURCE: &str = "http";

/// The pods could not be fetched.
#[derive(Debug, thiserror::Error)]
enum UrlError {
    #[error(transparent)]
    Address(#[from] http::uri::InvalidUri),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Fetch(#[from] Box<kube::Error>),
    #[error("zero-length data received")]
    Empty,
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl From<kube::Error> for UrlError {
    fn from(error: kube::Error) -> Self {
        Self::Fetch(Box::new(error))
    }
}

/// Fetches the URL now and at an interval; after an error the pods stay as they are.
pub async fn follow_url(settings: &StaticPodSettings, node_name: &str, readings: mpsc::Sender<SourceReading>) {
    let Some(url) = &settings.url else { return };
    loop {
        match fetch_pods(url, &settings.url_headers, node_name).await {
            Ok(pods) => {
                let pods = pods.into_iter().map(Arc::new).collect();
                if readings.send(SourceReading { source: SOURCE, pods }).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(url, %error, "kubelet: static pods not read, retrying"),
        }
        tokio::time::sleep(settings.http_check_interval).await;
    }
}

async fn fetch_pods(url: &str, headers: &[(String, String)], node_name: &str) -> Result<Vec<Pod>, UrlError> {
    let uri: http::Uri = url.parse()?;
    let mut request = http::Request::get(uri.path_and_query().map_or("/", |path| path.as_str()));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let client = kube::Client::try_from(kube::Config::new(uri))?;
    let body = client.request_text(request.body(Vec::new())?).await?;
    if body.is_empty() {
        return Err(UrlError::Empty);
    }
    let origin = ManifestOrigin { source: SOURCE, location: url, node_name, seen: jiff::Timestamp::now() };
    Ok(decode_manifest(body.as_bytes(), origin)?)
}
