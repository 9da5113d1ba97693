//! DefaultStorageClass and DefaultIngressClass: claims and ingresses that name no class get the default one. Of several
//! defaults the newest counts.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The row of storage classes.
pub const STORAGE: PluginDescriptor = PluginDescriptor {
    name: "DefaultStorageClass",
    on: true,
    about: &[ResourceRule::object("", "persistentvolumeclaims", &[Operation::Create])],
    make: |_| {
        Ok(Box::new(DefaultClass {
            classes: ("storage.k8s.io", "v1", "storageclasses"),
            marks: &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
            field: "storageClassName",
            annotation: "volume.beta.kubernetes.io/storage-class",
        }))
    },
};

/// The row of ingress classes.
pub const INGRESS: PluginDescriptor = PluginDescriptor {
    name: "DefaultIngressClass",
    on: true,
    about: &[ResourceRule::object("networking.k8s.io", "ingresses", &[Operation::Create])],
    make: |_| {
        Ok(Box::new(DefaultClass {
            classes: ("networking.k8s.io", "v1", "ingressclasses"),
            marks: &["ingressclass.kubernetes.io/is-default-class"],
            field: "ingressClassName",
            annotation: "kubernetes.io/ingress.class",
        }))
    },
};

struct DefaultClass {
    /// The resource of the classes.
    classes: (&'static str, &'static str, &'static str),
    /// Annotations that mark a default.
    marks: &'static [&'static str],
    /// The field of the specification that names a class.
    field: &'static str,
    /// The annotation that named it in older days.
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
        let mut classes = attributes.all(self.classes, "").await?;
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
