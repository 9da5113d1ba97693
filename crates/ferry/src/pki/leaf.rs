//! Leaf certificates: what each one says, how it is issued, and whether one on disk still says the same.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime},
};

use addons::metrics_server::SERVICE_DNS_NAME;
use anyhow::{Context, anyhow};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer,
};

use super::{CertificatePair, ClusterNames, DAY, LEAF_LIFE};

/// The files' names.
pub const NAMES: [&str; 6] =
    ["apiserver", "apiserver-kubelet-client", "kubelet", "admin", "front-proxy-client", "metrics-server"];
/// The address of the service `kubernetes`.
const SERVICE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));

/// The contents of a leaf certificate.
pub struct LeafCertificate {
    /// The file's name without its extension.
    pub name: &'static str,
    common_name: String,
    organization: Option<&'static str>,
    dns: Vec<String>,
    ips: Vec<IpAddr>,
}

/// API server, its client for kubelets, kubelet, administrator, metrics server.
pub fn all(names: &ClusterNames) -> [LeafCertificate; 5] {
    let client = |name, common_name: &str| LeafCertificate {
        name,
        common_name: common_name.into(),
        organization: Some("system:masters"),
        dns: Vec::new(),
        ips: Vec::new(),
    };
    [
        api_server(names),
        client(NAMES[1], "kube-apiserver-kubelet-client"),
        LeafCertificate {
            name: NAMES[2],
            common_name: format!("system:node:{}", names.node),
            organization: Some("system:nodes"),
            dns: vec![names.node.clone()],
            ips: names.ips.clone(),
        },
        client(NAMES[3], "kubernetes-admin"),
        LeafCertificate {
            name: NAMES[5],
            common_name: NAMES[5].into(),
            organization: None,
            dns: vec![SERVICE_DNS_NAME.into()],
            ips: Vec::new(),
        },
    ]
}

/// The front-proxy client certificate, issued by the front-proxy CA.
pub fn front_proxy() -> LeafCertificate {
    let common_name = NAMES[4].into();
    LeafCertificate { name: NAMES[4], common_name, organization: None, dns: Vec::new(), ips: Vec::new() }
}

fn api_server(names: &ClusterNames) -> LeafCertificate {
    let service =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    let dns = service.into_iter().chain(["localhost", &names.node]).map(str::to_owned).collect();
    let fixed = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), SERVICE_IP];
    let ips = fixed.into_iter().chain(names.ips.iter().copied()).collect();
    LeafCertificate { name: NAMES[0], common_name: "kube-apiserver".into(), organization: None, dns, ips }
}

impl LeafCertificate {
    /// A new key with a certificate for it.
    pub fn issue(&self, issuer: &Issuer<'_, KeyPair>, now: SystemTime) -> anyhow::Result<CertificatePair> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(organization) = self.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
        let dns: Result<Vec<_>, _> =
            self.dns.iter().map(|name| name.as_str().try_into().map(SanType::DnsName)).collect();
        params.subject_alt_names = dns?;
        params.subject_alt_names.extend(self.ips.iter().copied().map(SanType::IpAddress));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !self.dns.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        set_life(&mut params, now, LEAF_LIFE);
        let key = KeyPair::generate()?;
        Ok(CertificatePair { certificate: params.signed_by(&key, issuer)?.pem(), key: key.serialize_pem() })
    }

    /// Whether a pair on disk says the same, is the CA's, and is valid at `then`. An unreadable one is an error.
    pub fn is_current(&self, pair: &CertificatePair, authority: &[u8], then: SystemTime) -> anyhow::Result<bool> {
        let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes())?;
        let certificate = parse(&der)?;
        let key = KeyPair::from_pem(&pair.key).context("its key")?;
        Ok(certificate.public_key().subject_public_key.data == key.der_bytes()
            && authority_key_id(&certificate).is_some_and(|id| id == authority)
            && end(&certificate)? > then
            && names(&certificate) == self.names()
            && subject(&certificate) == (Some(self.common_name.as_str()), self.organization))
    }

    fn names(&self) -> BTreeSet<String> {
        self.dns.iter().cloned().chain(self.ips.iter().map(IpAddr::to_string)).collect()
    }
}

/// Valid from a day ago, in case another machine's clock is behind, for `life`.
pub fn set_life(params: &mut CertificateParams, now: SystemTime, life: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    params.not_before = epoch + since.saturating_sub(DAY);
    params.not_after = epoch + since + life;
}

/// When a certificate (PEM) ends.
pub fn expiry(pem: &str) -> anyhow::Result<SystemTime> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())?;
    end(&parse(&der)?)
}

/// Whether a certificate bears the signature of a CA (both PEM).
pub fn is_issued_by(pem: &str, ca: &str) -> anyhow::Result<bool> {
    let (der, ca) = (CertificateDer::from_pem_slice(pem.as_bytes())?, CertificateDer::from_pem_slice(ca.as_bytes())?);
    Ok(parse(&der)?.verify_signature(Some(parse(&ca)?.public_key())).is_ok())
}

/// The identifier of a CA's key.
pub fn subject_key_id(pem: &str) -> anyhow::Result<Vec<u8>> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())?;
    let id = parse(&der)?.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    });
    id.ok_or_else(|| anyhow!("it is not a CA's certificate"))
}

/// Whether the certificate is for the key with that public half.
pub fn is_for_key(pem: &str, public: &[u8]) -> bool {
    let der = CertificateDer::from_pem_slice(pem.as_bytes());
    der.is_ok_and(|der| parse(&der).is_ok_and(|parsed| parsed.public_key().subject_public_key.data == public))
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> anyhow::Result<X509Certificate<'a>> {
    Ok(X509Certificate::from_der(der)?.1)
}

fn end(certificate: &X509Certificate<'_>) -> anyhow::Result<SystemTime> {
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).context("it ended before 1970")?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn authority_key_id<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
        _ => None,
    })
}

fn subject<'a>(certificate: &'a X509Certificate<'_>) -> (Option<&'a str>, Option<&'a str>) {
    let subject = certificate.subject();
    let common_name = subject.iter_common_name().find_map(|name| name.as_str().ok());
    (common_name, subject.iter_organization().find_map(|name| name.as_str().ok()))
}

fn names(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(octets) => ip(octets).map(|ip| ip.to_string()),
            _ => None,
        })
        .collect()
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(octets).ok().map(IpAddr::from))
}
