//! Which credentials the flags say are accepted: the files they name are read and checked here.

use std::{fs, sync::Arc};

use anyhow::{Context, bail, ensure};
use apiserver::{
    ALGORITHMS, AuthenticationConfig, AuthenticationFile, CaBundle, ClaimMapping, JwtIssuer, PublicKey, ReviewVersion,
    TokenIssuer, TokenLimits, TokenWebhook, UserTable,
};

use super::flag_files::{flag_path, read_flag_file};
use crate::flags::ParsedFlags;

/// Everything about authentication but the tokens of service accounts.
pub fn authentication_options(given: &ParsedFlags<'_>) -> anyhow::Result<AuthenticationConfig> {
    let own = given.many("service-account-issuer");
    let file = read_flag_file(given, "authentication-config", |text| AuthenticationFile::parse(text, &own))?;
    let (issuers, anonymous) = match file {
        Some(_) if OIDC.iter().any(|flag| given.is_given(flag)) => {
            bail!("authentication-config file and oidc-* flags are mutually exclusive")
        }
        Some(file) => (file.issuers, file.anonymous),
        None => (oidc_issuer(given)?.into_iter().collect(), None),
    };
    ensure!(
        anonymous.is_none() || !given.is_given("anonymous-auth"),
        "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication \
         configuration file"
    );
    let (anonymous, anonymous_paths) = match anonymous {
        Some(anonymous) => anonymous,
        None => (given.bool("anonymous-auth")?, Vec::new()),
    };
    Ok(AuthenticationConfig {
        anonymous,
        anonymous_paths,
        client_ca: read_flag_file(given, "client-ca-file", CaBundle::from_pem)?,
        proxy_ca: read_flag_file(given, "requestheader-client-ca-file", CaBundle::from_pem)?,
        proxy_names: given.many("requestheader-allowed-names"),
        user_headers: given.many("requestheader-username-headers"),
        uid_headers: given.many("requestheader-uid-headers"),
        group_headers: given.many("requestheader-group-headers"),
        extra_prefixes: given.many("requestheader-extra-headers-prefix"),
        tokens: read_flag_file(given, "token-auth-file", UserTable::from_token_file)?,
        passwords: read_flag_file(given, "basic-auth-file", UserTable::from_password_file)?,
        audiences: given.many("api-audiences"),
        lookup: given.bool("service-account-lookup")?,
        bootstrap_tokens: given.bool("enable-bootstrap-token-auth")?,
        issuers,
        webhook: webhook_options(given)?,
    })
}

const OIDC: [&str; 9] = [
    "oidc-issuer-url",
    "oidc-client-id",
    "oidc-ca-file",
    "oidc-username-claim",
    "oidc-username-prefix",
    "oidc-groups-claim",
    "oidc-groups-prefix",
    "oidc-signing-algs",
    "oidc-required-claim",
];

