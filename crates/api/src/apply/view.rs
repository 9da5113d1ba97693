//! How apply sees a part of an object: what the tables say about its form, and whether it is owned as a whole.

use std::fmt;

use super::element::{Element, Name};
use crate::{
    Map, Value,
    schema::{Field, ListKind, Ty, Type, TypeId, schema},
};

/// A part of an object.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What it is made of.
    pub form: Form<'a>,
    /// It has one owner as a whole.
    pub atomic: bool,
}

/// What a part of an object is made of.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// A text, number, time, …
    Scalar(&'a Ty),
    /// Anything.
    Any,
    /// The fields of a struct.
    Struct(&'a Type),
    /// Any keys, with values of one type.
    Map(&'a Ty),
    /// Items of one type, told apart by these fields; by their value if there are none.
    List(&'a Ty, &'a [&'static str]),
    /// Fields or keys that a schema outside of the tables describes.
    Fields(&'a dyn Structure),
    /// Items that such a schema describes.
    Items(&'a dyn Structure),
    /// What no schema describes: the keys of an object have owners of their own, everything else is a whole.
    Deduced,
}

/// A part of an object by a schema outside of the tables.
pub trait Structure: fmt::Debug + Sync {
    /// How apply sees the part.
    fn view(&self) -> View<'_>;

    /// What is at a key; `None` where the schema has no such field.
    fn child(&self, name: &str) -> Option<Child<'_>>;

    /// What the items of a list are.
    fn item(&self) -> View<'_>;

    /// The fields that tell the items of a list apart.
    fn keys(&self) -> &[String];

    /// What a field of an item is where it is left out.
    fn key_default(&self, key: &str) -> Option<Value>;
}

/// Why a list item cannot be told from others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// Null in a list with keys.
    #[error("associative list with keys may not have a null element")]
    Null,
    /// A scalar in a list with keys.
    #[error("associative list with keys may not have non-map elements")]
    NoMap,
    /// None of the keys is there.
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any \
         key fields)",
        .0.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" ")
    )]
    Keyless(Vec<Name>),
    /// An object in a set.
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    /// A list in a set.
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    /// Null in a set.
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// What is at a key.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// The part of the object.
    pub view: View<'a>,
    /// Whose word the key is.
    pub named: Named,
}

/// Whose word a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Whoever wrote the object made it up.
    Freely,
    /// A field of a schema outside of the tables.
    BySchema,
    /// A field of a struct in the tables.
    ByTable(&'static str),
}

impl Child<'_> {
    /// The step to a key.
    pub fn element(self, name: &str) -> Element {
        Element::Field(match self.named {
            Named::ByTable(name) => Name::Borrowed(name),
            Named::BySchema | Named::Freely => name.to_owned().into(),
        })
    }
}

impl<'a> View<'a> {
    /// A text.
    pub const TEXT: View<'static> = View { form: Form::Scalar(&Ty::String), atomic: true };
    /// Anything, as a whole.
    pub const ANY: View<'static> = View { form: Form::Any, atomic: true };
    /// Anything, by what it is.
    pub const DEDUCED: View<'static> = View { form: Form::Deduced, atomic: false };

