//! Every link through the chain that the settings assemble, on a server of its own: who is found, or why nobody is.

mod anonymous;
mod basic;
mod bearer;
mod bootstrap_token;
mod certificate;
mod chain;
mod file;
pub mod listener;
mod oidc;
mod proxy;
mod service_account;
mod webhook;

use std::time::Duration;

use ::authn::*;
use apiserver_core::User;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::CertificateDer;

use crate::{Server, ServerOptions, fixture};

/// A server whose chain is assembled from these settings.
pub struct World {
    pub server: Server,
    _dir: tempfile::TempDir,
}

impl World {
    pub async fn new(authentication: AuthenticationConfig) -> Self {
        Self::with(authentication, None).await
    }

    pub async fn with(authentication: AuthenticationConfig, tokens: Option<TokenIssuer>) -> Self {
        let mut settings = ServerOptions { authentication, ..ServerOptions::default() };
        // Where everybody may do everything, nobody is anonymous.
        settings.authorization.modes = vec![authz::AuthorizationMode::AlwaysDeny];
        let (server, dir) = fixture::start_server_with_tokens(settings, tokens).await;
        Self { server, _dir: dir }
    }

    /// Authenticates a request with these headers, connection and path; returns the user as text.
    pub async fn who(
        &self,
        headers: &[(&str, &str)],
        peer: Option<&ConnectionPeer>,
        path: &str,
    ) -> (String, HeaderMap) {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        let mut headers: HeaderMap = headers.iter().map(pair).collect();
        let authenticator = self.server.authenticator();
        let (audiences, notes) = (authenticator.audiences(), AuthenticationNotes::default());
        let mut shown = AuthenticationRequest { headers: &mut headers, peer, path, audiences, notes };
        let told = match authenticator.authenticate_request(&mut shown).await {
            Ok(user) => told(&user),
            Err(why) => format!("401 {why}"),
        };
        (told, headers)
    }

    /// As [`Self::who`], and the result.
    pub async fn check(&self, headers: &[(&str, &str)], peer: Option<&ConnectionPeer>, want: &str) {
        assert_eq!(self.who(headers, peer, "/api").await.0, want, "{headers:?}");
    }

    /// A token in the usual header.
    pub async fn check_token(&self, token: &str, want: &str) {
        self.check(&[("authorization", &format!("Bearer {token}"))], None, want).await;
    }
}

/// `name/uid groups… key=value…`.
pub fn told(user: &User) -> String {
    let mut told = format!("{}/{}", user.name, user.uid);
    user.groups.iter().for_each(|group| told += &format!(" {group}"));
    user.extra.iter().for_each(|(key, values)| told += &format!(" {key}={}", values.join("+")));
    told
}

pub fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}")))
}

/// Signs certificates.
pub struct Signer {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The contents of a certificate.
#[derive(Default)]
pub struct Subject<'a> {
    pub names: &'a [&'a str],
    pub groups: &'a [&'a str],
    pub uids: &'a [&'a str],
    pub expired: bool,
    pub for_servers: bool,
}

impl Signer {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub fn authority(&self) -> CaBundle {
        CaBundle::from_pem(&self.pem()).unwrap()
    }

    pub fn sign(&self, subject: &Subject<'_>) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        // One attribute of each type is all that the library writes: several values are joined by the caller's choice of types.
        for name in subject.names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        for group in subject.groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        for uid in subject.uids {
            params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), *uid);
        }
        if subject.expired {
            (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        }
        let usage =
            if subject.for_servers { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth };
        params.extended_key_usages = vec![usage];
        params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
    }

    /// A connection on which such a certificate was shown.
    pub fn peer(&self, subject: &Subject<'_>) -> ConnectionPeer {
        ConnectionPeer::new(None, Some(&[self.sign(subject)]))
    }

    /// A connection of somebody of this name.
    pub fn named(&self, name: &str) -> ConnectionPeer {
        self.peer(&Subject { names: &[name], ..Subject::default() })
    }
}
