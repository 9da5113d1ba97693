//! A client of registries by the distribution specification.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::sync::Mutex;

use super::{
    ImageError, ImageReference,
    manifest::{ACCEPTED, LARGEST_DOCUMENT},
    registry_auth::{AuthChallenge, parse_challenge},
    registry_hosts::RegistryHost,
};

/// Time for a server to begin its answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most redirects.
const MOST_REDIRECTS: usize = 10;
/// Files with the system's authorities.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Credentials for a registry.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RegistryCredentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
    /// A token that is sent as it is.
    pub registry_token: String,
    /// A token with which the token server gives out others.
    pub identity_token: String,
}

/// A server of a registry, for one repository.
pub struct RegistryClient {
    host: RegistryHost,
    reference: ImageReference,
    credentials: Option<RegistryCredentials>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authorization: Mutex<Option<String>>,
}

impl RegistryClient {
    /// A client of a server.
    pub fn new(
        host: RegistryHost,
        reference: &ImageReference,
        credentials: Option<RegistryCredentials>,
    ) -> Result<Self, ImageError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(PATIENCE));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(&host)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { host, reference: reference.clone(), credentials, client, authorization: Mutex::new(None) })
    }

    /// Fetches a manifest by tag or digest; returns its bytes.
    pub async fn manifest(&self, reference: &str) -> Result<Bytes, ImageError> {
        let response = self.get(&format!("manifests/{reference}"), &ACCEPTED.join(", "), 0).await?;
        let body =
            tokio::time::timeout(2 * PATIENCE, Limited::new(response.into_body(), LARGEST_DOCUMENT as usize).collect());
        match body.await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(_) => Err(self.failed(&"the server does not send the manifest")),
        }
    }

    /// Begins to fetch a blob from an offset on; whether the server follows the offset is in the status.
    pub async fn blob(&self, digest: &str, offset: u64) -> Result<Response<Incoming>, ImageError> {
        self.get(&format!("blobs/{digest}"), "*/*", offset).await
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> ImageError {
        ImageError::Registry(format!("{}: {why}", self.host.url))
    }

    async fn get(&self, path: &str, accept: &str, offset: u64) -> Result<Response<Incoming>, ImageError> {
        let query = if self.host.is_mirror { format!("?ns={}", self.reference.registry) } else { String::new() };
        let url = format!("{}/v2/{}/{path}{query}", self.host.url, self.reference.repository);
        let mut authorization = self.authorization.lock().await.clone();
        for attempt in 0..2 {
            let response = self.follow(&url, accept, offset, authorization.as_deref()).await?;
            match response.status() {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
                StatusCode::UNAUTHORIZED if attempt == 0 => {
                    authorization = Some(self.authorize(response.headers()).await?);
                    self.authorization.lock().await.clone_from(&authorization);
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let name = self.reference.to_string();
                    return Err(ImageError::Unauthorized(format!(
                        "pull access denied for {name}, repository does not exist or may require authorization: {}",
                        response.status()
                    )));
                }
                StatusCode::NOT_FOUND => return Err(ImageError::NotFound(self.reference.to_string())),
                status => return Err(self.failed(&format!("unexpected status {status}"))),
            }
        }
        Err(self.failed(&"the credentials are not accepted"))
    }

    /// Follows redirects; credentials stay with the server that they are for.
    async fn follow(
        &self,
        url: &str,
        accept: &str,
        offset: u64,
        authorization: Option<&str>,
    ) -> Result<Response<Incoming>, ImageError> {
        let mut uri: Uri = url.parse().map_err(|error| self.failed(&error))?;
        let home = uri.authority().cloned();
        for _ in 0..MOST_REDIRECTS {
            let mut request =
                Request::get(uri.clone()).header(header::ACCEPT, accept).header(header::USER_AGENT, "ferry");
            if offset > 0 {
                request = request.header(header::RANGE, format!("bytes={offset}-"));
            }
            if let Some(authorization) = authorization.filter(|_| uri.authority() == home.as_ref()) {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let request = request.body(Full::default()).map_err(|error| self.failed(&error))?;
            let response = match tokio::time::timeout(PATIENCE, self.client.request(request)).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(self.failed(&describe(&error))),
                Err(_) => return Err(self.failed(&format!("no answer within {} s", PATIENCE.as_secs()))),
            };
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            let location = location.ok_or_else(|| self.failed(&"a redirect without a location"))?;
            uri = resolve_location(&uri, location).ok_or_else(|| self.failed(&"a redirect to an invalid location"))?;
        }
        Err(self.failed(&"too many redirects"))
    }

    /// Gets what the server wants to see.
    async fn authorize(&self, headers: &HeaderMap) -> Result<String, ImageError> {
        if let Some(token) = self.credentials.as_ref().map(|all| &all.registry_token).filter(|token| !token.is_empty())
        {
            return Ok(format!("Bearer {token}"));
        }
        let challenges = headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenge = challenges.filter_map(parse_challenge).next();
        let basic = self
            .credentials
            .as_ref()
            .filter(|all| !all.username.is_empty())
            .map(|all| format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", all.username, all.password))));
        match challenge {
            Some(AuthChallenge::Basic) => {
                basic.ok_or_else(|| ImageError::Unauthorized(format!("{}: no basic auth credentials", self.reference)))
            }
            Some(AuthChallenge::Bearer { realm, service, scope }) => {
                let scope =
                    if scope.is_empty() { format!("repository:{}:pull", self.reference.repository) } else { scope };
                let query = form_urlencoded::Serializer::new(String::new())
                    .append_pair("service", &service)
                    .append_pair("scope", &scope)
                    .finish();
                if let Some(token) = self.identity_token() {
                    return self.exchange_token(&realm, &service, &scope, token).await;
                }
                let separator = if realm.contains('?') { '&' } else { '?' };
                let url = format!("{realm}{separator}{query}");
                self.fetch_token(&url, basic.as_deref()).await
            }
            None => {
                Err(ImageError::Unauthorized(format!("{}: the server's challenge is not understood", self.reference)))
            }
        }
    }

    async fn fetch_token(&self, url: &str, basic: Option<&str>) -> Result<String, ImageError> {
        let response = self.follow(url, "application/json", 0, basic).await?;
        self.read_token(response).await
    }

    fn identity_token(&self) -> Option<&str> {
        self.credentials.as_ref().map(|all| all.identity_token.as_str()).filter(|token| !token.is_empty())
    }

    /// Exchanges an identity token, which is OAuth 2's refresh token, for one that the registry takes.
    async fn exchange_token(&self, realm: &str, service: &str, scope: &str, token: &str) -> Result<String, ImageError> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("client_id", "ferry")
            .append_pair("service", service)
            .append_pair("scope", scope)
            .append_pair("refresh_token", token)
            .finish();
        let request = Request::post(realm)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::USER_AGENT, "ferry")
            .body(Full::from(form))
            .map_err(|error| self.failed(&error))?;
        match tokio::time::timeout(PATIENCE, self.client.request(request)).await {
            Ok(Ok(response)) => self.read_token(response).await,
            Ok(Err(error)) => Err(self.failed(&describe(&error))),
            Err(_) => Err(self.failed(&format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    async fn read_token(&self, response: Response<Incoming>) -> Result<String, ImageError> {
        if response.status() != StatusCode::OK {
            return Err(ImageError::Unauthorized(format!(
                "failed to authorize: failed to fetch token: unexpected status {}",
                response.status()
            )));
        }
        let body = Limited::new(response.into_body(), 1 << 20).collect().await.map_err(|error| self.failed(&error))?;
        let value: serde_json::Value = serde_json::from_slice(&body.to_bytes()).map_err(|error| self.failed(&error))?;
        let token = ["token", "access_token"].iter().find_map(|key| value.get(*key)?.as_str());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| self.failed(&"the token server sent no token"))
    }
}

fn describe(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}

fn resolve_location(from: &Uri, location: &str) -> Option<Uri> {
    if location.starts_with("http://") || location.starts_with("https://") {
        return location.parse().ok();
    }
    let path = if location.starts_with('/') { location.to_owned() } else { format!("/{location}") };
    format!("{}://{}{path}", from.scheme_str()?, from.authority()?).parse().ok()
}

fn tls_config(host: &RegistryHost) -> Result<rustls::ClientConfig, ImageError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ImageError::Registry(error.to_string()))?;
    let mut roots = rustls::RootCertStore::empty();
    if host.url.starts_with("https://") {
        let system = SYSTEM_AUTHORITIES.iter().find(|path| std::path::Path::new(path).exists());
        for path in system.copied().into_iter().chain(host.authorities.iter().map(String::as_str)) {
            let certificates = CertificateDer::pem_file_iter(path)
                .map_err(|error| ImageError::Registry(format!("{path}: {error}")))?;
            roots.add_parsable_certificates(certificates.flatten());
        }
    }
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(if host.skips_verification { (*transport::without_verification(&config)).clone() } else { config })
}
