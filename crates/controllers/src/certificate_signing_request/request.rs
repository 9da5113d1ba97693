//! PKCS#10 certificate requests and upstream's rules for kubelet certificates.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    pem::Pem,
    prelude::FromDer,
};

/// Signer of client certificates of kubelets.
pub(super) const KUBELET_CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// The request is not PKCS#10 in PEM.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseRequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    #[error("{0}")]
    Der(#[from] x509_parser::nom::Err<x509_parser::error::X509Error>),
    #[error("unable to verify certificate request signature: {0}")]
    Signature(#[from] x509_parser::error::X509Error),
}

/// A rule of a signer that a certificate request breaks, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignerRuleViolation {
    #[error("{0} subjectAltNames are not allowed")]
    AltNameNotAllowed(&'static str),
    #[error("DNS or IP subjectAltName is required")]
    AltNameMissing,
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error("usages did not match [{}]", .0.join(" "))]
    Usages(Vec<String>),
    #[error("invalid usage for client certificate: {0}")]
    UsageNotAllowed(String),
    #[error("missing required usage for client certificate: client auth")]
    ClientAuthMissing,
}

/// The parts of a certificate request that rules and certificates need.
#[derive(Debug, Default)]
pub(super) struct ParsedRequest {
    /// DER of the subject.
    pub(super) subject: Vec<u8>,
    /// DER of the SubjectPublicKeyInfo.
    pub(super) public_key: Vec<u8>,
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    pub(super) dns_names: Vec<String>,
    pub(super) emails: Vec<String>,
    pub(super) ip_addresses: Vec<Vec<u8>>,
    pub(super) uris: Vec<String>,
}

impl ParsedRequest {
    /// Parses `spec.request` and verifies its signature.
    pub(super) fn from_object(object: &CertificateSigningRequest) -> Result<Self, ParseRequestError> {
        let pem = Pem::iter_from_buffer(&object.spec.request.0).next().and_then(Result::ok);
        let pem = pem.filter(|pem| pem.label == "CERTIFICATE REQUEST").ok_or(ParseRequestError::Pem)?;
        let (_, request) = X509CertificationRequest::from_der(&pem.contents)?;
        request.verify_signature()?;
        let info = &request.certification_request_info;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).unwrap_or_default()
        };
        let mut parsed = Self {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            common_name: info.subject.iter_common_name().last().map(text).unwrap_or_default(),
            organizations: info.subject.iter_organization().map(text).collect(),
            ..Self::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                names.general_names.iter().for_each(|name| parsed.add_name(name));
            }
        }
        Ok(parsed)
    }

    fn add_name(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).into()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).into()),
            GeneralName::URI(name) => self.uris.push((*name).into()),
            GeneralName::IPAddress(address) => self.ip_addresses.push(address.to_vec()),
            _ => {}
        }
    }

    /// Checks the rules of `kubernetes.io/kube-apiserver-client-kubelet`.
    pub(super) fn check_kubelet_client(&self, usages: &[String]) -> Result<(), SignerRuleViolation> {
        self.check_organization()?;
        let not_allowed = [
            ("DNS", self.dns_names.is_empty()),
            ("Email", self.emails.is_empty()),
            ("IP", self.ip_addresses.is_empty()),
            ("URI", self.uris.is_empty()),
        ];
        if let Some((kind, _)) = not_allowed.iter().find(|(_, absent)| !absent) {
            return Err(SignerRuleViolation::AltNameNotAllowed(kind));
        }
        self.check_common_name()?;
        check_usages(usages, "client auth")
    }

    /// Checks the rules of `kubernetes.io/kubelet-serving`.
    pub(super) fn check_kubelet_serving(&self, usages: &[String]) -> Result<(), SignerRuleViolation> {
        self.check_organization()?;
        if self.dns_names.is_empty() && self.ip_addresses.is_empty() {
            return Err(SignerRuleViolation::AltNameMissing);
        }
        if !self.emails.is_empty() {
            return Err(SignerRuleViolation::AltNameNotAllowed("Email"));
        }
        if !self.uris.is_empty() {
            return Err(SignerRuleViolation::AltNameNotAllowed("URI"));
        }
        check_usages(usages, "server auth")?;
        self.check_common_name()
    }

    fn check_organization(&self) -> Result<(), SignerRuleViolation> {
        match self.organizations.as_slice() {
            [only] if only == "system:nodes" => Ok(()),
            _ => Err(SignerRuleViolation::Organization),
        }
    }

    fn check_common_name(&self) -> Result<(), SignerRuleViolation> {
        match self.common_name.starts_with("system:node:") {
            true => Ok(()),
            false => Err(SignerRuleViolation::CommonName),
        }
    }
}

