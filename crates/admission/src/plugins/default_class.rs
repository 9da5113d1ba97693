//! DefaultStorageClass and DefaultIngressClass: set the default class on claims and ingresses without one. Of several
//! default classes the newest is used.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DEFAULT_STORAGE_CLASS: PluginDescriptor = PluginDescriptor {
    name: "DefaultStorageClass",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object("", "persistentvolumeclaims", &[Operation::Create])],
    construct: |_| {
        Ok(Box::new(DefaultClass {
            classes: ("storage.k8s.io", "v1", "storageclasses"),
            marks: &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
            field: "storageClassName",
            annotation: "volume.beta.kubernetes.io/storage-class",
        }))
    },
};

pub const DEFAULT_INGRESS_CLASS: PluginDescriptor = PluginDescriptor {
    name: "DefaultIngressClass",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object("networking.k8s.io", "ingresses", &[Operation::Create])],
    construct: |_| {
        Ok(Box::new(DefaultClass {
            classes: ("networking.k8s.io", "v1", "ingressclasses"),
            marks: &["ingressclass.kubernetes.io/is-default-class"],
            field: "ingressClassName",
            annotation: "kubernetes.io/ingress.class",
        }))
    },
};

struct DefaultClass {
    /// The resource of the classes: group, version and plural name.
    classes: (&'static str, &'static str, &'static str),
    /// Annotations that mark a class as the default.
    marks: &'static [&'static str],
    /// The `spec` field that names the class.
    field: &'static str,
    /// The legacy annotation that names the class.
    annotation: &'static str,
}

#[async_trait]
impl Plugin for DefaultClass {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let named = meta::value_at(object, &["spec", self.field]).is_some()
            || meta::value_at(object, &["metadata", "annotations", self.annotation]).is_some();
        if named {
            return Ok(());
        }
        let mut classes = attributes.list_objects(self.classes, "").await?;
        let marked = |class: &Value| {
            self.marks.iter().any(|mark| meta::string_at(class, &["metadata", "annotations", mark]) == "true")
        };
        classes.retain(marked);
        let created = |class: &Value| meta::string_at(class, &["metadata", "creationTimestamp"]).to_owned();
        classes.sort_by(|a, b| created(b).cmp(&created(a)).then_with(|| meta::name(a).cmp(meta::name(b))));
        if let Some(class) = classes.first() {
            meta::field_mut(object, "spec").insert(self.field.into(), meta::name(class).into());
        }
        Ok(())
    }
}
