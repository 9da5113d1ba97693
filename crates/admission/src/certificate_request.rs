//! Parses the subject of a certificate signing request.

use api::{Value, meta};
use base64::{Engine, prelude::BASE64_STANDARD};
use x509_parser::prelude::{FromDer, Pem, X509CertificationRequest};

use crate::DenialReason;

/// The subject of a certificate signing request.
pub struct CertificateSubject {
    /// The common name (CN).
    pub common_name: String,
    /// The organizations (O).
    pub organizations: Vec<String>,
}

/// Parses the subject of the PEM-encoded PKCS #10 request in `spec.request`.
pub fn parse_request_subject(request: &Value) -> Result<CertificateSubject, DenialReason> {
    let pem =
        BASE64_STANDARD.decode(meta::string_at(request, &["spec", "request"])).map_err(|error| error.to_string())?;
    let block = Pem::iter_from_buffer(&pem).next();
    let Some(Ok(block)) = block.filter(|block| matches!(block, Ok(pem) if pem.label == "CERTIFICATE REQUEST")) else {
        return Err("PEM block type must be CERTIFICATE REQUEST".into());
    };
    let (_, parsed) = X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
    let subject = &parsed.certification_request_info.subject;
    let texts = |attributes: Vec<&str>| attributes.into_iter().map(str::to_owned).collect::<Vec<String>>();
    let organizations = texts(subject.iter_organization().filter_map(|part| part.as_str().ok()).collect());
    let common_name = texts(subject.iter_common_name().filter_map(|part| part.as_str().ok()).collect()).pop();
    Ok(CertificateSubject { common_name: common_name.unwrap_or_default(), organizations })
}
