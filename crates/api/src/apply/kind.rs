//! What is written through one path: the type, its versions, and the fields that this path does not set.

use std::borrow::Cow;

use super::{set::Set, view::View};
use crate::{
    Map, Value,
    budget::Budget,
    convert, decode, meta,
    schema::{Custom, Resource, Ty, TypeId, schema},
};

/// Who makes one version of an object of another, where more than the name differs.
pub trait Versions: Sync {
    /// The object in a version; `None` if that cannot be had.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// What is written through a path.
pub struct Kind<'a> {
    resource: Option<&'a Resource>,
    versions: Option<&'a dyn Versions>,
    /// The version of the path.
    pub api_version: String,
    /// The name of the kind.
    pub kind: &'a str,
    /// Its type.
    pub ty: TypeId,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// What a write through this path does not change.
    pub reset: Set,
}

/// Paths of the object itself and of its subresources, and what writes through them leave alone; `*` is every resource.
const RESET: &str = include_str!("../../schema/reset.txt");

impl<'a> Kind<'a> {
    /// The objects of a resource, written through a subresource or, where it is empty, directly.
    pub fn of(resource: &'a Resource, subresource: &'a str) -> Self {
        let path = |name: &str| if subresource.is_empty() { name.to_owned() } else { format!("{name}/{subresource}") };
        let paths = [path(resource.name), path("*")];
        let rows = RESET.lines().filter_map(|line| line.split_once(':'));
        let row = rows.filter(|(path, _)| paths.iter().any(|wanted| wanted == path)).map(|(_, fields)| fields).next();
        let fields = row.filter(|_| resource.subresource("status").is_some()).unwrap_or_default();
        let reset = Set::of_fields(&fields.split_whitespace().collect::<Vec<_>>());
        let (api_version, kind) = (resource.api_version(), resource.kind);
        Self { resource: Some(resource), versions: None, api_version, kind, ty: resource.ty, subresource, reset }
    }

    /// Something that is not an object of a resource, such as a `Scale`.
    pub fn other(api_version: &str, kind: &'a str, ty: TypeId, subresource: &'a str) -> Self {
        let (api_version, reset) = (api_version.to_owned(), Set::default());
        Self { resource: None, versions: None, api_version, kind, ty, subresource, reset }
    }

    /// The same, with somebody who converts objects whose versions differ in more than their names.
    #[must_use]
    pub fn converted_by(mut self, versions: &'a dyn Versions) -> Self {
        self.versions = Some(versions).filter(|_| self.custom().is_some_and(|custom| !custom.is_only_renamed()));
        self
    }

    /// How apply sees the objects.
    pub fn view(&self) -> View<'_> {
        match self.custom().and_then(|custom| custom.structure(&self.api_version)) {
            Some(structure) => structure.view(),
            None => View::object(self.ty),
        }
    }

    /// What is particular to objects of a row that was made at run time.
    pub(super) fn custom(&self) -> Option<&dyn Custom> {
        self.resource?.custom.as_deref()
    }

    /// The object before it was created.
    pub fn nothing(&self) -> Value {
        let zero = match self.custom() {
            Some(_) => Ok(Value::Null),
            None => decode::zero(&Ty::Struct(self.ty), &mut Budget::default()),
        };
        let mut object = zero.ok().filter(Value::is_object).unwrap_or_else(|| Value::Object(Map::new()));
        let map = meta::object_mut(&mut object);
        map.insert("apiVersion".into(), self.api_version.clone().into());
        map.insert("kind".into(), self.kind.into());
        object
    }

    /// An object in which nothing is set, as upstream writes it.
    pub fn blank(&self) -> Value {
        let mut object = self.nothing();
        if self.custom().is_none() {
            write_blanks(self.ty, meta::object_mut(&mut object));
        }
        object
    }

    /// How apply sees the objects in a version; `None` if there is no such version.
    pub fn view_in(&self, version: &str) -> Option<View<'_>> {
        if let Some(custom) = self.custom() {
            return Some(custom.structure(version)?.view());
        }
        let ty = if version == self.api_version { self.ty } else { self.other_version(version)?.ty };
        Some(View::object(ty))
    }

    /// An object in another version of the kind; `None` if there is no such version.
    pub fn convert<'v>(&self, object: &'v Value, version: &str) -> Option<(View<'_>, Cow<'v, Value>)> {
        let view = self.view_in(version)?;
        if let Some(custom) = self.custom() {
            let given = meta::text(object, &["apiVersion"]);
            let versions = self.versions.filter(|_| !given.is_empty() && given != version);
            let object = match versions {
                Some(versions) => Cow::Owned(versions.convert(object, version)?),
                None => custom.renamed(object, version)?,
            };
            return Some((view, object));
        }
        let current = match meta::text(object, &["apiVersion"]) {
            "" => &self.api_version,
            given => given,
        };
        if current == version {
            return Some((view, Cow::Borrowed(object)));
        }
        let resource = if version == self.api_version { self.resource? } else { self.other_version(version)? };
        Some((view, Cow::Owned(convert::to(resource, object.clone()))))
    }

    fn other_version(&self, version: &str) -> Option<&'static Resource> {
        let own = self.resource?;
        schema()
            .resources()
            .iter()
            .find(|r| r.name == own.name && r.storage() == own.storage() && r.api_version() == version)
    }
}

fn write_blanks(ty: TypeId, map: &mut Map) {
    for field in &schema().get(ty).fields {
        match (&field.ty, map.get_mut(field.name)) {
            (Ty::Struct(inner), Some(Value::Object(map))) => write_blanks(*inner, map),
            (Ty::Struct(_), None) if field.blank => {
                map.insert(field.name.into(), Value::Null);
            }
            (_, None) if field.blank => {
                map.insert(field.name.into(), 0.into());
            }
            _ => {}
        }
    }
}
