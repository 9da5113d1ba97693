//! Converts custom resources between the versions of their CRD: to the storage version, and to the requested version.
//!
//! With the `Webhook` strategy, objects are sent to the conversion webhook in batches; with `None`, only `apiVersion`
//! changes. A converted object must keep the metadata of the original, except labels and annotations.

use std::time::Duration;

use api::{Value, convert, meta, schema::Resource, status::Status};
use apiserver_core::webhook::webhook_address;
use futures::future::BoxFuture;
use serde_json::json;

use super::{CustomResourceDefinitions, version_of};
use crate::{Conversion, Definition};

const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of objects in one `ConversionReview`.
const MOST: usize = 100;

impl CustomResourceDefinitions {
    /// Converts stored objects to the version of `resource`.
    pub async fn in_version(&self, resource: &Resource, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let Some((definition, config)) = by_webhook(resource) else {
            return Ok(objects.into_iter().map(|object| convert::convert_to(resource, object)).collect());
        };
        let wanted = resource.api_version();
        let objects: Vec<Value> = objects.into_iter().map(|object| definition.refreshed(object)).collect();
        let objects = self.converted(definition, config, objects, &wanted).await?;
        Ok(objects.into_iter().map(|object| convert::convert_to(resource, object)).collect())
    }

    /// Converts one stored object to the version of `resource`.
    pub async fn one_in_version(&self, resource: &Resource, object: Value) -> Result<Value, Status> {
        if by_webhook(resource).is_none() {
            return Ok(convert::convert_to(resource, object));
        }
        Ok(self.in_version(resource, vec![object]).await?.pop().unwrap_or_default())
    }

    /// Converts an object to the storage version; `None` if it already has that version.
    pub async fn to_stored(&self, resource: &Resource, object: &Value) -> Result<Option<Value>, Status> {
        let Some(version) = version_of(resource) else { return Ok(None) };
        let definition = &version.definition;
        let wanted = definition.api_version(definition.stored);
        if meta::string_at(object, &["apiVersion"]) == wanted {
            return Ok(None);
        }
        let mut object = object.clone();
        if let Conversion::Webhook(config) = &definition.conversion {
            object = self.converted(definition, config, vec![object], &wanted).await?.pop().unwrap_or_default();
        }
        Ok(Some(definition.renamed(object, definition.stored)))
    }

    /// Converts objects of `resource` to the API version `wanted` of its CRD. Without a webhook, objects are returned
    /// as they are.
    pub async fn in_other_version(
        &self,
        resource: &Resource,
        objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, Status> {
        match by_webhook(resource) {
            Some((definition, config)) => self.converted(definition, config, objects, wanted).await,
            None => Ok(objects),
        }
    }

    /// Whether reading this resource may call a conversion webhook.
    pub fn is_converted_by_webhook(resource: &Resource) -> bool {
        by_webhook(resource).is_some()
    }

    /// Converts objects through the webhook. Boxed, because resolving the webhook reads objects and so recurses.
    fn converted<'a>(
        &'a self,
        definition: &'a Definition,
        config: &'a Value,
        objects: Vec<Value>,
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(self.all_converted(definition, config, objects, wanted))
    }

