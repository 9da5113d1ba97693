//! Certificates for tests: an authority, and what it issues, in files of a directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// An authority. Its certificate is `NAME.crt` in its directory.
pub struct TestCa {
    dir: PathBuf,
    params: CertificateParams,
    key: KeyPair,
}

impl TestCa {
    /// A new one.
    pub fn new(dir: &Path, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("signed").pem();
        fs::write(dir.join(format!("{name}.crt")), certificate).expect("written");
        Self { dir: dir.to_owned(), params, key }
    }

    /// Writes `NAME.crt` and `NAME.key`: for a user of that name in a group, or for a server on loopback and of these names.
    pub fn issue(&self, name: &str, group: &str, names: &[&str]) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        fs::write(self.dir.join(format!("{name}.crt")), certificate.pem()).expect("written");
        fs::write(self.dir.join(format!("{name}.key")), key.serialize_pem()).expect("written");
    }
}
