//! Kubeconfig files, with which webhooks are described: the current context's cluster is where it is, its user is what it is
//! shown. What is not supported is refused by name.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use api::{Value, meta, yaml};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderValue;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::{Endpoint, Error, client_tls, trusting};
use crate::backend::unverified;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It, or a file that it names, cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(#[from] yaml::Error),
    /// Something is not there.
    #[error("it has no {0}")]
    Missing(String),
    /// Something is wrong.
    #[error("{0}: {1}")]
    Wrong(&'static str, String),
    /// Something is not supported.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// Its server is no URL.
    #[error("server: {0}")]
    Url(#[from] Error),
}

/// The endpoint that a kubeconfig describes.
pub fn from_kubeconfig(file: &Path) -> Result<Endpoint, KubeconfigError> {
    let text = read(file)?;
    let config = yaml::parse(&text)?.value;
    let folder = file.parent().unwrap_or(Path::new("."));
    let context = named(&config, "contexts", "context", meta::string_at(&config, &["current-context"]))?;
    let cluster = named(&config, "clusters", "cluster", meta::string_at(context, &["cluster"]))?;
    let nobody = Value::Null;
    let user = match meta::string_at(context, &["user"]) {
        "" => &nobody,
        name => named(&config, "users", "user", name)?,
    };
    for (part, names) in [(cluster, ["proxy-url", "tls-server-name"]), (user, ["exec", "auth-provider"])] {
        if let Some(name) =
            names.into_iter().find(|name| meta::value_at(part, &[*name]).is_some_and(|it| !it.is_null()))
        {
            return Err(KubeconfigError::Unsupported(name));
        }
    }
    let endpoint = Endpoint::new(meta::string_at(cluster, &["server"]), tls(folder, cluster, user)?)?;
    Ok(endpoint.with_credential(credential(folder, user)?))
}

fn tls(folder: &Path, cluster: &Value, user: &Value) -> Result<Arc<rustls::ClientConfig>, KubeconfigError> {
    let wrong = |what: &'static str| move |why: String| KubeconfigError::Wrong(what, why);
    let authority = part(folder, cluster, "certificate-authority")?;
    let authority = authority.as_ref().map(|pem| String::from_utf8_lossy(pem).into_owned());
    let roots = trusting(authority.as_deref()).map_err(wrong("certificate-authority"))?;
    let builder = client_tls(roots).map_err(wrong("TLS"))?;
    let config = match (part(folder, user, "client-certificate")?, part(folder, user, "client-key")?) {
        (Some(certificate), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
            let chain = chain.map_err(|error| wrong("client-certificate")(error.to_string()))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong("client-key")(error.to_string()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| wrong("client-certificate")(error.to_string()))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err(KubeconfigError::Missing("client-key with its client-certificate".into())),
    };
    let anybody = meta::value_at(cluster, &["insecure-skip-tls-verify"]) == Some(&Value::Bool(true));
    Ok(if anybody { unverified(&config) } else { Arc::new(config) })
}

/// What is shown in the header `Authorization`.
fn credential(folder: &Path, user: &Value) -> Result<Option<HeaderValue>, KubeconfigError> {
    let token = match (meta::string_at(user, &["token"]), meta::string_at(user, &["tokenFile"])) {
        ("", "") => None,
        ("", file) => Some(String::from_utf8_lossy(&read(&folder.join(file))?).trim().to_owned()),
        (token, _) => Some(token.to_owned()),
    };
    let text = match (token, meta::string_at(user, &["username"])) {
        (Some(token), _) => format!("Bearer {token}"),
        (None, "") => return Ok(None),
        (None, name) => {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{}", meta::string_at(user, &["password"]))))
        }
    };
    let mut value = HeaderValue::from_str(&text).map_err(|error| KubeconfigError::Wrong("token", error.to_string()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// An entry of one of the lists.
fn named<'a>(config: &'a Value, list: &str, part: &str, name: &str) -> Result<&'a Value, KubeconfigError> {
    let entries = meta::list_at(config, &[list]);
    let found =
        entries.iter().find(|entry| meta::string_at(entry, &["name"]) == name).and_then(|entry| entry.get(part));
    found.ok_or_else(|| KubeconfigError::Missing(format!("{part} {name:?}")))
}

/// Data that is in the file itself, or in another that it names.
fn part(folder: &Path, of: &Value, name: &'static str) -> Result<Option<Vec<u8>>, KubeconfigError> {
    let data = meta::string_at(of, &[&format!("{name}-data")]);
    if !data.is_empty() {
        let decoded = BASE64_STANDARD.decode(data).map_err(|error| KubeconfigError::Wrong(name, error.to_string()))?;
        return Ok(Some(decoded));
    }
    match meta::string_at(of, &[name]) {
        "" => Ok(None),
        file => read(&folder.join(file)).map(Some),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, KubeconfigError> {
    fs::read(path).map_err(|source| KubeconfigError::Read { path: path.to_owned(), source })
}
