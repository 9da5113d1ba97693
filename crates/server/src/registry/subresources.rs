//! The subresources that are objects: status, finalize, scale and binding.

use api::{Value, apply, decode, meta, schema::schema, selector, status::Status, validate::FieldError};
use serde_json::json;

use super::{
    Outcome, Registry, WriteOptions,
    apply::Configuration,
    update::{Part, patch_body, patch_failed},
    wrong_uid,
};
use crate::{clock, pipeline::Input, request::Target};

impl Registry {
    pub(super) async fn subresource(&self, target: &Target, input: &Input) -> Result<Outcome, Status> {
        match (target.subresource.as_str(), target.verb) {
            ("status", "get") => {
                let record = self.read(target.resource, &target.namespace, &target.name).await?;
                Ok(Outcome::Document { value: record.value, revision: record.revision })
            }
            ("status", "update") => self.update_part(target, input, Part::Status).await,
            ("status", "patch") => self.patch_part(target, input, Part::Status).await,
            ("finalize", "update") => self.update_part(target, input, Part::Finalize).await,
            ("scale", _) => self.scale(target, input).await,
            ("binding" | "", "create") => self.bind(target, input).await,
            (other, _) => Err(Status::not_implemented(format!("{}/{other}", target.resource.qualified_name()))),
        }
    }

    async fn scale(&self, target: &Target, input: &Input) -> Result<Outcome, Status> {
        let scale = match target.verb {
            "get" => scale_of(&self.read_object(target.resource, &target.namespace, &target.name).await?.0),
            "update" => {
                let given = input.object("Scale")?;
                let options = WriteOptions::of(target, input)?;
                self.set_scale(target, &options, |shown, writer| written_scale(given.clone(), shown, writer)).await?
            }
            _ if input.content_type == super::apply::CONTENT_TYPE => {
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
        Ok(Outcome::Object { object: scale, code: 200, warnings: Vec::new() })
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
            .change(target, Part::Main, options.dry_run, |current| {
                let mut shown = canonical_scale(scale_of(current))?;
                apply::scale::show(current, &mut shown).map_err(Status::internal)?;
                let scale = edit(&shown, &writer)?;
                valid_scale(&scale, &target.name)?;
                let owners = apply::scale::merge(current, &scale, &version).map_err(Status::internal)?;
                let mut object = current.clone();
                owners.write(&mut object);
                let revision = meta::text(&scale, &["metadata", "resourceVersion"]);
                meta::metadata_mut(&mut object).insert("resourceVersion".into(), revision.into());
                meta::field_mut(&mut object, "spec")
                    .insert("replicas".into(), meta::number(&scale, &["spec", "replicas"]).into());
                Ok(object)
            })
            .await?;
        Ok(scale_of(&changed))
    }

    /// Assigns a pod to a node: `pods/<name>/binding`, or `bindings` with the pod's name in the metadata.
    async fn bind(&self, target: &Target, input: &Input) -> Result<Outcome, Status> {
        let pods = schema().resource("", "v1", "pods").ok_or_else(|| Status::internal("the schema lacks pods"))?;
        let binding = input.object("Binding")?;
        let name = if target.name.is_empty() { meta::name(&binding) } else { &target.name };
        let node = meta::text(&binding, &["target", "name"]).to_owned();
        if node.is_empty() || !matches!(meta::text(&binding, &["target", "kind"]), "" | "Node") {
            return Err(Status::bad_request("a binding needs target.kind Node and target.name"));
        }
        let pod = Target {
            resource: pods,
            verb: "update",
            namespace: target.namespace.clone(),
            name: name.to_owned(),
            subresource: String::new(),
            query: target.query.clone(),
            user: target.user.clone(),
        };
        let options = WriteOptions::of(target, input)?;
        self.change(&pod, Part::Binding, options.dry_run, |current| bound(current, &binding, &node, pods)).await?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Outcome::Object { object: status, code: 201, warnings: Vec::new() })
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

/// The pod on its node, with the binding's labels and annotations.
fn bound(pod: &Value, binding: &Value, node: &str, pods: &api::schema::Resource) -> Result<Value, Status> {
    let name = meta::name(pod);
    let uid = meta::uid(binding);
    if !uid.is_empty() && uid != meta::uid(pod) {
        return Err(wrong_uid(pods, pod, uid));
    }
    if meta::is_deleting(pod) {
        return Err(Status::conflict(
            pods,
            name,
            &format!("pod {name} is being deleted, cannot be assigned to a host"),
        ));
    }
    let assigned = meta::text(pod, &["spec", "nodeName"]);
    if !assigned.is_empty() {
        return Err(Status::conflict(pods, name, &format!("pod {name} is already assigned to node {assigned:?}")));
    }
    if !meta::list(pod, &["spec", "schedulingGates"]).is_empty() {
        return Err(Status::conflict(pods, name, &format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    let mut pod = pod.clone();
    meta::field_mut(&mut pod, "spec").insert("nodeName".into(), node.into());
    for field in ["labels", "annotations"] {
        let given = meta::at(binding, &["metadata", field]).and_then(Value::as_object).cloned().unwrap_or_default();
        if !given.is_empty() {
            let metadata = meta::metadata_mut(&mut pod);
            meta::object_mut(metadata.entry(field).or_insert_with(|| json!({}))).extend(given);
        }
    }
    scheduled(&mut pod);
    Ok(pod)
}

fn scheduled(pod: &mut Value) {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": clock::seconds(), "observedGeneration": meta::number(pod, &["metadata", "generation"])});
    let status = meta::field_mut(pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(list) = conditions.as_array_mut() {
        list.retain(|condition| condition["type"] != "PodScheduled");
        list.push(condition);
    }
}

fn scale_of(object: &Value) -> Value {
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
