//! The `scale` of a workload: how many replicas it has, as an object of its own.

use api::{
    Value,
    apply::{self, scale_ownership::REPLICAS_PATH},
    decode, meta,
    schema::{Resource, schema},
    selector,
    status::Status,
    validate::FieldError,
};
use apiextensions::version_of;
use apiserver_core::{body::RequestBody, request::ResourceRequest};
use serde_json::json;

use super::posted;
use crate::{
    Outcome, Registry, WriteOptions,
    apply::{CONTENT_TYPE, Configuration},
    update::{UpdateContext, UpdateScope, named_as, patch_body, patch_failed},
};

impl Registry {
    pub(super) async fn scale(&self, target: &ResourceRequest, input: &RequestBody) -> Result<Outcome, Status> {
        let scale = match target.verb {
            "get" => {
                let (object, _) = self.read_object(&target.resource, &target.namespace, &target.name).await?;
                Paths::of(&target.resource).check(&object)?;
                scale_of(&target.resource, &object)
            }
            "update" => {
                let options = WriteOptions::of(target, input)?;
                let mut given = posted(target, input, options.validation)?;
                named_as(target, &mut given)?;
                self.set_scale(target, &options, |shown, writer| written_scale(given.clone(), shown, writer)).await?
            }
            _ if input.content_type == CONTENT_TYPE => {
                let options = WriteOptions::of_apply(target)?;
                let config = Configuration::parse(&input.body)?.value;
                self.set_scale(target, &options, |scale, writer| {
                    apply::apply_config(writer, Some(scale), &config, options.force.unwrap_or_default())
                        .map_err(|error| error.to_status())
                })
                .await?
            }
            _ => {
                let (kind, patch) = patch_body(&target.resource, input)?;
                let options = WriteOptions::of(target, input)?;
                self.set_scale(target, &options, |scale, writer| {
                    let patched = kind.apply_patch(writer.target.ty, scale, &patch).map_err(patch_failed)?;
                    written_scale(patched, scale, writer)
                })
                .await?
            }
        };
        Ok(Outcome::Object { object: scale, stored: None, code: 200 })
    }

    /// Lets `edit` make a new scale, owners included, of the one that shows, and scales the object to it.
    async fn set_scale(
        &self,
        target: &ResourceRequest,
        options: &WriteOptions,
        mut edit: impl FnMut(&Value, &apply::ApplyRequest) -> Result<Value, Status>,
    ) -> Result<Value, Status> {
        let writer = options.writer(apply::ApplyTarget::for_kind("autoscaling/v1", "Scale", scale_type()?, "scale"));
        let (version, paths) = (target.resource.api_version(), Paths::of(&target.resource));
        let changed = self
            .change(target, UpdateContext::asked(UpdateScope::Scale, options), |current| {
                let mut shown = canonical_scale(scale_of(&target.resource, current))?;
                apply::scale_ownership::copy_to_scale(current, &mut shown, &paths.spec)
                    .map_err(Status::internal_error)?;
                let scale = edit(&shown, &writer)?;
                if target.resource.custom_schema.is_none() {
                    valid_scale(&scale, &target.name)?;
                }
                let owners = apply::scale_ownership::merge_from_scale(current, &scale, &version, &paths.spec)
                    .map_err(Status::internal_error)?;
                let mut object = current.clone();
                owners.write_to(&mut object);
                for precondition in ["resourceVersion", "uid"] {
                    let named = meta::string_at(&scale, &["metadata", precondition]);
                    meta::metadata_mut(&mut object).insert(precondition.into(), named.into());
                }
                set_replicas(&target.resource, &mut object, &scale);
                Ok(object)
            })
            .await?;
        Ok(scale_of(&target.resource, &changed.object))
    }
}

fn scale_type() -> Result<api::schema::TypeId, Status> {
    schema().type_named("autoscaling/v1.Scale").ok_or_else(|| Status::internal_error("the schema lacks Scale"))
}

fn canonical_scale(scale: Value) -> Result<Value, Status> {
    let decoded = decode::canonicalize(scale_type()?, scale).map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(decoded.object)
}

/// The scale that a client wants, with the owners of what it changes.
fn written_scale(given: Value, shown: &Value, writer: &apply::ApplyRequest) -> Result<Value, Status> {
    let mut scale = canonical_scale(given)?;
    apply::track_update(writer, Some(shown), &mut scale);
    Ok(scale)
}

fn valid_scale(scale: &Value, name: &str) -> Result<(), Status> {
    let replicas = meta::integer_at(scale, &["spec", "replicas"]);
    if replicas >= 0 {
        return Ok(());
    }
    let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
    Err(Status::invalid_kind("autoscaling", "Scale", name, &[error]))
}

/// Where the replicas of a resource are.
struct Paths {
    /// How many are wanted.
    spec: String,
    /// How many there are.
    status: String,
    /// Which they are, as text; `None`: as the selector of built-in kinds.
    selector: Option<String>,
}

impl Paths {
    fn of(resource: &Resource) -> Self {
        let plain = |path: &str| path.trim_start_matches('.').to_owned();
        match version_of(resource).and_then(|version| version.scale()) {
            Some(scale) => {
                Self { spec: plain(&scale.spec), status: plain(&scale.status), selector: Some(plain(&scale.selector)) }
            }
            None => Self { spec: REPLICAS_PATH.to_owned(), status: "status.replicas".to_owned(), selector: None },
        }
    }

    /// A custom resource that does not say how many are wanted has no scale to show.
    fn check(&self, object: &Value) -> Result<(), Status> {
        if self.selector.is_none() || at(object, &self.spec).is_some() {
            return Ok(());
        }
        Err(Status::internal_error(format!("the spec replicas field \".{}\" does not exist", self.spec)))
    }
}

fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |value, name| value.get(name))
}

/// Scales an object to what its scale says.
pub fn set_replicas(resource: &Resource, object: &mut Value, scale: &Value) {
    let paths = Paths::of(resource);
    let mut at = object;
    for step in paths.spec.split('.') {
        at = meta::object_mut(at).entry(step).or_insert(Value::Null);
    }
    *at = meta::integer_at(scale, &["spec", "replicas"]).into();
}

/// The scale of an object.
pub fn scale_of(resource: &Resource, object: &Value) -> Value {
    let paths = Paths::of(resource);
    let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or_default();
    let keep = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: api::Map =
        keep.iter().filter_map(|field| Some(((*field).to_owned(), object["metadata"].get(*field)?.clone()))).collect();
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = match &paths.selector {
        None => selector::format_label_selector(&object["spec"]["selector"]),
        Some(path) => at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
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
