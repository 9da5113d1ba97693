//! Parses the tables in `schema/types` and `schema/resources.txt`.
//!
//! `Container:` begins a type, `  ports: 6 []ContainerPort map(…) patch(merge:…)` is a field: JSON name, protobuf
//! number, type, then flags in any order. `inline: T` inlines the fields of `T`; with `#2` protobuf nests them as field
//! 2. A default is `default(…)`, or `fill(…)` where OpenAPI does not publish it; either is the last flag.

use std::collections::HashMap;

use super::{
    ApiSchema, FieldPresence, FieldType, ListType, PatchStrategy, ProtobufSlot, Resource, ResourceIndex, SchemaShape,
    SlotContent, StructField, StructType, TypeId, UnionFields, field_index::FieldIndex, resource_table, table_gate,
};

/// The joined type tables, each after a line with its package, an underscore before the version.
pub const TYPE_TABLES: &str = include_str!(concat!(env!("OUT_DIR"), "/types.txt"));

/// A parsed type header with unparsed field lines.
struct RawType {
    package: String,
    name: &'static str,
    atomic: bool,
    union: Option<UnionFields>,
    lines: Vec<&'static str>,
}

/// Parses all tables, including lines behind open gates.
pub fn parse_schema(types: &'static str, resources: &'static str) -> ApiSchema {
    let gates = table_gate::freeze_open_gates();
    let raw = split_types(types, &gates);
    let by_name: HashMap<String, TypeId> =
        raw.iter().enumerate().map(|(at, ty)| (format!("{}.{}", ty.package, ty.name), TypeId(at))).collect();
    let names = TypeResolver { by_name: &by_name, raw: &raw };
    let types = raw
        .iter()
        .map(|ty| {
            let (fields, slots) = names.resolve_members(ty);
            StructType {
                name: format!("{}.{}", ty.package, ty.name),
                zero_fields: (0..fields.len()).filter(|at| fields[*at].writes_zero()).collect(),
                index: FieldIndex::new(&fields),
                fields,
                atomic: ty.atomic,
                union: ty.union.clone(),
                is_kind: by_name.contains_key(&format!("{}.{}List", ty.package, ty.name)),
                slots,
            }
        })
        .collect();
    let resources = resource_table::parse_resources(resources, &by_name, &gates);
    let (mut by_resource, mut by_kind) = (ResourceIndex::default(), ResourceIndex::default());
    for (position, resource) in resources.iter().enumerate() {
        let Resource { group, version, name, kind, .. } = *resource;
        by_resource.entry((group, version, name)).or_insert(position);
        by_kind.entry((group, version, kind)).or_insert(position);
    }
    ApiSchema { types, by_name, resources, by_resource, by_kind, gates }
}

fn split_types(tables: &'static str, gates: &[&'static str]) -> Vec<RawType> {
    let (mut types, mut package): (Vec<RawType>, String) = (Vec::new(), String::new());
    // Whether the type that the following fields belong to is behind a closed gate.
    let mut shut = false;
    for line in tables.lines().filter(|line| !line.trim().is_empty()) {
        let passed = table_gate::strip_gate(line, gates);
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
            types.push(RawType { package, name, atomic, union: parse_union(rest), lines: Vec::new() });
        }
    }
    types
}

/// Parses `# union(type:exempt,limited)`: discriminator, then member fields.
fn parse_union(rest: &'static str) -> Option<UnionFields> {
    let (_, arguments) = rest.split_once("union(")?;
    let (discriminator, fields) = arguments.split_once(')')?.0.split_once(':')?;
    Some(UnionFields { discriminator, fields: fields.split(',').collect() })
}

struct TypeResolver<'a> {
    by_name: &'a HashMap<String, TypeId>,
    raw: &'a [RawType],
}

