//! Which credentials the flags say are accepted: the files they name are read and checked here.

use std::fs;

use anyhow::{Context, bail};
use server::{Authentication, Authority, Limits, PublicKey, Tokens, UserTable};

use super::options::path;
use crate::flags::Given;

/// Everything about authentication but the tokens of service accounts.
pub fn settings(given: &Given<'_>) -> anyhow::Result<Authentication> {
    Ok(Authentication {
        anonymous: given.bool("anonymous-auth")?,
        client_ca: read(given, "client-ca-file", Authority::from_pem)?,
        proxy_ca: read(given, "requestheader-client-ca-file", Authority::from_pem)?,
        proxy_names: given.many("requestheader-allowed-names"),
        user_headers: given.many("requestheader-username-headers"),
        uid_headers: given.many("requestheader-uid-headers"),
        group_headers: given.many("requestheader-group-headers"),
        extra_prefixes: given.many("requestheader-extra-headers-prefix"),
        tokens: read(given, "token-auth-file", UserTable::of_tokens)?,
        passwords: read(given, "basic-auth-file", UserTable::of_passwords)?,
        audiences: given.many("api-audiences"),
        lookup: given.bool("service-account-lookup")?,
        bootstrap_tokens: given.bool("enable-bootstrap-token-auth")?,
        ..Authentication::default()
    })
}

/// What signs and verifies tokens of service accounts; nothing, where no key is given.
pub fn tokens(given: &Given<'_>) -> anyhow::Result<Option<Tokens>> {
    let mut issuers = given.many("service-account-issuer");
    let keys = keys(given)?;
    let signs = path(given, "service-account-signing-key-file");
    if signs.is_none() && keys.is_empty() {
        return Ok(None);
    }
    let tokens = match signs {
        None => Tokens::verifying(issuers, keys),
        Some(_) if issuers.is_empty() => {
            bail!("--service-account-signing-key-file needs --service-account-issuer URL too")
        }
        Some(file) => {
            let pem = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let signing = Tokens::new(issuers.remove(0), &pem).with_context(|| file.display().to_string())?;
            signing.also_from(issuers).verified_by(keys)
        }
    };
    let limits = Limits {
        extend: given.bool("service-account-extend-token-expiration")?,
        longest: given.duration("service-account-max-token-expiration")?,
    };
    Ok(Some(tokens.for_audiences(given.many("api-audiences")).limited(limits)))
}

/// The keys of all files that verify tokens.
fn keys(given: &Given<'_>) -> anyhow::Result<Vec<PublicKey>> {
    let mut keys = Vec::new();
    for file in given.many("service-account-key-file") {
        let pem = fs::read_to_string(&file).with_context(|| format!("--service-account-key-file {file}"))?;
        keys.extend(PublicKey::from_pem(&pem).with_context(|| format!("--service-account-key-file {file}"))?);
    }
    Ok(keys)
}

/// What the file of a flag says; `None` if the flag is not given.
fn read<T, E>(given: &Given<'_>, flag: &str, parse: impl Fn(&str) -> Result<T, E>) -> anyhow::Result<Option<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let Some(file) = path(given, flag) else { return Ok(None) };
    let about = || format!("--{flag} {}", file.display());
    let text = fs::read_to_string(&file).with_context(about)?;
    parse(&text).with_context(about).map(Some)
}
