//! Builds `AdmissionReview` requests and validates their responses.

use std::collections::BTreeMap;

use api::{Value, meta, status::Status};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use super::accessor::WebhookAccessor;
use crate::versioned_request::VersionedRequest;

/// An invalid `AdmissionReview` response.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The patch is not base64-encoded JSON.
    #[error("received undecodable patch in webhook response: {0}")]
    UndecodablePatch(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A field is missing or invalid.
    #[error("received invalid webhook response: {0}")]
    Invalid(String),
}

impl<T: Into<String>> From<T> for ReviewError {
    fn from(message: T) -> Self {
        Self::Invalid(message.into())
    }
}

/// The response of a webhook.
#[derive(Debug, Default)]
pub struct WebhookResponse {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The JSON patch operations.
    pub patch: Option<Value>,
    /// The status of a denial.
    pub result: Value,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Builds the `AdmissionReview` request in the version that the webhook accepts.
pub async fn new_admission_review(
    webhook: &WebhookAccessor,
    versioned_request: &VersionedRequest<'_, '_>,
    object: &Value,
    uid: &str,
) -> Result<Value, Status> {
    let old = versioned_request.attributes.old.unwrap_or(&Value::Null);
    let mut request = versioned_request.admission_request(object);
    request.entry("options").or_insert(Value::Null);
    request.insert("uid".to_owned(), uid.into());
    request.insert("object".to_owned(), versioned_request.convert_object(object).await?.into_owned());
    request.insert("oldObject".to_owned(), versioned_request.convert_object(old).await?.into_owned());
    let version = webhook.review_version.unwrap_or("v1");
    Ok(json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request}))
}

/// Parses and validates an `AdmissionReview` response, whose UID must match the request's.
pub fn verify_admission_response(
    review: &Value,
    webhook: &WebhookAccessor,
    uid: &str,
    mutating: bool,
) -> Result<WebhookResponse, ReviewError> {
    let Some(response) = meta::value_at(review, &["response"]) else {
        return Err("webhook response was absent".into());
    };
    let (patch, kind) =
        (meta::string_at(response, &["patch"]), meta::value_at(response, &["patchType"]).and_then(Value::as_str));
    if webhook.review_version == Some("v1") {
        verify_v1_response(review, response, uid)?;
        match (mutating, patch.is_empty(), kind) {
            (true, false, None) => return Err("webhook returned response.patch but not response.patchType".into()),
            (true, true, Some(_)) => return Err("webhook returned response.patchType but not response.patch".into()),
            (true, _, Some("")) => return Err("webhook returned invalid response.patchType of \"\"".into()),
            (false, false, _) => return Err("validating webhook may not return response.patch".into()),
            (false, _, Some(_)) => return Err("validating webhook may not return response.patchType".into()),
            _ => {}
        }
    }
    let strings = |value: &Value| value.as_str().map(str::to_owned);
    let annotations = meta::value_at(response, &["auditAnnotations"]).and_then(Value::as_object).into_iter().flatten();
    Ok(WebhookResponse {
        allowed: response["allowed"] == true,
        patch: if mutating && !patch.is_empty() { Some(parse_patch(patch)?) } else { None },
        result: response.get("status").cloned().unwrap_or_default(),
        warnings: meta::list_at(response, &["warnings"]).iter().filter_map(strings).collect(),
        annotations: annotations.filter_map(|(key, value)| Some((key.clone(), strings(value)?))).collect(),
    })
}

fn verify_v1_response(review: &Value, response: &Value, uid: &str) -> Result<(), ReviewError> {
    let returned = meta::string_at(response, &["uid"]);
    if returned != uid {
        return Err(format!("expected response.uid={uid:?}, got {returned:?}").into());
    }
    let (version, kind) = (meta::string_at(review, &["apiVersion"]), meta::string_at(review, &["kind"]));
    if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let returned = format!("{group}/{version}, Kind={kind}");
        return Err(
            format!("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {returned}").into()
        );
    }
    Ok(())
}

fn parse_patch(patch: &str) -> Result<Value, ReviewError> {
    let bytes = BASE64_STANDARD.decode(patch).map_err(|error| ReviewError::UndecodablePatch(error.into()))?;
    serde_json::from_slice(&bytes).map_err(|error| ReviewError::UndecodablePatch(error.into()))
}

/// Formats the status of a request that a webhook denied.
pub fn new_rejection_status(webhook: &str, result: &Value) -> Status {
    let denied = format!("admission webhook {webhook:?} denied the request");
    let (message, reason) = (meta::string_at(result, &["message"]), meta::string_at(result, &["reason"]));
    let message = match (message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = meta::value_at(result, &["code"]).and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let known = Status::known_reason(reason);
    Status {
        code,
        reason: known,
        message,
        details: meta::value_at(result, &["details"]).cloned(),
        continue_token: None,
    }
}