impl TypeResolver<'_> {
    /// Returns the fields as in JSON and the slots as in protobuf.
    fn resolve_members(&self, ty: &RawType) -> (Vec<StructField>, Vec<ProtobufSlot>) {
        let (mut fields, mut slots) = (Vec::new(), Vec::new());
        for line in &ty.lines {
            let (name, rest) = line.split_once(": ").expect("a field has a name");
            if name != "inline" {
                let field = self.parse_field(&ty.package, name, rest);
                slots.extend(
                    field.number.map(|number| ProtobufSlot { number, content: SlotContent::Field(fields.len()) }),
                );
                fields.push(field);
                continue;
            }
            let (inlined, number) = rest.split_once(" #").unwrap_or((rest, ""));
            let FieldType::Struct(id) = self.resolve_type(&ty.package, inlined.trim()) else { continue };
            let (inner, inner_slots) = self.resolve_members(&self.raw[id.0]);
            match number.trim().parse() {
                Ok(number) => slots.push(ProtobufSlot { number, content: SlotContent::Nested(id) }),
                Err(_) => slots.extend(inner_slots.into_iter().map(|slot| slot.shifted_by(fields.len()))),
            }
            fields.extend(inner);
        }
        slots.sort_by_key(|slot| slot.number);
        (fields, slots)
    }

    fn parse_field(&self, package: &str, name: &'static str, rest: &'static str) -> StructField {
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
                (FieldType::Map(Box::new(self.resolve_type(package, element))), element)
            }
            other => (self.resolve_type(package, other), other),
        };
        let mut field = StructField {
            name,
            number,
            schema_shape: self.schema_shape(package, type_name),
            protobuf_wrapped: false,
            protobuf_optional: false,
            ty,
            type_name: type_name.trim_start_matches("[]"),
            topology: None,
            presence: FieldPresence::NonZero,
            required: false,
            blank: false,
            nullable: false,
            list_type: ListType::Atomic,
            patch_strategy: PatchStrategy::default(),
            publishes_default: published,
            default: default.map(|text| serde_json::from_str(text).expect("a default is JSON")),
        };
        words.for_each(|flag| set_flag(&mut field, flag));
        field
    }

    fn schema_shape(&self, package: &str, name: &str) -> Option<SchemaShape> {
        let schema = || match self.resolve_type(package, "JSONSchemaProps") {
            FieldType::Struct(id) => id,
            other => panic!("a schema is a struct, not {other:?}"),
        };
        match name {
            "JSONSchemaPropsOrBool" => Some(SchemaShape::SchemaOrBool(schema())),
            "JSONSchemaPropsOrArray" => Some(SchemaShape::SchemaOrArray(schema())),
            "JSONSchemaPropsOrStringArray" => Some(SchemaShape::SchemaOrStrings(schema())),
            _ => None,
        }
    }

    fn resolve_type(&self, package: &str, name: &str) -> FieldType {
        if let Some(element) = name.strip_prefix("[]") {
            return FieldType::List(Box::new(self.resolve_type(package, element)));
        }
        let qualified = if name.contains('/') { name.to_owned() } else { format!("{package}.{name}") };
        match name {
            "string" => FieldType::String,
            "bool" => FieldType::Bool,
            "int32" => FieldType::Int32,
            "int64" => FieldType::Int64,
            "double" => FieldType::Double,
            "bytes" => FieldType::Bytes,
            "Time" => FieldType::Time,
            "MicroTime" => FieldType::MicroTime,
            "Duration" => FieldType::Duration,
            "Quantity" => FieldType::Quantity,
            "IntOrString" => FieldType::IntOrString,
            "Raw" | "FieldsV1" | "JSON" => FieldType::Raw,
            "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => FieldType::Raw,
            _ => FieldType::Struct(
                *self.by_name.get(&qualified).unwrap_or_else(|| panic!("the tables have no type {qualified}")),
            ),
        }
    }
}

fn set_flag(field: &mut StructField, flag: &'static str) {
    let (word, argument) = match flag.split_once('(') {
        Some((word, argument)) => (word, argument.trim_end_matches(')')),
        None => (flag, ""),
    };
    if matches!(word, "atomic" | "granular" | "set" | "map") {
        field.topology = Some(word);
    }
    match word {
        "ptr" => (field.presence, field.protobuf_optional) = (FieldPresence::Pointer, true),
        "null" => field.nullable = true,
        "omitzero" => field.presence = FieldPresence::Pointer,
        "items" => (field.protobuf_wrapped, field.protobuf_optional) = (true, true),
        "always" => field.presence = FieldPresence::Always,
        "req" => field.required = true,
        "blank" => field.blank = true,
        "atomic" => field.list_type = ListType::Atomic,
        "granular" => {}
        "set" => field.list_type = ListType::Set,
        "map" => field.list_type = ListType::Map(argument.split(',').collect()),
        "patch" => set_patch_strategy(field, argument),
        other => panic!("the tables have an unknown flag {other:?}"),
    }
}

/// Parses `merge`, `merge:key`, `retainKeys` or `merge,retainKeys:key`.
fn set_patch_strategy(field: &mut StructField, argument: &'static str) {
    let (strategies, key) = argument.split_once(':').unwrap_or((argument, ""));
    for strategy in strategies.split(',') {
        match strategy {
            "merge" => field.patch_strategy.merge_key = Some(key),
            "retainKeys" => field.patch_strategy.retain_keys = true,
            "replace" => field.patch_strategy.replace = true,
            _ => panic!("the tables have an unknown patch strategy {strategy:?}"),
        }
    }
}
