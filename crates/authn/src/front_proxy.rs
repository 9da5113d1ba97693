//! Front proxies: a client with a front-proxy certificate names the user in headers.

use apiserver_core::User;
use async_trait::async_trait;
use http::{HeaderMap, HeaderName};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{
    AuthenticationConfig, AuthenticationErrors, AuthenticationRequest, AuthenticationResponse, AuthenticationResult,
    CaBundle, RequestAuthenticator, extra_headers, peer::PresentedCertificate,
};

/// The default headers; later stages never see them.
const STANDARD_HEADERS: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const STANDARD_EXTRA_PREFIX: &str = "x-remote-extra-";

/// The names of front-proxy headers.
#[derive(Clone, Debug, Default)]
pub struct ProxyHeaders {
    user: Vec<String>,
    uid: Vec<String>,
    groups: Vec<String>,
    extra: Vec<String>,
}

impl ProxyHeaders {
    /// Reads the names from the configuration.
    pub fn from_config(config: &AuthenticationConfig) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        Self {
            user: lower(&config.user_headers),
            uid: lower(&config.uid_headers),
            groups: lower(&config.group_headers),
            extra: lower(&config.extra_prefixes),
        }
    }

    /// Removes the default and the configured headers.
    pub fn strip_headers(&self, headers: &mut HeaderMap) {
        // Most requests have none of them.
        if !headers.keys().any(|name| self.is_proxy_header(name.as_str())) {
            return;
        }
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| self.is_proxy_header(name.as_str())).cloned().collect();
        names.into_iter().for_each(|name| drop(headers.remove(name)));
    }

    fn is_proxy_header(&self, name: &str) -> bool {
        let matches = |one: &String| one == name;
        STANDARD_HEADERS.contains(&name)
            || name.starts_with(STANDARD_EXTRA_PREFIX)
            || self.user.iter().any(matches)
            || self.uid.iter().any(matches)
            || self.groups.iter().any(matches)
            || self.extra.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    fn read_user(&self, headers: &HeaderMap) -> Option<User> {
        let name = first_value(headers, &self.user)?;
        Some(User {
            name,
            uid: first_value(headers, &self.uid).unwrap_or_default(),
            groups: self.groups.iter().flat_map(|header| header_values(headers, header)).collect(),
            extra: extra_headers::parse_extra_headers(headers, &self.extra),
        })
    }
}

fn header_values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).filter(|text| !text.is_empty()).collect()
}

/// Returns the first non-empty value of the first header that has one.
fn first_value(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names.iter().find_map(|name| {
        let value = headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned()).filter(|text| !text.is_empty())
    })
}

/// Authenticates requests of front proxies.
pub struct ProxyAuthenticator {
    ca_bundle: CaBundle,
    /// Allowed common names; empty allows any.
    names: Vec<String>,
    headers: ProxyHeaders,
}

impl ProxyAuthenticator {
    /// Accepts certificates of `ca_bundle` with one of `names`.
    pub fn new(ca_bundle: &CaBundle, names: Vec<String>, headers: ProxyHeaders) -> Self {
        Self { ca_bundle: ca_bundle.clone(), names, headers }
    }

    fn verify_proxy(&self, presented: &PresentedCertificate) -> Result<(), AuthenticationErrors> {
        self.ca_bundle
            .verify_chain(&presented.chain)
            .map_err(|error| AuthenticationErrors::single(error.to_string()))?;
        let parsed = presented.chain.first().and_then(|first| X509Certificate::from_der(first).ok());
        let name =
            parsed.as_ref().and_then(|(_, certificate)| certificate.subject().iter_common_name().last()?.as_str().ok());
        let name = name.unwrap_or_default();
        if self.names.is_empty() || self.names.iter().any(|allowed| allowed == name) {
            return Ok(());
        }
        Err(AuthenticationErrors::single(format!("x509: subject with cn={name} is not in the allowed list")))
    }
}

#[async_trait]
impl RequestAuthenticator for ProxyAuthenticator {
    async fn authenticate(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(presented) = request.peer.and_then(|peer| peer.certificate()) else { return Ok(None) };
        if presented.has_expired() {
            self.verify_proxy(presented)?;
        }
        presented.proxy.get_or_init(|| self.verify_proxy(presented)).clone()?;
        let user = self.headers.read_user(request.headers);
        if user.is_some() {
            self.headers.strip_headers(request.headers);
        }
        Ok(user.map(AuthenticationResponse::for_user))
    }
}
