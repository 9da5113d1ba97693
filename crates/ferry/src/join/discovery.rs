//! Discovery of a cluster by a node that knows its address, a bootstrap token and the hash of its CA's public key.
//!
//! The ConfigMap `cluster-info` in `kube-public` is read over an unverified connection. Its contents are trusted when the
//! token signed them and the CA in them has the given hash; everything after that is verified by that CA.

use anyhow::{Context, anyhow, bail};
use base64::{Engine, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use sha2::{Digest, Sha256};

use crate::{bootstrap_token::BootstrapToken, user_error::user_error};

/// The name of the ConfigMap and of its key.
pub const CLUSTER_INFO: (&str, &str) = ("cluster-info", "kubeconfig");
/// The prefix of the keys with signatures.
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// The hash of a CA's public key, as `sha256:` and hexadecimal digits.
pub fn ca_hash(certificate: &str) -> anyhow::Result<String> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| anyhow!("CA: {error}"))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).context("CA")?;
    let digest = Sha256::digest(parsed.tbs_certificate.subject_pki.raw);
    Ok(format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// Reads the cluster's CA; it has the hash, and the token vouches for it.
pub async fn discover_ca(server: &str, token: &BootstrapToken, wanted_hash: &str) -> anyhow::Result<String> {
    let mut config = Config::new(server.parse().with_context(|| format!("{server:?} is not a URL"))?);
    config.accept_invalid_certs = true;
    let api: Api<ConfigMap> = Api::namespaced(Client::try_from(config)?, "kube-public");
    let info = api.get(CLUSTER_INFO.0).await.map_err(|error| unreachable_error(server, &error))?;
    let data = info.data.unwrap_or_default();
    let kubeconfig = data.get(CLUSTER_INFO.1).context("cluster-info has no kubeconfig")?;
    let signature = data.get(&format!("{SIGNATURE_PREFIX}{}", token.id)).ok_or_else(|| {
        user_error(
            format!("the cluster at {server} does not know the token {}", token.id),
            "Make a new one on its first node with `ferry token create`.",
        )
    })?;
    if !is_signed(kubeconfig, signature, token) {
        bail!("the token's secret is not the one that the cluster at {server} knows");
    }
    let ca = ca_of_kubeconfig(kubeconfig)?;
    let hash = ca_hash(&ca)?;
    if hash != wanted_hash {
        return Err(user_error(
            format!("the CA of {server} has the hash {hash}, not {wanted_hash}"),
            "Another host answers in the cluster's place, or --ca-cert-hash is that of another cluster.",
        ));
    }
    Ok(ca)
}

fn unreachable_error(server: &str, error: &kube::Error) -> anyhow::Error {
    user_error(
        format!("cannot read cluster-info from {server}: {error}"),
        "Check the address, and that the first node runs (`ferry status` there).",
    )
}

/// Whether the token made the detached JWS (HS256) of `content`.
fn is_signed(content: &str, signature: &str, token: &BootstrapToken) -> bool {
    let mut parts = signature.splitn(3, '.');
    let (Some(header), Some(""), Some(signature)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let Ok(signature) = BASE64_URL_SAFE_NO_PAD.decode(signature) else { return false };
    let input = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, token.secret.as_bytes());
    ring::hmac::verify(&key, input.as_bytes(), &signature).is_ok()
}

fn ca_of_kubeconfig(text: &str) -> anyhow::Result<String> {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(text).context("the kubeconfig of cluster-info")?;
    let cluster = kubeconfig.clusters.into_iter().next().and_then(|named| named.cluster);
    let encoded = cluster.and_then(|cluster| cluster.certificate_authority_data).context("cluster-info has no CA")?;
    let pem = BASE64_STANDARD.decode(encoded.trim()).context("the CA of cluster-info")?;
    String::from_utf8(pem).context("the CA of cluster-info")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_of_another_secret_is_rejected() {
        let token = |secret: &str| BootstrapToken { id: "abcdef".into(), secret: secret.into() };
        let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"abcdef"}"#);
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"0123456789abcdef");
        let input = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode("content"));
        let signed = BASE64_URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, input.as_bytes()));
        let signature = format!("{header}..{signed}");
        assert!(is_signed("content", &signature, &token("0123456789abcdef")));
        assert!(!is_signed("content", &signature, &token("fedcba9876543210")));
        assert!(!is_signed("other", &signature, &token("0123456789abcdef")));
        for broken in ["", "..", "a.b.c", "a..%"] {
            assert!(!is_signed("content", broken, &token("0123456789abcdef")), "{broken}");
        }
    }
}
