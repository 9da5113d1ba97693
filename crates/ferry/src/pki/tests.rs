//! Tests of finding, issuing, renewing and rejecting certificates.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, SystemTime},
};

use super::{ClusterNames, certificate_expiries, check_pki, prepare_pki};

fn names(ip: &str) -> ClusterNames {
    ClusterNames { node: "node-1".into(), ips: vec![ip.parse().unwrap()] }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[test]
fn what_is_there_is_reused() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let first = prepare_pki(directory.path(), &names("192.0.2.1"), now).unwrap();
    assert!(first.issued.contains(&"ca") && first.issued.contains(&"sa.key"));
    let second = prepare_pki(directory.path(), &names("192.0.2.1"), now).unwrap();
    assert_eq!(second.issued, Vec::<&str>::new());
    assert_eq!((first.ca, first.admin), (second.ca, second.admin));
    check_pki(directory.path()).unwrap();
}

#[test]
fn new_names_and_a_near_end_renew_leaves_only() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let first = prepare_pki(directory.path(), &names("192.0.2.1"), now).unwrap();
    let moved = prepare_pki(directory.path(), &names("192.0.2.2"), now).unwrap();
    assert_eq!(moved.issued, ["apiserver", "kubelet"]);
    assert_eq!((&first.ca, &first.admin), (&moved.ca, &moved.admin));
    let late = prepare_pki(directory.path(), &names("192.0.2.2"), now + YEAR - Duration::from_secs(3600)).unwrap();
    assert_eq!(
        late.issued,
        ["apiserver", "apiserver-kubelet-client", "kubelet", "metrics-server", "admin", "front-proxy-client"]
    );
    assert_eq!((first.ca, first.front_proxy_ca), (late.ca, late.front_proxy_ca));
    assert_eq!(certificate_expiries(directory.path()).unwrap().len(), 8);
}

#[test]
fn renewed_certificates_are_in_use_after_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let certificates = prepare_pki(directory.path(), &names("192.0.2.1"), now).unwrap().certificates;
    let before = certificates.front_proxy.current().cert.clone();
    certificates.reload().unwrap();
    assert_eq!(certificates.front_proxy.current().cert, before);
    prepare_pki(directory.path(), &names("192.0.2.1"), now + YEAR).unwrap();
    certificates.reload().unwrap();
    assert_ne!(certificates.front_proxy.current().cert, before);
}

#[test]
fn leaves_of_another_authority_are_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    prepare_pki(directory.path(), &names("192.0.2.1"), now).unwrap();
    for file in ["ca.crt", "ca.key"] {
        fs::remove_file(directory.path().join(file)).unwrap();
    }
    let pki = prepare_pki(directory.path(), &names("192.0.2.1"), now).unwrap();
    assert_eq!(pki.issued, ["ca", "apiserver", "apiserver-kubelet-client", "kubelet", "metrics-server", "admin"]);
}

#[test]
fn damage_is_refused_by_file() {
    let directory = tempfile::tempdir().unwrap();
    check_pki(&directory.path().join("absent")).unwrap();
    prepare_pki(directory.path(), &names("192.0.2.1"), SystemTime::now()).unwrap();
    for (file, remedy) in [("admin.crt", "Delete"), ("ca.crt", "Restore"), ("front-proxy-ca.crt", "Restore")] {
        let path = directory.path().join(file);
        let good = fs::read(&path).unwrap();
        fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let refused = check_pki(directory.path()).unwrap_err().to_string();
        assert!(refused.contains(file) && refused.contains(remedy), "{refused}");
        assert!(prepare_pki(directory.path(), &names("192.0.2.1"), SystemTime::now()).is_err());
        fs::write(&path, good).unwrap();
    }
}

#[test]
fn keys_are_private_and_tls_is_usable() {
    let directory = tempfile::tempdir().unwrap();
    let pki = prepare_pki(directory.path(), &names("192.0.2.1"), SystemTime::now()).unwrap();
    for entry in fs::read_dir(directory.path()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".key") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        }
    }
    let certificates = &pki.certificates;
    let verifier = apiserver::client_verifier(&apiserver::AuthenticationConfig::default());
    certificates.api_server_tls(verifier).unwrap();
    certificates.kubelet_tls(&pki.ca).unwrap();
    certificates.kubelet_client_tls(&pki.ca).unwrap();
}
