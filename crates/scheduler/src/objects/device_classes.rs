//! Device classes, and the extended resources that devices of a class provide.

use std::sync::Arc;

use client::SharedInformer;
use k8s_openapi::api::resource::v1::DeviceClass;

/// Prefix of the resource name that every device class has.
const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
/// Index of classes by the extended resource that they provide.
const BY_RESOURCE: &str = "extendedResource";

/// Finds device classes by name and by extended resource.
#[derive(Clone)]
pub struct DeviceClassResolver {
    classes: SharedInformer<DeviceClass>,
    /// Whether devices provide extended resources.
    has_extended: bool,
}

impl DeviceClassResolver {
    /// Reads from an informer; `has_extended` tells whether devices provide extended resources.
    pub fn new(classes: SharedInformer<DeviceClass>, has_extended: bool) -> Self {
        classes.add_index(BY_RESOURCE, |class| class.spec.extended_resource_name.iter().cloned().collect());
        Self { classes, has_extended }
    }

    /// Returns a class by name.
    pub fn get(&self, name: &str) -> Option<Arc<DeviceClass>> {
        self.classes.get("", name)
    }

    /// Returns the class whose devices provide an extended resource: of several, the newest, then the first by name.
    pub fn class_of_resource(&self, resource: &str) -> Option<Arc<DeviceClass>> {
        if !self.has_extended {
            return None;
        }
        if let Some(name) = resource.strip_prefix(CLASS_PREFIX) {
            return self.get(name);
        }
        let classes = self.classes.by_index(BY_RESOURCE, resource);
        let created = |class: &DeviceClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        classes
            .into_iter()
            .max_by(|a, b| created(a).cmp(&created(b)).then_with(|| b.metadata.name.cmp(&a.metadata.name)))
    }

    /// Whether devices provide an extended resource.
    pub fn provides(&self, resource: &str) -> bool {
        self.class_of_resource(resource).is_some()
    }

    /// Returns the names of the extended resources that a class provides.
    pub fn resource_names(class: &Arc<DeviceClass>) -> Vec<String> {
        let own = format!("{CLASS_PREFIX}{}", class.metadata.name.as_deref().unwrap_or(""));
        std::iter::once(own).chain(class.spec.extended_resource_name.clone()).collect()
    }

    /// The informer.
    pub fn informer(&self) -> &SharedInformer<DeviceClass> {
        &self.classes
    }

    /// Waits for the first list.
    pub async fn wait_for_sync(&self) {
        self.classes.wait_for_cache_sync().await;
    }
}
