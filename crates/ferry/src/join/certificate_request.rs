//! Certificates of a node from CertificateSigningRequests: its client certificate and its serving certificate.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context, bail};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, ResourceExt, api::PostParams, runtime::wait::await_condition};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use crate::pki::CertificatePair;

/// Time for a request to be approved and signed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which certificate a node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCertificate {
    /// That of the kubelet as a client of the API server.
    Client,
    /// That of the kubelet's own server at an address.
    Serving(IpAddr),
}

impl NodeCertificate {
    fn signer_name(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving(_) => "kubernetes.io/kubelet-serving",
        }
    }

    fn usages(self) -> Vec<String> {
        let purpose = match self {
            Self::Client => "client auth",
            Self::Serving(_) => "server auth",
        };
        ["digital signature", purpose].map(str::to_owned).to_vec()
    }

    fn params(self, node_name: &str) -> anyhow::Result<CertificateParams> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node_name}"));
        if let Self::Serving(ip) = self {
            params.subject_alt_names = vec![SanType::DnsName(node_name.try_into()?), SanType::IpAddress(ip)];
        }
        Ok(params)
    }
}

/// Asks for a certificate with a new key and waits until it is issued.
pub async fn request_certificate(
    client: &Client,
    node_name: &str,
    which: NodeCertificate,
) -> anyhow::Result<CertificatePair> {
    let key = KeyPair::generate()?;
    let request = which.params(node_name)?.serialize_request(&key)?.pem()?;
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("node-csr-".into()), ..Default::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: which.signer_name().into(),
            usages: Some(which.usages()),
            ..Default::default()
        },
        status: None,
    };
    let created = api.create(&PostParams::default(), &object).await.context("cannot ask for a certificate")?;
    let name = created.name_any();
    let ended = |request: Option<&CertificateSigningRequest>| {
        request.is_none_or(|request| certificate_of(request).is_some() || refusal_of(request).is_some())
    };
    let waited = tokio::time::timeout(PATIENCE, await_condition(api, &name, ended)).await;
    let request =
        waited.with_context(|| format!("CertificateSigningRequest {name} is neither approved nor denied"))??;
    let Some(request) = request else { bail!("CertificateSigningRequest {name} was deleted before it was signed") };
    if let Some(refusal) = refusal_of(&request) {
        bail!("CertificateSigningRequest {name}: {refusal}");
    }
    let certificate = certificate_of(&request).context("no certificate")?;
    Ok(CertificatePair { certificate, key: key.serialize_pem() })
}

fn certificate_of(request: &CertificateSigningRequest) -> Option<String> {
    let bytes = request.status.as_ref()?.certificate.as_ref()?;
    String::from_utf8(bytes.0.clone()).ok().filter(|text| !text.is_empty())
}

fn refusal_of(request: &CertificateSigningRequest) -> Option<String> {
    let conditions = request.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    let refused = conditions.iter().find(|condition| ["Denied", "Failed"].contains(&condition.type_.as_str()))?;
    Some(format!("{}: {}", refused.type_, refused.message.as_deref().unwrap_or_default()))
}