    /// Metadata of an object.
    pub fn metadata() -> View<'static> {
        schema().type_named("meta/v1.ObjectMeta").map_or(View::DEDUCED, View::object)
    }

    /// A whole object.
    pub fn object(ty: TypeId) -> View<'static> {
        View { form: Form::Struct(schema().get(ty)), atomic: false }
    }

    /// A field of a struct.
    fn field(field: &'a Field) -> Self {
        let view = Self::of(&field.ty);
        match (view.form, field.topology) {
            (Form::List(element, _), topology) => {
                let keys = match (&field.list, topology, &field.patch.merge_key) {
                    (ListKind::Map(keys), _, _) => Some(keys.as_slice()),
                    (ListKind::Set, _, _) => Some(&[][..]),
                    // Without a topology, apply merges what a strategic merge patch merges.
                    (ListKind::Atomic, None, Some("")) => Some(&[][..]),
                    (ListKind::Atomic, None, Some(key)) => Some(std::slice::from_ref(key)),
                    (ListKind::Atomic, _, _) => None,
                };
                View { form: Form::List(element, keys.unwrap_or_default()), atomic: keys.is_none() }
            }
            (Form::Struct(_) | Form::Map(_), Some("atomic")) => View { atomic: true, ..view },
            (Form::Struct(_) | Form::Map(_), Some("granular")) => View { atomic: false, ..view },
            _ => view,
        }
    }

    /// A value of a type, as an element of a list or a map has it.
    fn of(ty: &'a Ty) -> Self {
        match ty {
            Ty::Struct(id) => {
                let ty = schema().get(*id);
                View { form: Form::Struct(ty), atomic: ty.atomic }
            }
            Ty::Map(inner) => View { form: Form::Map(inner), atomic: false },
            Ty::List(inner) => View { form: Form::List(inner, &[]), atomic: true },
            Ty::Raw => View::ANY,
            scalar => View { form: Form::Scalar(scalar), atomic: true },
        }
    }

    /// What is at a key; `None` where a struct has no such field.
    pub fn child(self, name: &str) -> Option<Child<'a>> {
        match self.form {
            Form::Struct(ty) => match ty.field(name) {
                Some(field) => Some(Child { view: View::field(field), named: Named::ByTable(field.name) }),
                None => type_meta(name).map(|name| Child { view: View::TEXT, named: Named::ByTable(name) }),
            },
            Form::Map(inner) => Some(Child { view: View::of(inner), named: Named::Freely }),
            Form::Fields(structure) => structure.child(name),
            Form::Deduced => Some(Child { view: View::DEDUCED, named: Named::Freely }),
            _ => Some(Child { view: View::ANY, named: Named::Freely }),
        }
    }

    /// The same for values that are there: what no schema describes is a whole unless it is an object.
    pub fn settled(self, values: [Option<&Value>; 2]) -> Self {
        let whole = |value: Option<&Value>| value.is_some_and(|value| !value.is_object());
        let deduced = matches!(self.form, Form::Deduced);
        if deduced && values.into_iter().any(whole) { View::ANY } else { self }
    }

    /// What the items of a list are.
    pub fn item(self) -> Self {
        match self.form {
            Form::List(element, _) => View::of(element),
            Form::Items(structure) => structure.item(),
            Form::Deduced => View::DEDUCED,
            _ => View::ANY,
        }
    }

    /// The step to an item of a list.
    pub fn item_element(self, item: &Value) -> Result<Element, NoKey> {
        match self.form {
            Form::List(_, keys) => self.element_by(keys.iter().map(|key| Name::Borrowed(*key)), item),
            Form::Items(structure) => self.element_by(structure.keys().iter().map(|key| key.clone().into()), item),
            _ => Err(NoKey::NoMap),
        }
    }

    fn element_by(self, keys: impl ExactSizeIterator<Item = Name> + Clone, item: &Value) -> Result<Element, NoKey> {
        let is_set = keys.len() == 0;
        match item {
            Value::Object(_) if is_set => Err(NoKey::MapInSet),
            Value::Array(_) if is_set => Err(NoKey::ListInSet),
            Value::Null if is_set => Err(NoKey::NullInSet),
            value if is_set => Ok(Element::Value(Box::new(value.clone()))),
            Value::Object(map) => keyed(keys, map, |key| self.key_default(key)),
            Value::Null => Err(NoKey::Null),
            _ => Err(NoKey::NoMap),
        }
    }

    /// What a field of an item is where it is left out.
    fn key_default(self, key: &str) -> Option<Value> {
        match self.form {
            Form::List(Ty::Struct(id), _) => schema().get(*id).field(key).and_then(Field::published_default),
            Form::Items(structure) => structure.key_default(key),
            _ => None,
        }
    }
}

/// Every object says what it is.
fn type_meta(name: &str) -> Option<&'static str> {
    ["apiVersion", "kind"].into_iter().find(|known| *known == name)
}

/// Keys that are left out have their default, if the schema has one.
fn keyed(
    keys: impl Iterator<Item = Name> + Clone,
    map: &Map,
    default: impl Fn(&str) -> Option<Value>,
) -> Result<Element, NoKey> {
    let found = keys.clone().filter_map(|key| {
        let value = map.get(&*key).cloned().or_else(|| default(&key))?;
        Some((key, value))
    });
    let mut found: Vec<(Name, Value)> = found.collect();
    if found.is_empty() {
        return Err(NoKey::Keyless(keys.collect()));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Element::Key(found.into()))
}
