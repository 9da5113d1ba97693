//! The cluster's certificates and keys: made at the first start, reused afterwards, renewed when they must be.
//!
//! The CA and the key that signs service-account tokens are never replaced: that would cut off every client. Leaf
//! certificates are issued anew when they end soon, when the CA did not issue them, or when the node's names changed.

mod files;
mod leaf;
mod tls;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};

use crate::user_error::user_error;
use files::PkiFiles;
use leaf::LeafCertificate;
pub use leaf::{expiry, is_issued_by};
pub use tls::{ClusterCertificates, crypto_provider, kubelet_server_tls};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A leaf certificate that ends within this time is issued anew at the next start.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePair {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// Under which names the node and its API server are reached.
#[derive(Clone, Debug)]
pub struct ClusterNames {
    /// The node's name.
    pub node: String,
    /// The node's addresses.
    pub ips: Vec<IpAddr>,
}

/// Everything that a cluster needs.
#[derive(Clone, Debug)]
pub struct ClusterPki {
    /// The CA's certificate.
    pub ca: String,
    /// The certificates of the components.
    pub certificates: ClusterCertificates,
    /// The administrator's client certificate.
    pub admin: CertificatePair,
    /// The certificate of the authority of front proxies.
    pub front_proxy_ca: String,
    /// The key that signs the tokens of service accounts.
    pub service_accounts: String,
    /// The files that this start wrote.
    pub issued: Vec<&'static str>,
}

/// Reads what is in `directory`, makes what is missing, renews what must be. Refuses a damaged file.
pub fn prepare_pki(directory: &Path, names: &ClusterNames, now: SystemTime) -> anyhow::Result<ClusterPki> {
    let mut files = PkiFiles::open(directory)?;
    let ca = ensure_ca(&mut files, &CLUSTER, now)?;
    let proxies = ensure_ca(&mut files, &FRONT_PROXY, now)?;
    let service_accounts = service_account_key(&mut files)?;
    let [api_server, kubelet_client, kubelet, admin, metrics_server] = leaf::all(names);
    for leaf in [api_server, kubelet_client, kubelet, metrics_server] {
        ensure_leaf(&mut files, &ca, &leaf, now)?;
    }
    let admin = ensure_leaf(&mut files, &ca, &admin, now)?;
    ensure_leaf(&mut files, &proxies, &leaf::front_proxy(), now)?;
    Ok(ClusterPki {
        certificates: ClusterCertificates::load(directory)?,
        admin,
        front_proxy_ca: proxies.certificate,
        ca: ca.certificate,
        service_accounts,
        issued: files.written,
    })
}

/// Whether the files in `directory` can be used; changes nothing. An absent directory is usable.
pub fn check_pki(directory: &Path) -> anyhow::Result<()> {
    let files = PkiFiles::view(directory);
    for root in [&CLUSTER, &FRONT_PROXY] {
        if let Some(pair) = files.pair(root.file)? {
            parse_authority(directory, root, &pair)?;
        }
    }
    for leaf in leaf::NAMES {
        if let Some(pair) = files.pair(leaf)? {
            leaf::expiry(&pair.certificate)
                .map_err(|error| damaged_error(&directory.join(format!("{leaf}.crt")), &error))?;
        }
    }
    Ok(())
}

/// The certificates in `directory` with the time when each one ends; the soonest first.
pub fn certificate_expiries(directory: &Path) -> anyhow::Result<Vec<(String, SystemTime)>> {
    let files = PkiFiles::view(directory);
    let mut found = Vec::new();
    for name in leaf::NAMES.into_iter().chain([CLUSTER.file, FRONT_PROXY.file]) {
        if let Some(pair) = files.pair(name)? {
            let file = directory.join(format!("{name}.crt"));
            let end = leaf::expiry(&pair.certificate).map_err(|error| damaged_error(&file, &error))?;
            found.push((name.to_owned(), end));
        }
    }
    found.sort_by_key(|(_, end)| *end);
    Ok(found)
}

/// An authority: its file's name without its extension, and its own.
struct RootCa {
    file: &'static str,
    common_name: &'static str,
}

/// The cluster CA.
const CLUSTER: RootCa = RootCa { file: "ca", common_name: "kubernetes" };
/// The front-proxy CA; separate, so that client certificates cannot assert `X-Remote-*` headers.
const FRONT_PROXY: RootCa = RootCa { file: "front-proxy-ca", common_name: "front-proxy-ca" };

/// An authority, ready to sign.
struct CaKeyPair {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    /// The issuer name of its certificates.
    key_id: Vec<u8>,
}

fn ensure_ca(files: &mut PkiFiles, root: &RootCa, now: SystemTime) -> anyhow::Result<CaKeyPair> {
    let pair = match files.pair(root.file)? {
        Some(pair) => pair,
        None => files.write_pair(root.file, new_authority(root, now)?)?,
    };
    parse_authority(files.directory(), root, &pair)
}

fn new_authority(root: &RootCa, now: SystemTime) -> anyhow::Result<CertificatePair> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, root.common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyCertSign];
    leaf::set_life(&mut params, now, CA_LIFE);
    let key = KeyPair::generate()?;
    Ok(CertificatePair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

fn parse_authority(directory: &Path, root: &RootCa, pair: &CertificatePair) -> anyhow::Result<CaKeyPair> {
    let file = |extension: &str| directory.join(format!("{}.{extension}", root.file));
    let (certificate_file, key_file) = (file("crt"), file("key"));
    let key = KeyPair::from_pem(&pair.key).map_err(|error| damaged_error(&key_file, &error))?;
    let key_id = leaf::subject_key_id(&pair.certificate).map_err(|error| damaged_error(&certificate_file, &error))?;
    if !leaf::is_for_key(&pair.certificate, key.der_bytes()) {
        return Err(damaged_error(&key_file, &format!("it is not the key of {}.crt", root.file)));
    }
    let issuer =
        Issuer::from_ca_cert_pem(&pair.certificate, key).map_err(|error| damaged_error(&certificate_file, &error))?;
    Ok(CaKeyPair { certificate: pair.certificate.clone(), issuer, key_id })
}

/// Gives a certificate the life that leaf certificates have.
pub fn set_year(params: &mut CertificateParams, now: SystemTime) {
    leaf::set_life(params, now, LEAF_LIFE);
}

/// Signs service-account tokens; its public half verifies them.
fn service_account_key(files: &mut PkiFiles) -> anyhow::Result<String> {
    let path = files.directory().join("sa.key");
    let key = match files.read("sa.key")? {
        Some(pem) => KeyPair::from_pem(&pem).map_err(|error| damaged_error(&path, &error))?,
        None => {
            let key = KeyPair::generate()?;
            files.write("sa.key", &key.serialize_pem())?;
            key
        }
    };
    if files.read("sa.pub")?.is_none_or(|public| public != key.public_key_pem()) {
        files.write("sa.pub", &key.public_key_pem())?;
    }
    Ok(key.serialize_pem())
}

fn ensure_leaf(
    files: &mut PkiFiles,
    ca: &CaKeyPair,
    leaf: &LeafCertificate,
    now: SystemTime,
) -> anyhow::Result<CertificatePair> {
    let file = files.directory().join(format!("{}.crt", leaf.name));
    if let Some(pair) = files.pair(leaf.name)?
        && leaf.is_current(&pair, &ca.key_id, now + RENEW_BEFORE).map_err(|error| damaged_error(&file, &error))?
    {
        return Ok(pair);
    }
    files.write_pair(leaf.name, leaf.issue(&ca.issuer, now)?)
}

fn damaged_error(file: &Path, why: &dyn std::fmt::Display) -> anyhow::Error {
    let is_root = file.file_stem().is_some_and(|stem| ["ca", "front-proxy-ca", "sa"].iter().any(|root| stem == *root));
    let remedy = if is_root {
        format!("Restore {} from a copy, or forget the cluster with `ferry down --purge`.", file.display())
    } else {
        let both: PathBuf = file.with_extension("*");
        format!("Delete {}; the next start makes a new one.", both.display())
    };
    user_error(format!("{} cannot be used: {why}", file.display()), remedy)
}

#[cfg(test)]
mod tests;
