//! The `scale` of a workload: how many replicas it has, as an object of its own.

use api::{Value, apply, decode, meta, schema::schema, selector, status::Status, validate::FieldError};
use serde_json::json;

use super::posted;
use crate::{
    pipeline::Input,
    registry::{
        Outcome, Registry, WriteOptions,
        apply::{CONTENT_TYPE, Configuration},
        update::{Part, named_as, patch_body, patch_failed},
    },
    request::Target,
};

impl Registry {
    pub(super) async fn scale(&self, target: &Target, input: &Input) -> Result<Outcome, Status> {
        let mut warnings = Vec::new();
        let scale = match target.verb {
            "get" => scale_of(&self.read_object(&target.resource, &target.namespace, &target.name).await?.0),
            "update" => {
                let options = WriteOptions::of(target, input)?;
                let (mut given, said) = posted(target, input, options.validation)?;
                named_as(target, &mut given)?;
                warnings = said;
                self.set_scale(target, &options, |shown, writer| written_scale(given.clone(), shown, writer)).await?
            }
            _ if input.content_type == CONTENT_TYPE => {
                let options = WriteOptions::of_apply(target)?;
                let config = Configuration::parse(&input.body)?.value;
                self.set_scale(target, &options, |scale, writer| {
                    apply::apply(writer, Some(scale), &config, options.force.unwrap_or_default())
                        .map_err(|error| error.status())
                })
                .await?
            }
            _ => {
                let (kind, patch) = patch_body(input)?;
                let options = WriteOptions::of(target, input)?;
                self.set_scale(target, &options, |scale, writer| {
                    let patched = kind.apply(writer.kind.ty, scale, &patch).map_err(patch_failed)?;
                    written_scale(patched, scale, writer)
                })
                .await?
            }
        };
        Ok(Outcome::Object { object: scale, code: 200, warnings })
    }

    /// Lets `edit` make a new scale, owners included, of the one that shows, and scales the object to it.
    async fn set_scale(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut edit: impl FnMut(&Value, &apply::Writer) -> Result<Value, Status>,
    ) -> Result<Value, Status> {
        let writer = options.writer(apply::Kind::other("autoscaling/v1", "Scale", scale_type()?, "scale"));
        let version = target.resource.api_version();
        let changed = self
            .change(target, Part::Scale, options.dry_run, |current| {
                let mut shown = canonical_scale(scale_of(current))?;
                apply::scale::show(current, &mut shown).map_err(Status::internal)?;
                let scale = edit(&shown, &writer)?;
                valid_scale(&scale, &target.name)?;
                let owners = apply::scale::merge(current, &scale, &version).map_err(Status::internal)?;
                let mut object = current.clone();
                owners.write(&mut object);
                for precondition in ["resourceVersion", "uid"] {
                    let named = meta::text(&scale, &["metadata", precondition]);
                    meta::metadata_mut(&mut object).insert(precondition.into(), named.into());
                }
                meta::field_mut(&mut object, "spec")
                    .insert("replicas".into(), meta::number(&scale, &["spec", "replicas"]).into());
                Ok(object)
            })
            .await?;
        Ok(scale_of(&changed.object))
    }
}

fn scale_type() -> Result<api::schema::TypeId, Status> {
    schema().type_named("autoscaling/v1.Scale").ok_or_else(|| Status::internal("the schema lacks Scale"))
}

fn canonical_scale(scale: Value) -> Result<Value, Status> {
    let decoded = decode::canonical(scale_type()?, scale).map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(decoded.object)
}

/// The scale that a client wants, with the owners of what it changes.
fn written_scale(given: Value, shown: &Value, writer: &apply::Writer) -> Result<Value, Status> {
    let mut scale = canonical_scale(given)?;
    apply::update(writer, Some(shown), &mut scale);
    Ok(scale)
}

fn valid_scale(scale: &Value, name: &str) -> Result<(), Status> {
    let replicas = meta::number(scale, &["spec", "replicas"]);
    if replicas >= 0 {
        return Ok(());
    }
    let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
    Err(Status::invalid_kind("autoscaling", "Scale", name, &[error]))
}

pub fn scale_of(object: &Value) -> Value {
    let keep = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: api::Map =
        keep.iter().filter_map(|field| Some(((*field).to_owned(), object["metadata"].get(*field)?.clone()))).collect();
    let mut status = json!({"replicas": meta::number(object, &["status", "replicas"])});
    let selector = selector::text(&object["spec"]["selector"]);
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    let replicas = meta::number(object, &["spec", "replicas"]);
    if replicas != 0 {
        spec["replicas"] = replicas.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}
