//! AlwaysPullImages: sets every image pull policy to `Always`, so that cached private images need pull credentials.

use api::{Value, meta, status::Status, validate::FieldError};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, pod};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "AlwaysPullImages",
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "pods", Operation::WRITES)],
    construct: |_| Ok(Box::new(AlwaysPullImages)),
};

const ALWAYS: &str = "Always";

struct AlwaysPullImages;

#[async_trait]
impl Plugin for AlwaysPullImages {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        if !has_new_images(attributes, object) {
            return Ok(());
        }
        for (list, _) in pod::CONTAINER_LISTS {
            for container in pod::containers_mut(object, list) {
                meta::object_mut(container).insert("imagePullPolicy".into(), ALWAYS.into());
            }
        }
        for volume in pod::containers_mut(object, "volumes") {
            if meta::value_at(volume, &["image"]).is_some() {
                meta::field_mut(volume, "image").insert("pullPolicy".into(), ALWAYS.into());
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        if !has_new_images(attributes, object) {
            return Ok(());
        }
        let mut errors = Vec::new();
        for (list, _) in pod::CONTAINER_LISTS {
            for (at, container) in meta::list_at(object, &["spec", list]).iter().enumerate() {
                check_pull_policy(
                    &mut errors,
                    format!("spec.{list}[{at}].imagePullPolicy"),
                    meta::string_at(container, &["imagePullPolicy"]),
                );
            }
        }
        for (at, volume) in meta::list_at(object, &["spec", "volumes"]).iter().enumerate() {
            if let Some(image) = meta::value_at(volume, &["image"]) {
                check_pull_policy(
                    &mut errors,
                    format!("spec.volumes[{at}].image.pullPolicy"),
                    meta::string_at(image, &["pullPolicy"]),
                );
            }
        }
        match errors.first() {
            Some(error) => Err(attributes.new_forbidden(object, error)),
            None => Ok(()),
        }
    }
}

fn check_pull_policy(errors: &mut Vec<String>, field: String, policy: &str) {
    if policy != ALWAYS {
        errors.push(FieldError::not_supported(field, policy, &[ALWAYS]).to_string());
    }
}

fn has_new_images(attributes: &AdmissionAttributes<'_>, object: &Value) -> bool {
    let Some(old) = attributes.old else { return true };
    let known: Vec<&str> = pod::containers(old).map(|container| meta::string_at(container, &["image"])).collect();
    pod::containers(object).any(|container| !known.contains(&meta::string_at(container, &["image"])))
}
