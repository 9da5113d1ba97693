//! The schema of a part of an object as server-side apply uses it: its form, and whether it is atomic.

use super::path_element::{FieldName, PathElement};
use crate::{
    Map, Value,
    schema::{FieldType, ListType, StructField, TypeId, schema},
};

pub use crate::schema::{ChildView, KeyOrigin, StructuralView, TypeView, ViewForm};

/// A list item without a usable key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListKeyError {
    /// A null item in an associative list.
    #[error("associative list with keys may not have a null element")]
    Null,
    /// A scalar item in an associative list.
    #[error("associative list with keys may not have non-map elements")]
    NoMap,
    /// None of the keys is present.
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any \
         key fields)",
        .0.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" ")
    )]
    Keyless(Vec<FieldName>),
    /// An object in a set.
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    /// A list in a set.
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    /// A null in a set.
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

impl ChildView<'_> {
    /// The path element of a key.
    pub fn element(self, name: &str) -> PathElement {
        PathElement::Field(match self.key_origin {
            KeyOrigin::TableField(name) => FieldName::Borrowed(name),
            KeyOrigin::SchemaField | KeyOrigin::UserDefined => name.to_owned().into(),
        })
    }
}

impl<'a> TypeView<'a> {
    /// A string.
    pub const TEXT: TypeView<'static> = TypeView { form: ViewForm::Scalar(&FieldType::String), atomic: true };
    /// Arbitrary JSON, atomic.
    pub const ANY: TypeView<'static> = TypeView { form: ViewForm::Any, atomic: true };
    /// Untyped content, by its value.
    pub const DEDUCED: TypeView<'static> = TypeView { form: ViewForm::Deduced, atomic: false };

