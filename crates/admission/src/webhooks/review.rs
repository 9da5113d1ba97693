//! Builds `AdmissionReview` requests and validates their responses.

use std::collections::BTreeMap;

use api::{Value, meta, status::Status};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use super::hook::Hook;
use crate::subject::Subject;

/// The response of a webhook.
#[derive(Debug, Default)]
pub struct Verdict {
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
pub async fn question(hook: &Hook, subject: &Subject<'_, '_>, object: &Value, uid: &str) -> Result<Value, Status> {
    let old = subject.attributes.old.unwrap_or(&Value::Null);
    let mut request = subject.request(object);
    request.entry("options").or_insert(Value::Null);
    request.insert("uid".to_owned(), uid.into());
    request.insert("object".to_owned(), subject.shown(object).await?.into_owned());
    request.insert("oldObject".to_owned(), subject.shown(old).await?.into_owned());
    let version = hook.review.unwrap_or("v1");
    Ok(json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request}))
}

/// Parses and validates an `AdmissionReview` response, whose UID must match the request's.
pub fn verdict(answer: &Value, hook: &Hook, uid: &str, mutating: bool) -> Result<Verdict, String> {
    let Some(response) = meta::value_at(answer, &["response"]) else {
        return Err("webhook response was absent".into());
    };
    let (patch, kind) =
        (meta::string_at(response, &["patch"]), meta::value_at(response, &["patchType"]).and_then(Value::as_str));
    if hook.review == Some("v1") {
        check_v1(answer, response, uid)?;
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
    Ok(Verdict {
        allowed: response["allowed"] == true,
        patch: if mutating && !patch.is_empty() { Some(operations(patch)?) } else { None },
        result: response.get("status").cloned().unwrap_or_default(),
        warnings: meta::list_at(response, &["warnings"]).iter().filter_map(strings).collect(),
        annotations: annotations.filter_map(|(key, value)| Some((key.clone(), strings(value)?))).collect(),
    })
}

fn check_v1(answer: &Value, response: &Value, uid: &str) -> Result<(), String> {
    let given = meta::string_at(response, &["uid"]);
    if given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let (version, kind) = (meta::string_at(answer, &["apiVersion"]), meta::string_at(answer, &["kind"]));
    if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let given = format!("{group}/{version}, Kind={kind}");
        return Err(format!("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {given}"));
    }
    Ok(())
}

fn operations(patch: &str) -> Result<Value, String> {
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = BASE64_STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))
}

/// Formats the status of a request that a webhook denied.
pub fn refusal(hook: &str, result: &Value) -> Status {
    let denied = format!("admission webhook {hook:?} denied the request");
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
