//! Reads the tables in `schema/types` and `schema/resources.txt`.
//!
//! `Container:` begins a type, `  ports: 6 []ContainerPort map(…) patch(merge:…)` is a field: JSON name, protobuf number,
//! type, then flags in any order. `inline: T` puts the fields of `T` in that place; with `#2` protobuf has them in a message
//! of their own, as field 2. What is set when a client leaves a field out is `default(…)`, or `fill(…)` where schemas do not
//! say so; either is the last flag.

use std::collections::HashMap;

use super::{
    Field, ListKind, Part, PatchRule, Presence, Schema, Shapes, Slot, Ty, Type, TypeId, Union, gate, index::Index,
    resources,
};

/// The tables, each after a line with its package, an underscore before the version.
pub const TYPES: &str = include_str!(concat!(env!("OUT_DIR"), "/types.txt"));

/// A type as its table has it, names not resolved yet.
struct RawType {
    package: String,
    name: &'static str,
    atomic: bool,
    union: Option<Union>,
    lines: Vec<&'static str>,
}

/// Parses all tables, with what is behind gates that are open.
pub fn load(types: &'static str, resources: &'static str) -> Schema {
    let gates = gate::all_open();
    let raw = split(types, &gates);
    let by_name: HashMap<String, TypeId> =
        raw.iter().enumerate().map(|(at, ty)| (format!("{}.{}", ty.package, ty.name), TypeId(at))).collect();
    let names = Names { by_name: &by_name, raw: &raw };
    let types = raw
        .iter()
        .map(|ty| {
            let (fields, slots) = names.members(ty);
            Type {
                name: format!("{}.{}", ty.package, ty.name),
                zeros: (0..fields.len()).filter(|at| fields[*at].shows_zero()).collect(),
                index: Index::new(&fields),
                fields,
                atomic: ty.atomic,
                union: ty.union.clone(),
                kind: by_name.contains_key(&format!("{}.{}List", ty.package, ty.name)),
                slots,
            }
        })
        .collect();
    let resources = resources::load(resources, &by_name, &gates);
    Schema { types, by_name, resources, gates }
}

fn split(tables: &'static str, gates: &[&'static str]) -> Vec<RawType> {
    let (mut types, mut package): (Vec<RawType>, String) = (Vec::new(), String::new());
    // Whether the fields that follow are those of a type behind a gate that is shut.
    let mut shut = false;
    for line in tables.lines().filter(|line| !line.trim().is_empty()) {
        let passed = gate::passed(line, gates);
        if !line.starts_with("  ") {
            shut = passed.is_none();
        }
        let Some(line) = passed.filter(|_| !shut) else { continue };
        if let Some(name) = line.strip_prefix('@') {
            package = name.replace('_', "/");
        } else if let Some(field) = line.strip_prefix("  ") {
            types.last_mut().expect("a field follows a type").lines.push(field);
        } else {
            let (name, rest) = line.split_once(':').expect("a type ends with a colon");
            let (package, atomic) = (package.clone(), rest.contains("atomic"));
            types.push(RawType { package, name, atomic, union: union(rest), lines: Vec::new() });
        }
    }
    types
}

/// `# union(type:exempt,limited)`: the field that says which, and the fields.
fn union(rest: &'static str) -> Option<Union> {
    let (_, arguments) = rest.split_once("union(")?;
    let (discriminator, fields) = arguments.split_once(')')?.0.split_once(':')?;
    Some(Union { discriminator, fields: fields.split(',').collect() })
}

struct Names<'a> {
    by_name: &'a HashMap<String, TypeId>,
    raw: &'a [RawType],
}