    /// The view of `ObjectMeta`.
    pub fn object_metadata() -> TypeView<'static> {
        schema().type_named("meta/v1.ObjectMeta").map_or(TypeView::DEDUCED, TypeView::for_object)
    }

    /// The view of a whole object.
    pub fn for_object(ty: TypeId) -> TypeView<'static> {
        TypeView { form: ViewForm::Struct(schema().get(ty)), atomic: false }
    }

    /// The view of a struct field.
    fn for_field(field: &'a StructField) -> Self {
        let view = Self::for_type(&field.ty);
        match (view.form, field.topology) {
            (ViewForm::List(element, _), topology) => {
                let keys = match (&field.list_type, topology, &field.patch_strategy.merge_key) {
                    (ListType::Map(keys), _, _) => Some(keys.as_slice()),
                    (ListType::Set, _, _) => Some(&[][..]),
                    // Without a topology, apply merges the lists that a strategic merge patch merges.
                    (ListType::Atomic, None, Some("")) => Some(&[][..]),
                    (ListType::Atomic, None, Some(key)) => Some(std::slice::from_ref(key)),
                    (ListType::Atomic, _, _) => None,
                };
                TypeView { form: ViewForm::List(element, keys.unwrap_or_default()), atomic: keys.is_none() }
            }
            (ViewForm::Struct(_) | ViewForm::Map(_), Some("atomic")) => TypeView { atomic: true, ..view },
            (ViewForm::Struct(_) | ViewForm::Map(_), Some("granular")) => TypeView { atomic: false, ..view },
            _ => view,
        }
    }

    /// The view of a list or map element of a type.
    fn for_type(ty: &'a FieldType) -> Self {
        match ty {
            FieldType::Struct(id) => {
                let ty = schema().get(*id);
                TypeView { form: ViewForm::Struct(ty), atomic: ty.atomic }
            }
            FieldType::Map(inner) => TypeView { form: ViewForm::Map(inner), atomic: false },
            FieldType::List(inner) => TypeView { form: ViewForm::List(inner, &[]), atomic: true },
            FieldType::Raw => TypeView::ANY,
            scalar => TypeView { form: ViewForm::Scalar(scalar), atomic: true },
        }
    }

    /// The view of a key; `None` for an undeclared field.
    pub fn child_view(self, name: &str) -> Option<ChildView<'a>> {
        match self.form {
            ViewForm::Struct(ty) => match ty.field(name) {
                Some(field) => {
                    Some(ChildView { view: TypeView::for_field(field), key_origin: KeyOrigin::TableField(field.name) })
                }
                None => type_meta_field(name)
                    .map(|name| ChildView { view: TypeView::TEXT, key_origin: KeyOrigin::TableField(name) }),
            },
            ViewForm::Map(inner) => {
                Some(ChildView { view: TypeView::for_type(inner), key_origin: KeyOrigin::UserDefined })
            }
            ViewForm::Fields(structure) => structure.child_view(name),
            ViewForm::Deduced => Some(ChildView { view: TypeView::DEDUCED, key_origin: KeyOrigin::UserDefined }),
            _ => Some(ChildView { view: TypeView::ANY, key_origin: KeyOrigin::UserDefined }),
        }
    }

    /// The view for actual values: untyped content other than objects is atomic.
    pub fn deduced_for(self, values: [Option<&Value>; 2]) -> Self {
        let whole = |value: Option<&Value>| value.is_some_and(|value| !value.is_object());
        let deduced = matches!(self.form, ViewForm::Deduced);
        if deduced && values.into_iter().any(whole) { TypeView::ANY } else { self }
    }

    /// The view of list items.
    pub fn item_view(self) -> Self {
        match self.form {
            ViewForm::List(element, _) => TypeView::for_type(element),
            ViewForm::Items(structure) => structure.item_view(),
            ViewForm::Deduced => TypeView::DEDUCED,
            _ => TypeView::ANY,
        }
    }

    /// The path element of a list item.
    pub fn item_element(self, item: &Value) -> Result<PathElement, ListKeyError> {
        match self.form {
            ViewForm::List(_, keys) => self.keyed_element(keys.iter().map(|key| FieldName::Borrowed(*key)), item),
            ViewForm::Items(structure) => {
                self.keyed_element(structure.key_fields().iter().map(|key| key.clone().into()), item)
            }
            _ => Err(ListKeyError::NoMap),
        }
    }

    fn keyed_element(
        self,
        keys: impl ExactSizeIterator<Item = FieldName> + Clone,
        item: &Value,
    ) -> Result<PathElement, ListKeyError> {
        let is_set = keys.len() == 0;
        match item {
            Value::Object(_) if is_set => Err(ListKeyError::MapInSet),
            Value::Array(_) if is_set => Err(ListKeyError::ListInSet),
            Value::Null if is_set => Err(ListKeyError::NullInSet),
            value if is_set => Ok(PathElement::Value(Box::new(value.clone()))),
            Value::Object(map) => key_element(keys, map, |key| self.key_default(key)),
            Value::Null => Err(ListKeyError::Null),
            _ => Err(ListKeyError::NoMap),
        }
    }

    /// The default of a key field that an item omits.
    fn key_default(self, key: &str) -> Option<Value> {
        match self.form {
            ViewForm::List(FieldType::Struct(id), _) => {
                schema().get(*id).field(key).and_then(StructField::published_default)
            }
            ViewForm::Items(structure) => structure.key_default(key),
            _ => None,
        }
    }
}

/// The type meta fields of every object.
fn type_meta_field(name: &str) -> Option<&'static str> {
    ["apiVersion", "kind"].into_iter().find(|known| *known == name)
}

/// Builds the key element of an item; omitted keys take their default.
fn key_element(
    keys: impl Iterator<Item = FieldName> + Clone,
    map: &Map,
    default: impl Fn(&str) -> Option<Value>,
) -> Result<PathElement, ListKeyError> {
    let found = keys.clone().filter_map(|key| {
        let value = map.get(&*key).cloned().or_else(|| default(&key))?;
        Some((key, value))
    });
    let mut found: Vec<(FieldName, Value)> = found.collect();
    if found.is_empty() {
        return Err(ListKeyError::Keyless(keys.collect()));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(PathElement::Key(found.into()))
}
