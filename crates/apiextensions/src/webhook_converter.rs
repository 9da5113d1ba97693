//! Converts custom resources between the versions of their CRD: to the storage version, and to the requested version.
//!
//! With the `Webhook` strategy, objects are sent to the conversion webhook in batches; with `None`, only `apiVersion`
//! changes. A converted object must keep the metadata of the original, except labels and annotations.

use std::time::Duration;

use api::{Value, convert, meta, schema::Resource, status::Status};
use apiserver_core::webhook::webhook_address;
use futures::future::BoxFuture;
use serde_json::json;

use super::{CustomResourceDefinitions, crd_version};
use crate::{ConversionStrategy, CrdInfo};

/// A failed conversion; the text is upstream's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct ConversionError(String);

impl<T: Into<String>> From<T> for ConversionError {
    fn from(message: T) -> Self {
        Self(message.into())
    }
}

const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of objects in one `ConversionReview`.
const MAX_REVIEW_OBJECTS: usize = 100;

impl CustomResourceDefinitions {
    /// Converts stored objects to the version of `resource`.
    pub async fn convert_stored(&self, resource: &Resource, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let Some((crd, config)) = webhook_conversion(resource) else {
            return Ok(objects.into_iter().map(|object| convert::convert_to(resource, object)).collect());
        };
        let wanted = resource.api_version();
        let objects: Vec<Value> = objects.into_iter().map(|object| crd.prune_and_default(object)).collect();
        let objects = self.convert_by_webhook(crd, config, objects, &wanted).await?;
        Ok(objects.into_iter().map(|object| convert::convert_to(resource, object)).collect())
    }

    /// Converts one stored object to the version of `resource`.
    pub async fn convert_stored_object(&self, resource: &Resource, object: Value) -> Result<Value, Status> {
        if webhook_conversion(resource).is_none() {
            return Ok(convert::convert_to(resource, object));
        }
        Ok(self.convert_stored(resource, vec![object]).await?.pop().unwrap_or_default())
    }

    /// Converts an object to the storage version; `None` if it already has that version.
    pub async fn convert_to_storage_version(
        &self,
        resource: &Resource,
        object: &Value,
    ) -> Result<Option<Value>, Status> {
        let Some(version) = crd_version(resource) else { return Ok(None) };
        let crd = &version.crd;
        let wanted = crd.api_version(crd.storage_version);
        if meta::string_at(object, &["apiVersion"]) == wanted {
            return Ok(None);
        }
        let mut object = object.clone();
        if let ConversionStrategy::Webhook(config) = &crd.conversion {
            object = self.convert_by_webhook(crd, config, vec![object], &wanted).await?.pop().unwrap_or_default();
        }
        Ok(Some(crd.relabel_version(object, crd.storage_version)))
    }

    /// Converts objects of `resource` to the API version `wanted` of its CRD. Without a webhook, objects are returned
    /// as they are.
    pub async fn convert_to_version(
        &self,
        resource: &Resource,
        objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, Status> {
        match webhook_conversion(resource) {
            Some((crd, config)) => self.convert_by_webhook(crd, config, objects, wanted).await,
            None => Ok(objects),
        }
    }

    /// Whether reading this resource may call a conversion webhook.
    pub fn is_converted_by_webhook(resource: &Resource) -> bool {
        webhook_conversion(resource).is_some()
    }

    /// Converts objects through the webhook. Boxed, because resolving the webhook reads objects and so recurses.
    fn convert_by_webhook<'a>(
        &'a self,
        crd: &'a CrdInfo,
        config: &'a Value,
        objects: Vec<Value>,
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(self.convert_in_batches(crd, config, objects, wanted))
    }

