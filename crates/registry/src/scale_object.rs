//! The `Scale` of workloads and custom resources: which fields of an object it stands for.

use api::{Value, apply::scale_ownership::REPLICAS_PATH, meta, schema::Resource, selector, status::Status};
use apiextensions::crd_version;
use serde_json::json;

/// Field paths of the scale subresource.
pub struct ScalePaths {
    /// Path of the desired replicas.
    pub spec: String,
    /// Path of the current replicas.
    status: String,
    /// Path of the serialized label selector; `None` for built-in kinds, which use `spec.selector`.
    selector: Option<String>,
}

impl ScalePaths {
    /// The paths of a resource.
    pub fn for_resource(resource: &Resource) -> Self {
        let plain = |path: &str| path.trim_start_matches('.').to_owned();
        match crd_version(resource).and_then(|version| version.scale()) {
            Some(scale) => {
                Self { spec: plain(&scale.spec), status: plain(&scale.status), selector: Some(plain(&scale.selector)) }
            }
            None => Self { spec: REPLICAS_PATH.to_owned(), status: "status.replicas".to_owned(), selector: None },
        }
    }

    /// 500 if a custom resource does not set the desired replicas, as upstream responds.
    pub fn check_spec_replicas(&self, object: &Value) -> Result<(), Status> {
        if self.selector.is_none() || value_at_path(object, &self.spec).is_some() {
            return Ok(());
        }
        Err(Status::internal_error(format!("the spec replicas field \".{}\" does not exist", self.spec)))
    }
}

fn value_at_path<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |value, name| value.get(name))
}

/// Sets the desired replicas of an object from its scale.
pub fn set_replicas(resource: &Resource, object: &mut Value, scale: &Value) {
    let paths = ScalePaths::for_resource(resource);
    let mut at = object;
    for step in paths.spec.split('.') {
        at = meta::object_mut(at).entry(step).or_insert(Value::Null);
    }
    *at = meta::integer_at(scale, &["spec", "replicas"]).into();
}

/// The `Scale` of an object.
pub fn scale_of(resource: &Resource, object: &Value) -> Value {
    let paths = ScalePaths::for_resource(resource);
    let number = |path: &str| value_at_path(object, path).and_then(Value::as_i64).unwrap_or_default();
    let keep = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: api::Map =
        keep.iter().filter_map(|field| Some(((*field).to_owned(), object["metadata"].get(*field)?.clone()))).collect();
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = match &paths.selector {
        None => selector::format_label_selector(&object["spec"]["selector"]),
        Some(path) => value_at_path(object, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    let replicas = number(&paths.spec);
    if replicas != 0 {
        spec["replicas"] = replicas.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}
