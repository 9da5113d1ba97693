//! Kubeconfig files of webhooks: the cluster of the current context names the server, its user the credential.
//! Unsupported fields are rejected by name.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use api::{Value, meta, yaml};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderValue;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::{Endpoint, HttpClientError, client_config_builder, load_root_certificates};
use crate::backend::without_verification;

/// An unusable kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The kubeconfig, or a file that it names, cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(#[from] yaml::YamlError),
    /// A required entry is missing.
    #[error("it has no {0}")]
    Missing(String),
    /// A field is invalid.
    #[error("{0}: {1}")]
    Invalid(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// A field is not supported.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The server is not a URL.
    #[error("server: {0}")]
    Url(#[from] HttpClientError),
}

fn invalid<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    field: &'static str,
) -> impl FnOnce(E) -> KubeconfigError {
    move |error| KubeconfigError::Invalid(field, error.into())
}

/// Reads the endpoint that a kubeconfig describes.
pub fn endpoint_from_kubeconfig(file: &Path) -> Result<Endpoint, KubeconfigError> {
    let text = read_file(file)?;
    let config = yaml::parse(&text)?.value;
    let folder = file.parent().unwrap_or(Path::new("."));
    let context = find_entry(&config, "contexts", "context", meta::string_at(&config, &["current-context"]))?;
    let cluster = find_entry(&config, "clusters", "cluster", meta::string_at(context, &["cluster"]))?;
    let no_user = Value::Null;
    let user = match meta::string_at(context, &["user"]) {
        "" => &no_user,
        name => find_entry(&config, "users", "user", name)?,
    };
    for (entry, names) in [(cluster, ["proxy-url", "tls-server-name"]), (user, ["exec", "auth-provider"])] {
        if let Some(name) =
            names.into_iter().find(|name| meta::value_at(entry, &[*name]).is_some_and(|it| !it.is_null()))
        {
            return Err(KubeconfigError::Unsupported(name));
        }
    }
    let endpoint = Endpoint::new(meta::string_at(cluster, &["server"]), tls_config(folder, cluster, user)?)?;
    Ok(endpoint.with_credential(authorization_header(folder, user)?))
}

fn tls_config(folder: &Path, cluster: &Value, user: &Value) -> Result<Arc<rustls::ClientConfig>, KubeconfigError> {
    let ca_bundle = read_data(folder, cluster, "certificate-authority")?;
    let ca_bundle = ca_bundle.as_ref().map(|pem| String::from_utf8_lossy(pem).into_owned());
    let roots = load_root_certificates(ca_bundle.as_deref()).map_err(invalid("certificate-authority"))?;
    let builder = client_config_builder(roots).map_err(invalid("TLS"))?;
    let config = match (read_data(folder, user, "client-certificate")?, read_data(folder, user, "client-key")?) {
        (Some(certificate), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
            let chain = chain.map_err(invalid("client-certificate"))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(invalid("client-key"))?;
            builder.with_client_auth_cert(chain, key).map_err(invalid("client-certificate"))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err(KubeconfigError::Missing("client-key with its client-certificate".into())),
    };
    let skip_verify = meta::value_at(cluster, &["insecure-skip-tls-verify"]) == Some(&Value::Bool(true));
    Ok(if skip_verify { without_verification(&config) } else { Arc::new(config) })
}

/// Returns the `Authorization` header of a user.
fn authorization_header(folder: &Path, user: &Value) -> Result<Option<HeaderValue>, KubeconfigError> {
    let token = match (meta::string_at(user, &["token"]), meta::string_at(user, &["tokenFile"])) {
        ("", "") => None,
        ("", file) => Some(String::from_utf8_lossy(&read_file(&folder.join(file))?).trim().to_owned()),
        (token, _) => Some(token.to_owned()),
    };
    let text = match (token, meta::string_at(user, &["username"])) {
        (Some(token), _) => format!("Bearer {token}"),
        (None, "") => return Ok(None),
        (None, name) => {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{}", meta::string_at(user, &["password"]))))
        }
    };
    let mut value = HeaderValue::from_str(&text).map_err(invalid("token"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Returns an entry of one of the lists.
fn find_entry<'a>(config: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value, KubeconfigError> {
    let entries = meta::list_at(config, &[list]);
    let entry =
        entries.iter().find(|entry| meta::string_at(entry, &["name"]) == name).and_then(|entry| entry.get(field));
    entry.ok_or_else(|| KubeconfigError::Missing(format!("{field} {name:?}")))
}

/// Reads data that is inline in the kubeconfig or in a file that it names.
fn read_data(folder: &Path, entry: &Value, name: &'static str) -> Result<Option<Vec<u8>>, KubeconfigError> {
    let data = meta::string_at(entry, &[&format!("{name}-data")]);
    if !data.is_empty() {
        return Ok(Some(BASE64_STANDARD.decode(data).map_err(invalid(name))?));
    }
    match meta::string_at(entry, &[name]) {
        "" => Ok(None),
        file => read_file(&folder.join(file)).map(Some),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, KubeconfigError> {
    fs::read(path).map_err(|source| KubeconfigError::Read { path: path.to_owned(), source })
}
