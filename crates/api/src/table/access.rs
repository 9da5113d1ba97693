//! Rows of role bindings and of requests for certificates.

use super::{
    format::labels,
    printer::{AGE, Column, NAME, text, wide},
    row::Row,
};
use crate::{Value, meta, time};

pub(super) const BINDING: &[Column] =
    &[NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")];

pub(super) fn binding(row: &Row) -> Vec<Value> {
    let subjects = |kind: &str| -> Value {
        let of_kind = row.list(&["subjects"]).iter().filter(|subject| subject["kind"] == kind);
        let name = |subject: &Value| match kind {
            "ServiceAccount" => format!("{}/{}", meta::text(subject, &["namespace"]), meta::text(subject, &["name"])),
            _ => meta::text(subject, &["name"]).to_owned(),
        };
        of_kind.map(name).collect::<Vec<_>>().join(", ").into()
    };
    let role = format!("{}/{}", row.text(&["roleRef", "kind"]), row.text(&["roleRef", "name"]));
    vec![row.name(), role.into(), row.age(), subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

pub(super) const SIGNING_REQUEST: &[Column] =
    &[NAME, AGE, text("SignerName"), text("Requestor"), text("RequestedDuration"), text("Condition")];

pub(super) fn signing_request(row: &Row) -> Vec<Value> {
    let lifetime = row.at(&["spec", "expirationSeconds"]).and_then(Value::as_i64).map(time::human);
    vec![
        row.name(),
        row.age(),
        row.text_or(&["spec", "signerName"], "<none>"),
        row.text(&["spec", "username"]).into(),
        lifetime.unwrap_or_else(|| "<none>".to_owned()).into(),
        signing_state(row).into(),
    ]
}

fn signing_state(row: &Row) -> String {
    let mut state = match (row.condition("Denied"), row.condition("Approved")) {
        (Some(_), _) => "Denied",
        (None, Some(_)) => "Approved",
        (None, None) => "Pending",
    }
    .to_owned();
    if row.condition("Failed").is_some() {
        state.push_str(",Failed");
    }
    if !row.text(&["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

pub(super) const TRUST_BUNDLE: &[Column] = &[NAME, text("SignerName")];

pub(super) fn trust_bundle(row: &Row) -> Vec<Value> {
    vec![row.name(), row.text_or(&["spec", "signerName"], "<none>")]
}

pub(super) const POD_CERTIFICATE: &[Column] = &[
    NAME,
    text("PodName"),
    text("ServiceAccountName"),
    text("NodeName"),
    text("SignerName"),
    text("State"),
    text("UnverifiedUserAnnotations"),
];

pub(super) fn pod_certificate(row: &Row) -> Vec<Value> {
    let mut types = row.list(&["status", "conditions"]).iter().map(|condition| meta::text(condition, &["type"]));
    let state = types.rfind(|ty| matches!(*ty, "Issued" | "Denied" | "Failed")).unwrap_or("Pending");
    let mut cells = vec![row.name()];
    cells.extend(
        ["podName", "serviceAccountName", "nodeName", "signerName"].map(|field| row.text(&["spec", field]).into()),
    );
    cells.extend([state.into(), labels(row.at(&["spec", "unverifiedUserAnnotations"])).into()]);
    cells
}