/// The issuer of tokens that the flags describe.
fn oidc_issuer(given: &ParsedFlags<'_>) -> anyhow::Result<Option<JwtIssuer>> {
    let (url, client) = match (given.text("oidc-issuer-url"), given.text("oidc-client-id")) {
        (Some(url), Some(client)) => (url, client),
        _ if OIDC.iter().any(|flag| given.is_given(flag)) => {
            bail!("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
        }
        _ => return Ok(None),
    };
    ensure!(url.starts_with("https://"), "--oidc-issuer-url {url}: URL scheme must be https");
    let claim = given.text("oidc-username-claim").unwrap_or_default();
    let prefix = match given.text("oidc-username-prefix").as_deref() {
        Some("-") => String::new(),
        Some(prefix) => prefix.to_owned(),
        // Claims other than the email get the issuer as a prefix, so that users of issuers do not collide.
        None if claim == "email" => String::new(),
        None => format!("{url}#"),
    };
    let algorithms = given.many("oidc-signing-algs");
    for algorithm in &algorithms {
        ensure!(ALGORITHMS.contains(&algorithm.as_str()), "oidc: unsupported signing alg: {algorithm:?}");
    }
    let groups = given.text("oidc-groups-claim");
    let required = given.many("oidc-required-claim");
    let required: Option<Vec<_>> = required
        .iter()
        .map(|pair| pair.split_once('=').map(|(claim, value)| (claim.trim().to_owned(), value.trim().to_owned())))
        .collect();
    Ok(Some(JwtIssuer {
        discovery_url: None,
        authority: read_flag_file(given, "oidc-ca-file", |pem| CaBundle::from_pem(pem).map(|_| pem.to_owned()))?,
        audiences: vec![client],
        username: ClaimMapping { claim, prefix },
        groups: groups
            .map(|claim| ClaimMapping { claim, prefix: given.text("oidc-groups-prefix").unwrap_or_default() }),
        uid: None,
        expressions: Default::default(),
        required: required.context("--oidc-required-claim takes claim=value")?,
        algorithms,
        url,
    }))
}

/// The webhook that knows tokens.
fn webhook_options(given: &ParsedFlags<'_>) -> anyhow::Result<Option<TokenWebhook>> {
    const FILE: &str = "authentication-token-webhook-config-file";
    let Some(file) = flag_path(given, FILE) else { return Ok(None) };
    let version = match given.text("authentication-token-webhook-version").as_deref() {
        Some("v1") => ReviewVersion::V1,
        Some("v1beta1") => ReviewVersion::V1Beta1,
        other => bail!(
            "unsupported authentication webhook version {:?}, supported versions are \"v1\", \"v1beta1\"",
            other.unwrap_or_default()
        ),
    };
    let endpoint =
        apiserver::endpoint_from_kubeconfig(&file).with_context(|| format!("--{FILE} {}", file.display()))?;
    let ttl = given.duration("authentication-token-webhook-cache-ttl")?;
    Ok(Some(TokenWebhook { endpoint: Arc::new(endpoint), review_version: version, ttl }))
}

/// The signer and verifier of service account tokens; `None` without a key.
pub fn token_signer(given: &ParsedFlags<'_>) -> anyhow::Result<Option<TokenIssuer>> {
    let mut issuers = given.many("service-account-issuer");
    let keys = read_keys(given)?;
    let signs = flag_path(given, "service-account-signing-key-file");
    if signs.is_none() && keys.is_empty() {
        return Ok(None);
    }
    let tokens = match signs {
        None => TokenIssuer::verifier(issuers, keys),
        Some(_) if issuers.is_empty() => {
            bail!("--service-account-signing-key-file needs --service-account-issuer URL too")
        }
        Some(file) => {
            let pem = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let signing = TokenIssuer::new(issuers.remove(0), &pem).with_context(|| file.display().to_string())?;
            signing.with_issuers(issuers).with_verification_keys(keys)
        }
    };
    let limits = TokenLimits {
        extend: given.bool("service-account-extend-token-expiration")?,
        longest: given.duration("service-account-max-token-expiration")?,
    };
    let uri = given.text("service-account-jwks-uri");
    if let Some(uri) = &uri {
        ensure!(uri.starts_with("https://"), "service-account-jwks-uri requires https scheme, parsed as: {uri}");
    }
    Ok(Some(tokens.with_audiences(given.many("api-audiences")).with_limits(limits).with_jwks_uri(uri)))
}

/// The keys of all files that verify tokens.
fn read_keys(given: &ParsedFlags<'_>) -> anyhow::Result<Vec<PublicKey>> {
    let mut keys = Vec::new();
    for file in given.many("service-account-key-file") {
        let pem = fs::read_to_string(&file).with_context(|| format!("--service-account-key-file {file}"))?;
        keys.extend(PublicKey::from_pem(&pem).with_context(|| format!("--service-account-key-file {file}"))?);
    }
    Ok(keys)
}