/// Requires `digital signature` and one extended usage; `key encipherment` is optional.
fn check_usages(usages: &[String], extended: &str) -> Result<(), SignerRuleViolation> {
    let mut given: Vec<&str> = usages.iter().map(String::as_str).collect();
    given.sort_unstable();
    given.dedup();
    let mut required = ["digital signature", extended, "key encipherment"];
    required.sort_unstable();
    let without_rsa: Vec<&str> = required.iter().copied().filter(|usage| *usage != "key encipherment").collect();
    match given == required || given == without_rsa {
        true => Ok(()),
        false => Err(SignerRuleViolation::Usages(required.map(str::to_owned).into())),
    }
}

/// Checks the usages of `kubernetes.io/kube-apiserver-client`.
pub(super) fn check_client_usages(usages: &[String]) -> Result<(), SignerRuleViolation> {
    let optional = ["digital signature", "key encipherment"];
    let is_allowed = |usage: &String| usage == "client auth" || optional.contains(&usage.as_str());
    if let Some(usage) = usages.iter().find(|usage| !is_allowed(usage)) {
        return Err(SignerRuleViolation::UsageNotAllowed(usage.clone()));
    }
    match usages.iter().any(|usage| usage == "client auth") {
        true => Ok(()),
        false => Err(SignerRuleViolation::ClientAuthMissing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usages(list: &[&str]) -> Vec<String> {
        list.iter().map(|usage| (*usage).to_owned()).collect()
    }

    #[test]
    fn kubelet_rules_have_upstreams_messages() {
        let client = usages(&["client auth", "digital signature"]);
        let mut request = ParsedRequest { common_name: "system:node:n1".into(), ..Default::default() };
        assert_eq!(
            request.check_kubelet_client(&client).unwrap_err().to_string(),
            "subject organization is not system:nodes"
        );
        request.organizations = vec!["system:nodes".into()];
        request.check_kubelet_client(&client).unwrap();
        assert_eq!(
            request.check_kubelet_client(&usages(&["client auth"])).unwrap_err().to_string(),
            "usages did not match [client auth digital signature key encipherment]"
        );
        let serving = usages(&["digital signature", "key encipherment", "server auth"]);
        assert_eq!(
            request.check_kubelet_serving(&serving).unwrap_err().to_string(),
            "DNS or IP subjectAltName is required"
        );
        request.dns_names = vec!["n1".into()];
        request.check_kubelet_serving(&serving).unwrap();
        assert_eq!(
            request.check_kubelet_client(&client).unwrap_err().to_string(),
            "DNS subjectAltNames are not allowed"
        );
        request.common_name = "n1".into();
        assert_eq!(
            request.check_kubelet_serving(&serving).unwrap_err().to_string(),
            "subject common name does not begin with system:node:"
        );
    }

    #[test]
    fn client_certificates_need_client_auth_only() {
        check_client_usages(&usages(&["client auth", "key encipherment"])).unwrap();
        assert_eq!(
            check_client_usages(&usages(&["server auth"])).unwrap_err().to_string(),
            "invalid usage for client certificate: server auth"
        );
        assert_eq!(
            check_client_usages(&usages(&["digital signature"])).unwrap_err().to_string(),
            "missing required usage for client certificate: client auth"
        );
    }
}