    async fn all_converted(
        &self,
        definition: &Definition,
        config: &Value,
        mut objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, Status> {
        let others: Vec<usize> =
            (0..objects.len()).filter(|at| meta::string_at(&objects[*at], &["apiVersion"]) != wanted).collect();
        for some in others.chunks(MOST) {
            let kind = format!("{}, Kind={}", meta::string_at(&objects[some[0]], &["apiVersion"]), definition.kind);
            let sent: Vec<Value> = some.iter().map(|at| objects[*at].clone()).collect();
            let failed = |why: String| unconverted(format!("conversion webhook for {kind} {why}"));
            let answered = self.ask(definition, config, &sent, wanted).await;
            let answered = answered.map_err(|why| failed(format!("failed: {why}")))?;
            if answered.len() != sent.len() {
                return Err(failed(format!("returned {} objects, expected {}", answered.len(), sent.len())));
            }
            for (at, object) in some.iter().zip(answered) {
                let same = same_object(&objects[*at], object, wanted);
                objects[*at] = same.map_err(|why| failed(format!("returned invalid {why}")))?;
            }
        }
        Ok(objects)
    }

    /// Sends one `ConversionReview` to the conversion webhook.
    async fn ask(
        &self,
        definition: &Definition,
        config: &Value,
        objects: &[Value],
        wanted: &str,
    ) -> Result<Vec<Value>, String> {
        let versions = meta::list_at(config, &["conversionReviewVersions"]).iter().filter_map(Value::as_str);
        let mut versions = versions.filter(|version| ["v1", "v1beta1"].contains(version));
        let version = versions.next().ok_or("no supported conversion review versions")?;
        let uid = uuid::Uuid::new_v4().to_string();
        let review = json!({"kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects}});
        let client = &config["clientConfig"];
        let (address, bundle) = (webhook_address(client), meta::string_at(client, &["caBundle"]));
        let response = self.webhook_clients.call(&address, bundle, review.to_string(), PATIENCE).await;
        let response = response.map_err(|error| error.to_string())?;
        let code = response.status.as_u16();
        tracing::debug!(definition = definition.name, code, count = objects.len(), "objects were converted");
        if !response.status.is_success() {
            let text = String::from_utf8_lossy(&response.body);
            return Err(format!("an error on the server ({text:?}) has prevented the request from succeeding"));
        }
        let answer = serde_json::from_slice(&response.body).map_err(|error| error.to_string())?;
        converted_objects(answer, version, &uid)
    }
}

fn by_webhook(resource: &Resource) -> Option<(&Definition, &Value)> {
    let definition = &version_of(resource)?.definition;
    match &definition.conversion {
        Conversion::Webhook(config) => Some((definition, config)),
        Conversion::None => None,
    }
}

/// Builds the 500 status of a failed conversion; its reason is empty, as upstream's is.
fn unconverted(message: String) -> Status {
    Status { code: 500, reason: "", message, details: None, continue_token: None }
}

/// Validates the webhook's `ConversionReview` response and returns its converted objects.
fn converted_objects(mut answer: Value, version: &str, uid: &str) -> Result<Vec<Value>, String> {
    if version == "v1" {
        let (kind, group) = (meta::string_at(&answer, &["kind"]), meta::string_at(&answer, &["apiVersion"]));
        if (kind, group) != ("ConversionReview", "apiextensions.k8s.io/v1") {
            let wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview";
            return Err(format!("expected webhook response of {wanted}, got {group}, Kind={kind}"));
        }
    }
    let Some(response) = answer.get_mut("response").filter(|response| response.is_object()) else {
        return Err("no response provided".to_owned());
    };
    let given = meta::string_at(response, &["uid"]);
    if version == "v1" && given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    match (meta::string_at(response, &["result", "status"]), meta::string_at(response, &["result", "message"])) {
        ("Success", _) => {}
        (status, "") => return Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => return Err(message.to_owned()),
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// Returns the converted object with the original's metadata, except labels and annotations; the error names the
/// invalid field. Upstream converts one object at a time, so every message names index 0.
fn same_object(original: &Value, mut converted: Value, wanted: &str) -> Result<Value, String> {
    let version = meta::string_at(&converted, &["apiVersion"]);
    if version != wanted {
        return Err(format!("object at index 0: invalid groupVersion (expected {wanted}, received {version})"));
    }
    let (kind, given) = (meta::string_at(original, &["kind"]), meta::string_at(&converted, &["kind"]));
    if kind != given {
        return Err(format!("object at index 0: invalid kind (expected {kind}, received {given})"));
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let path = ["metadata", field];
        let (wanted, given) = (meta::string_at(original, &path), meta::string_at(&converted, &path));
        if wanted != given {
            return Err(format!("object: must have the same {name}: {wanted} != {given}"));
        }
    }
    if !converted["metadata"].is_object() {
        return Err("metadata: missing metadata in converted object".to_owned());
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
    fn what_comes_back_must_be_the_same_object() {
        let original = json!({"apiVersion": "e/v1", "kind": "B", "metadata": {"name": "n", "uid": "u",
            "labels": {"a": "b"}, "generation": 3}});
        let check = |converted: Value| same_object(&original, converted, "e/v2");
        let good = check(json!({"apiVersion": "e/v2", "kind": "B", "metadata": {"name": "n", "uid": "u",
            "labels": {"c": "d"}, "generation": 9}, "spec": 1}));
        let want = json!({"apiVersion": "e/v2", "kind": "B", "metadata": {"name": "n", "uid": "u",
            "labels": {"c": "d"}, "generation": 3}, "spec": 1});
        assert_eq!(good, Ok(want));
        let other = check(json!({"apiVersion": "e/v2", "kind": "B", "metadata": {"name": "m", "uid": "u"}}));
        assert_eq!(other, Err("object: must have the same name: n != m".to_owned()));
        let version = check(json!({"apiVersion": "e/v1", "kind": "B"}));
        assert_eq!(version, Err("object at index 0: invalid groupVersion (expected e/v2, received e/v1)".to_owned()));
    }

    #[test]
    fn answers_are_those_to_the_question() {
        let answer = |uid: &str, result: Value| {
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
                "response": {"uid": uid, "result": result, "convertedObjects": [1]}})
        };
        let good = converted_objects(answer("u", json!({"status": "Success"})), "v1", "u");
        assert_eq!(good, Ok(vec![json!(1)]));
        let other = converted_objects(answer("x", json!({"status": "Success"})), "v1", "u");
        assert_eq!(other, Err("expected response.uid=\"u\", got \"x\"".to_owned()));
        let failed = converted_objects(answer("u", json!({"status": "Failed", "message": "no"})), "v1", "u");
        assert_eq!(failed, Err("no".to_owned()));
    }
}