    async fn convert_in_batches(
        &self,
        crd: &CrdInfo,
        config: &Value,
        mut objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, Status> {
        let others: Vec<usize> =
            (0..objects.len()).filter(|at| meta::string_at(&objects[*at], &["apiVersion"]) != wanted).collect();
        for some in others.chunks(MAX_REVIEW_OBJECTS) {
            let kind = format!("{}, Kind={}", meta::string_at(&objects[some[0]], &["apiVersion"]), crd.kind);
            let sent: Vec<Value> = some.iter().map(|at| objects[*at].clone()).collect();
            let failed = |why: String| new_conversion_error(format!("conversion webhook for {kind} {why}"));
            let converted = self.post_conversion_review(crd, config, &sent, wanted).await;
            let converted = converted.map_err(|why| failed(format!("failed: {why}")))?;
            if converted.len() != sent.len() {
                return Err(failed(format!("returned {} objects, expected {}", converted.len(), sent.len())));
            }
            for (at, object) in some.iter().zip(converted) {
                let same = restore_metadata(&objects[*at], object, wanted);
                objects[*at] = same.map_err(|why| failed(format!("returned invalid {why}")))?;
            }
        }
        Ok(objects)
    }

    /// Sends one `ConversionReview` to the conversion webhook.
    async fn post_conversion_review(
        &self,
        crd: &CrdInfo,
        config: &Value,
        objects: &[Value],
        wanted: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        let versions = meta::list_at(config, &["conversionReviewVersions"]).iter().filter_map(Value::as_str);
        let mut versions = versions.filter(|version| ["v1", "v1beta1"].contains(version));
        let version = versions.next().ok_or("no supported conversion review versions")?;
        let uid = uuid::Uuid::new_v4().to_string();
        let review = json!({"kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects}});
        let client = &config["clientConfig"];
        let (address, bundle) = (webhook_address(client), meta::string_at(client, &["caBundle"]));
        let response = self.webhook_clients.call(&address, bundle, review.to_string(), WEBHOOK_TIMEOUT).await;
        let response = response.map_err(|error| error.to_string())?;
        let code = response.status.as_u16();
        tracing::debug!(crd = crd.name, code, count = objects.len(), "objects were converted");
        if !response.status.is_success() {
            let text = String::from_utf8_lossy(&response.body);
            return Err(format!("an error on the server ({text:?}) has prevented the request from succeeding").into());
        }
        let review_response = serde_json::from_slice(&response.body).map_err(|error| error.to_string())?;
        converted_objects(review_response, version, &uid)
    }
}

fn webhook_conversion(resource: &Resource) -> Option<(&CrdInfo, &Value)> {
    let crd = &crd_version(resource)?.crd;
    match &crd.conversion {
        ConversionStrategy::Webhook(config) => Some((crd, config)),
        ConversionStrategy::None => None,
    }
}

/// Builds the 500 status of a failed conversion; its reason is empty, as upstream's is.
fn new_conversion_error(message: String) -> Status {
    Status { code: 500, reason: "", message, details: None, continue_token: None }
}

/// Validates the webhook's `ConversionReview` response and returns its converted objects.
fn converted_objects(mut review_response: Value, version: &str, uid: &str) -> Result<Vec<Value>, ConversionError> {
    if version == "v1" {
        let (kind, group) =
            (meta::string_at(&review_response, &["kind"]), meta::string_at(&review_response, &["apiVersion"]));
        if (kind, group) != ("ConversionReview", "apiextensions.k8s.io/v1") {
            let wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview";
            return Err(format!("expected webhook response of {wanted}, got {group}, Kind={kind}").into());
        }
    }
    let Some(response) = review_response.get_mut("response").filter(|response| response.is_object()) else {
        return Err("no response provided".into());
    };
    let returned = meta::string_at(response, &["uid"]);
    if version == "v1" && returned != uid {
        return Err(format!("expected response.uid={uid:?}, got {returned:?}").into());
    }
    match (meta::string_at(response, &["result", "status"]), meta::string_at(response, &["result", "message"])) {
        ("Success", _) => {}
        (status, "") => return Err(format!("response.result.status was '{status}', not 'Success'").into()),
        (_, message) => return Err(message.into()),
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// Returns the converted object with the original's metadata, except labels and annotations; the error names the
/// invalid field. Upstream converts one object at a time, so every message names index 0.
fn restore_metadata(original: &Value, mut converted: Value, wanted: &str) -> Result<Value, ConversionError> {
    let version = meta::string_at(&converted, &["apiVersion"]);
    if version != wanted {
        return Err(format!("object at index 0: invalid groupVersion (expected {wanted}, received {version})").into());
    }
    let (kind, returned) = (meta::string_at(original, &["kind"]), meta::string_at(&converted, &["kind"]));
    if kind != returned {
        return Err(format!("object at index 0: invalid kind (expected {kind}, received {returned})").into());
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let path = ["metadata", field];
        let (wanted, returned) = (meta::string_at(original, &path), meta::string_at(&converted, &path));
        if wanted != returned {
            return Err(format!("object: must have the same {name}: {wanted} != {returned}").into());
        }
    }
    if !converted["metadata"].is_object() {
        return Err("metadata: missing metadata in converted object".into());
    }
    let mut metadata = original["metadata"].clone();
    for field in ["labels", "annotations"] {
        match converted["metadata"].get(field).filter(|value| value.as_object().is_some_and(|map| !map.is_empty())) {
            Some(value) => metadata[field] = value.clone(),
            None => drop(meta::object_mut(&mut metadata).remove(field)),
        }
    }
    converted["metadata"] = metadata;
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converted_object_must_keep_its_identity() {
        let original = json!({"apiVersion": "e/v1", "kind": "B", "metadata": {"name": "n", "uid": "u",
            "labels": {"a": "b"}, "generation": 3}});
        let check = |converted: Value| restore_metadata(&original, converted, "e/v2");
        let good = check(json!({"apiVersion": "e/v2", "kind": "B", "metadata": {"name": "n", "uid": "u",
            "labels": {"c": "d"}, "generation": 9}, "spec": 1}));
        let want = json!({"apiVersion": "e/v2", "kind": "B", "metadata": {"name": "n", "uid": "u",
            "labels": {"c": "d"}, "generation": 3}, "spec": 1});
        assert_eq!(good, Ok(want));
        let other = check(json!({"apiVersion": "e/v2", "kind": "B", "metadata": {"name": "m", "uid": "u"}}));
        assert_eq!(other, Err("object: must have the same name: n != m".into()));
        let version = check(json!({"apiVersion": "e/v1", "kind": "B"}));
        assert_eq!(version, Err("object at index 0: invalid groupVersion (expected e/v2, received e/v1)".into()));
    }

    #[test]
    fn response_must_match_the_review() {
        let review_response = |uid: &str, result: Value| {
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
                "response": {"uid": uid, "result": result, "convertedObjects": [1]}})
        };
        let good = converted_objects(review_response("u", json!({"status": "Success"})), "v1", "u");
        assert_eq!(good, Ok(vec![json!(1)]));
        let other = converted_objects(review_response("x", json!({"status": "Success"})), "v1", "u");
        assert_eq!(other, Err("expected response.uid=\"u\", got \"x\"".into()));
        let failed = converted_objects(review_response("u", json!({"status": "Failed", "message": "no"})), "v1", "u");
        assert_eq!(failed, Err("no".into()));
    }
}
