//! The target of an apply or update: its type, its versions, and the fields that the path does not set.

use std::borrow::Cow;

use super::{field_set::FieldSet, type_view::TypeView};
use crate::{
    Map, Value,
    budget::MemoryBudget,
    convert, decode, meta,
    schema::{CustomResourceSchema, FieldType, Resource, TypeId, schema},
};

/// Converts objects between versions that differ in more than their names.
pub trait VersionConverter: Sync {
    /// Returns the object in a version; `None` if conversion fails.
    fn convert_object(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// The kind written through one path.
pub struct ApplyTarget<'a> {
    resource: Option<&'a Resource>,
    versions: Option<&'a dyn VersionConverter>,
    /// The version of the path.
    pub api_version: String,
    /// The name of the kind.
    pub kind: &'a str,
    /// Its type.
    pub ty: TypeId,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The fields that a write through this path resets to their old values (`GetResetFields`).
    pub reset_fields: FieldSet,
}

/// The reset fields by path of resource and subresource; `*` is every resource.
const RESET_FIELDS: &str = include_str!("../../schema/reset.txt");

impl<'a> ApplyTarget<'a> {
    /// The target for objects of a resource, written directly or through a subresource.
    pub fn for_resource(resource: &'a Resource, subresource: &'a str) -> Self {
        let path = |name: &str| if subresource.is_empty() { name.to_owned() } else { format!("{name}/{subresource}") };
        let paths = [path(resource.name), path("*")];
        let rows = RESET_FIELDS.lines().filter_map(|line| line.split_once(':'));
        let row = rows.filter(|(path, _)| paths.iter().any(|wanted| wanted == path)).map(|(_, fields)| fields).next();
        let fields = row.filter(|_| resource.subresource("status").is_some()).unwrap_or_default();
        let reset = FieldSet::from_paths(&fields.split_whitespace().collect::<Vec<_>>());
        let (api_version, kind) = (resource.api_version(), resource.kind);
        Self {
            resource: Some(resource),
            versions: None,
            api_version,
            kind,
            ty: resource.ty,
            subresource,
            reset_fields: reset,
        }
    }

    /// The target for a kind without a resource, such as `Scale`.
    pub fn for_kind(api_version: &str, kind: &'a str, ty: TypeId, subresource: &'a str) -> Self {
        let (api_version, reset) = (api_version.to_owned(), FieldSet::default());
        Self { resource: None, versions: None, api_version, kind, ty, subresource, reset_fields: reset }
    }

    /// Sets the converter for versions that differ in more than their names.
    #[must_use]
    pub fn with_converter(mut self, versions: &'a dyn VersionConverter) -> Self {
        self.versions =
            Some(versions).filter(|_| self.custom_schema().is_some_and(|custom| !custom.has_identical_versions()));
        self
    }

    /// The type view of the objects.
    pub fn type_view(&self) -> TypeView<'_> {
        match self.custom_schema().and_then(|custom| custom.structural_view(&self.api_version)) {
            Some(structure) => structure.type_view(),
            None => TypeView::for_object(self.ty),
        }
    }

    /// The schema of a custom resource.
    pub(super) fn custom_schema(&self) -> Option<&dyn CustomResourceSchema> {
        self.resource?.custom_schema.as_deref()
    }

    /// The object before its creation.
    pub fn zero_object(&self) -> Value {
        let zero = match self.custom_schema() {
            Some(_) => Ok(Value::Null),
            None => decode::zero_value(&FieldType::Struct(self.ty), &mut MemoryBudget::default()),
        };
        let mut object = zero.ok().filter(Value::is_object).unwrap_or_else(|| Value::Object(Map::new()));
        let map = meta::object_mut(&mut object);
        map.insert("apiVersion".into(), self.api_version.clone().into());
        map.insert("kind".into(), self.kind.into());
        object
    }

    /// An object without any field set, as upstream writes it.
    pub fn blank_object(&self) -> Value {
        let mut object = self.zero_object();
        if self.custom_schema().is_none() {
            write_blanks(self.ty, meta::object_mut(&mut object));
        }
        object
    }

    /// The type view in a version; `None` for an unknown version.
    pub fn type_view_in(&self, version: &str) -> Option<TypeView<'_>> {
        if let Some(custom) = self.custom_schema() {
            return Some(custom.structural_view(version)?.type_view());
        }
        let ty = if version == self.api_version { self.ty } else { self.other_version(version)?.ty };
        Some(TypeView::for_object(ty))
    }

    /// Converts an object to another version of the kind; `None` for an unknown version.
    pub fn convert_to_version<'v>(&self, object: &'v Value, version: &str) -> Option<(TypeView<'_>, Cow<'v, Value>)> {
        let view = self.type_view_in(version)?;
        if let Some(custom) = self.custom_schema() {
            let given = meta::string_at(object, &["apiVersion"]);
            let versions = self.versions.filter(|_| !given.is_empty() && given != version);
            let object = match versions {
                Some(versions) => Cow::Owned(versions.convert_object(object, version)?),
                None => custom.with_api_version(object, version)?,
            };
            return Some((view, object));
        }
        let current = match meta::string_at(object, &["apiVersion"]) {
            "" => &self.api_version,
            given => given,
        };
        if current == version {
            return Some((view, Cow::Borrowed(object)));
        }
        let resource = if version == self.api_version { self.resource? } else { self.other_version(version)? };
        Some((view, Cow::Owned(convert::convert_to(resource, object.clone()))))
    }

    fn other_version(&self, version: &str) -> Option<&'static Resource> {
        let own = self.resource?;
        schema().resources().iter().find(|r| {
            r.name == own.name && r.storage_resource() == own.storage_resource() && r.api_version() == version
        })
    }
}

fn write_blanks(ty: TypeId, map: &mut Map) {
    for field in &schema().get(ty).fields {
        match (&field.ty, map.get_mut(field.name)) {
            (FieldType::Struct(inner), Some(Value::Object(map))) => write_blanks(*inner, map),
            (FieldType::Struct(_), None) if field.blank => {
                map.insert(field.name.into(), Value::Null);
            }
            (_, None) if field.blank => {
                map.insert(field.name.into(), 0.into());
            }
            _ => {}
        }
    }
}
