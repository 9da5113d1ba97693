//! Entries of informer caches: objects, or compact views of them.

use kube::Resource;

/// An object type that an informer can cache.
pub trait CachedObject:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static
{
}
impl<K> CachedObject for K where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static
{
}

/// The part of an object that an informer keeps: the object itself, or a compact view with the fields that its consumers
/// read, made on entry. A resource that comes in tens of thousands is kept as a view.
pub trait CachedView: Send + Sync + 'static {
    /// The object that is listed and watched.
    type Object: CachedObject;
    /// Makes the view of an object.
    fn from_object(object: Self::Object) -> Self;
    /// The object's namespace, empty for cluster-scoped resources, and its name.
    fn namespace_and_name(&self) -> (&str, &str);
    /// The object's uid.
    fn uid(&self) -> &str;
    /// The object's resource version.
    fn resource_version(&self) -> &str;
}

impl<K: CachedObject> CachedView for K {
    type Object = K;

    fn from_object(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        object
    }

    fn namespace_and_name(&self) -> (&str, &str) {
        let meta = self.meta();
        (meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""))
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or("")
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or("")
    }
}