impl Names<'_> {
    /// The fields as JSON has them, and the slots as protobuf has them.
    fn members(&self, ty: &RawType) -> (Vec<Field>, Vec<Slot>) {
        let (mut fields, mut slots) = (Vec::new(), Vec::new());
        for line in &ty.lines {
            let (name, rest) = line.split_once(": ").expect("a field has a name");
            if name != "inline" {
                let field = self.field(&ty.package, name, rest);
                slots.extend(field.number.map(|number| Slot { number, part: Part::Field(fields.len()) }));
                fields.push(field);
                continue;
            }
            let (inlined, number) = rest.split_once(" #").unwrap_or((rest, ""));
            let Ty::Struct(id) = self.ty(&ty.package, inlined.trim()) else { continue };
            let (inner, inner_slots) = self.members(&self.raw[id.0]);
            match number.trim().parse() {
                Ok(number) => slots.push(Slot { number, part: Part::Nested(id) }),
                Err(_) => slots.extend(inner_slots.into_iter().map(|slot| slot.moved(fields.len()))),
            }
            fields.extend(inner);
        }
        slots.sort_by_key(|slot| slot.number);
        (fields, slots)
    }

    fn field(&self, package: &str, name: &'static str, rest: &'static str) -> Field {
        let (rest, default, published) = match (rest.split_once(" default("), rest.split_once(" fill(")) {
            (Some((rest, default)), _) => (rest, default.strip_suffix(')'), true),
            (None, Some((rest, default))) => (rest, default.strip_suffix(')'), false),
            (None, None) => (rest, None, false),
        };
        let mut words = rest.split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok());
        let first = words.next().expect("a field has a type");
        let (ty, type_name) = match first {
            "map" => {
                let element = words.next().expect("a map has an element type");
                (Ty::Map(Box::new(self.ty(package, element))), element)
            }
            other => (self.ty(package, other), other),
        };
        let mut field = Field {
            name,
            number,
            shapes: self.shapes(package, type_name),
            wrapped: false,
            optional: false,
            ty,
            type_name: type_name.trim_start_matches("[]"),
            topology: None,
            presence: Presence::NonZero,
            required: false,
            blank: false,
            list: ListKind::Atomic,
            patch: PatchRule::default(),
            published,
            default: default.map(|text| serde_json::from_str(text).expect("a default is JSON")),
        };
        words.for_each(|flag| set_flag(&mut field, flag));
        field
    }

    fn shapes(&self, package: &str, name: &str) -> Option<Shapes> {
        let schema = || match self.ty(package, "JSONSchemaProps") {
            Ty::Struct(id) => id,
            other => panic!("a schema is a struct, not {other:?}"),
        };
        match name {
            "JSONSchemaPropsOrBool" => Some(Shapes::SchemaOrBool(schema())),
            "JSONSchemaPropsOrArray" => Some(Shapes::SchemaOrArray(schema())),
            "JSONSchemaPropsOrStringArray" => Some(Shapes::SchemaOrStrings(schema())),
            _ => None,
        }
    }

    fn ty(&self, package: &str, name: &str) -> Ty {
        if let Some(element) = name.strip_prefix("[]") {
            return Ty::List(Box::new(self.ty(package, element)));
        }
        let qualified = if name.contains('/') { name.to_owned() } else { format!("{package}.{name}") };
        match name {
            "string" => Ty::String,
            "bool" => Ty::Bool,
            "int32" => Ty::Int32,
            "int64" => Ty::Int64,
            "double" => Ty::Double,
            "bytes" => Ty::Bytes,
            "Time" => Ty::Time,
            "MicroTime" => Ty::MicroTime,
            "Duration" => Ty::Duration,
            "Quantity" => Ty::Quantity,
            "IntOrString" => Ty::IntOrString,
            "Raw" | "FieldsV1" | "JSON" => Ty::Raw,
            "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => Ty::Raw,
            _ => Ty::Struct(
                *self.by_name.get(&qualified).unwrap_or_else(|| panic!("the tables have no type {qualified}")),
            ),
        }
    }
}

fn set_flag(field: &mut Field, flag: &'static str) {
    let (word, argument) = match flag.split_once('(') {
        Some((word, argument)) => (word, argument.trim_end_matches(')')),
        None => (flag, ""),
    };
    if matches!(word, "atomic" | "granular" | "set" | "map") {
        field.topology = Some(word);
    }
    match word {
        "ptr" => (field.presence, field.optional) = (Presence::Pointer, true),
        "omitzero" => field.presence = Presence::Pointer,
        "items" => (field.wrapped, field.optional) = (true, true),
        "always" => field.presence = Presence::Always,
        "req" => field.required = true,
        "blank" => field.blank = true,
        "atomic" => field.list = ListKind::Atomic,
        "granular" => {}
        "set" => field.list = ListKind::Set,
        "map" => field.list = ListKind::Map(argument.split(',').collect()),
        "patch" => set_patch(field, argument),
        other => panic!("the tables have an unknown flag {other:?}"),
    }
}

/// `merge`, `merge:key`, `retainKeys` or `merge,retainKeys:key`.
fn set_patch(field: &mut Field, argument: &'static str) {
    let (strategies, key) = argument.split_once(':').unwrap_or((argument, ""));
    for strategy in strategies.split(',') {
        match strategy {
            "merge" => field.patch.merge_key = Some(key),
            "retainKeys" => field.patch.retain_keys = true,
            "replace" => field.patch.replace = true,
            _ => panic!("the tables have an unknown patch strategy {strategy:?}"),
        }
    }
}
