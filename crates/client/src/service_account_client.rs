//! Clients that act as a service account of `kube-system`, with tokens from TokenRequest.
//!
//! The controller manager uses one per controller (`--use-service-account-credentials`), so that each has the
//! permissions of its own role only.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header::AUTHORIZATION};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams, client::Body};
use tokio::sync::Mutex;
use tower::BoxError;

use crate::errors::ApiErrorExt;

/// Namespace of the controllers' service accounts.
const NAMESPACE: &str = "kube-system";
/// Requested validity of a token.
const TOKEN_SECONDS: i64 = 3600;
/// Share of the validity after which a token is requested anew.
const RENEW_AFTER: f64 = 0.8;

/// A token and the time from which a new one is requested.
struct CachedToken {
    header: HeaderValue,
    renew_at: Timestamp,
}

/// Requests and caches the tokens of one service account.
struct TokenSource {
    /// Client of the component, which may create service accounts and tokens.
    creator: Client,
    account: &'static str,
    cached: Mutex<Option<CachedToken>>,
}

/// Returns a client that acts as the service account `account` of `kube-system`.
///
/// `anonymous` reaches the same server without credentials; `creator` requests the tokens and creates the service
/// account if it does not exist. A dropped or expired token is replaced.
pub fn service_account_client(creator: Client, anonymous: Client, account: &'static str) -> Client {
    let source = Arc::new(TokenSource { creator, account, cached: Mutex::new(None) });
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let (source, client) = (source.clone(), anonymous.clone());
        async move {
            let header = source.authorization().await?;
            request.headers_mut().insert(AUTHORIZATION, header.clone());
            let response = client.send(request).await?;
            if response.status() == http::StatusCode::UNAUTHORIZED {
                source.forget(&header).await;
            }
            Ok::<_, BoxError>(response)
        }
    });
    Client::new(service, "default")
}

impl TokenSource {
    /// The `Authorization` header of a valid token.
    async fn authorization(&self) -> Result<HeaderValue, kube::Error> {
        let mut cached = self.cached.lock().await;
        if let Some(token) = cached.as_ref().filter(|token| Timestamp::now() < token.renew_at) {
            return Ok(token.header.clone());
        }
        let token = self.request_token().await?;
        let header = token.header.clone();
        *cached = Some(token);
        Ok(header)
    }

    /// Drops a token that the server refused.
    async fn forget(&self, header: &HeaderValue) {
        let mut cached = self.cached.lock().await;
        if cached.as_ref().is_some_and(|token| token.header == header) {
            *cached = None;
        }
    }

    async fn request_token(&self) -> Result<CachedToken, kube::Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.creator.clone(), NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..Default::default() }),
            ..Default::default()
        };
        let created = match accounts.create_token_request(self.account, &PostParams::default(), &request).await {
            Err(error) if error.is_not_found() => {
                self.create_account(&accounts).await?;
                accounts.create_token_request(self.account, &PostParams::default(), &request).await?
            }
            created => created?,
        };
        let status = created.status.unwrap_or_default();
        let now = Timestamp::now();
        let expires = status.expiration_timestamp.map_or(now, |time| time.0);
        let valid = Duration::try_from(expires.duration_since(now)).unwrap_or_default();
        let header = HeaderValue::try_from(format!("Bearer {}", status.token.unwrap_or_default()))
            .map_err(|error| kube::Error::HttpError(error.into()))?;
        Ok(CachedToken { header, renew_at: now.saturating_add(valid.mul_f64(RENEW_AFTER)).unwrap_or(now) })
    }

    async fn create_account(&self, accounts: &Api<ServiceAccount>) -> Result<(), kube::Error> {
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(self.account.into()),
                namespace: Some(NAMESPACE.into()),
                ..Default::default()
            },
            ..Default::default()
        };
        match accounts.create(&PostParams::default(), &account).await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }
}
