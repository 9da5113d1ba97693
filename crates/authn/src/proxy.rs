//! Front proxies: whoever shows a proxy's certificate says in headers whom it asks for.

use apiserver_core::User;
use async_trait::async_trait;
use http::{HeaderMap, HeaderName};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{
    Authentication, AuthenticationErrors, AuthenticationRequest, AuthenticationResponse, AuthenticationResult,
    Authority, RequestAuthenticator, extra, peer::Presented,
};

/// What proxies are known by unless the settings say otherwise; such headers never reach later stages.
const STANDARD: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const STANDARD_EXTRA: &str = "x-remote-extra-";

/// Which headers say what.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    user: Vec<String>,
    uid: Vec<String>,
    groups: Vec<String>,
    extra: Vec<String>,
}

impl Headers {
    /// Those of the settings.
    pub fn of(settings: &Authentication) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        Self {
            user: lower(&settings.user_headers),
            uid: lower(&settings.uid_headers),
            groups: lower(&settings.group_headers),
            extra: lower(&settings.extra_prefixes),
        }
    }

    /// Removes the usual headers and those of the settings.
    pub fn clear(&self, headers: &mut HeaderMap) {
        // Most requests have none of them.
        if !headers.keys().any(|name| self.includes(name.as_str())) {
            return;
        }
        let names: Vec<HeaderName> = headers.keys().filter(|name| self.includes(name.as_str())).cloned().collect();
        names.into_iter().for_each(|name| drop(headers.remove(name)));
    }

    fn includes(&self, name: &str) -> bool {
        let is = |one: &String| one == name;
        STANDARD.contains(&name)
            || name.starts_with(STANDARD_EXTRA)
            || self.user.iter().any(is)
            || self.uid.iter().any(is)
            || self.groups.iter().any(is)
            || self.extra.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    fn read(&self, headers: &HeaderMap) -> Option<User> {
        let name = first(headers, &self.user)?;
        Some(User {
            name,
            uid: first(headers, &self.uid).unwrap_or_default(),
            groups: self.groups.iter().flat_map(|header| texts(headers, header)).collect(),
            extra: extra::of(headers, &self.extra),
        })
    }
}

fn texts(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).filter(|text| !text.is_empty()).collect()
}

/// The first value of the first header that has one.
fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names.iter().find_map(|name| {
        let value = headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned()).filter(|text| !text.is_empty())
    })
}

/// Believes proxies.
pub struct Proxies {
    authority: Authority,
    /// Common names; empty: any.
    names: Vec<String>,
    headers: Headers,
}

impl Proxies {
    /// Those with a certificate of `authority` and one of `names`.
    pub fn new(authority: &Authority, names: Vec<String>, headers: Headers) -> Self {
        Self { authority: authority.clone(), names, headers }
    }

    fn is_proxy(&self, presented: &Presented) -> Result<(), AuthenticationErrors> {
        self.authority.verify(&presented.chain).map_err(|error| AuthenticationErrors::one(error.to_string()))?;
        let parsed = presented.chain.first().and_then(|first| X509Certificate::from_der(first).ok());
        let name = parsed.as_ref().and_then(|(_, it)| it.subject().iter_common_name().last()?.as_str().ok());
        let name = name.unwrap_or_default();
        if self.names.is_empty() || self.names.iter().any(|allowed| allowed == name) {
            return Ok(());
        }
        Err(AuthenticationErrors::one(format!("x509: subject with cn={name} is not in the allowed list")))
    }
}

#[async_trait]
impl RequestAuthenticator for Proxies {
    async fn authenticate(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(presented) = shown.peer.and_then(|peer| peer.certificate()) else { return Ok(None) };
        if presented.has_ended() {
            self.is_proxy(presented)?;
        }
        presented.proxy.get_or_init(|| self.is_proxy(presented)).clone()?;
        let user = self.headers.read(shown.headers);
        if user.is_some() {
            self.headers.clear(shown.headers);
        }
        Ok(user.map(AuthenticationResponse::user))
    }
}
