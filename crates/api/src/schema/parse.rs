//! Reads the tables in `schema/types` and `schema/resources.txt`.
//!
//! `Container:` begins a type, `  ports: 6 []ContainerPort map(…) patch(merge:…)` is a field: JSON name, protobuf number,
//! type, then flags in any order. `inline: T` puts the fields of `T` in that place.

use std::collections::HashMap;

use super::{Field, ListKind, PatchRule, Presence, Schema, Ty, Type, TypeId, resources};

macro_rules! tables {
    ($($package:literal = $file:literal),* $(,)?) => {
        &[$(($package, include_str!(concat!("../../schema/types/", $file, ".txt")))),*]
    };
}

/// Package name and table.
const TABLES: &[(&str, &str)] = tables! {
    "meta/v1" = "meta_v1",
    "core/v1" = "core_v1",
    "admission/v1" = "admission_v1",
    "admissionregistration/v1" = "admissionregistration_v1",
    "admissionregistration/v1alpha1" = "admissionregistration_v1alpha1",
    "admissionregistration/v1beta1" = "admissionregistration_v1beta1",
    "apidiscovery/v2" = "apidiscovery_v2",
    "apidiscovery/v2beta1" = "apidiscovery_v2beta1",
    "apiextensions/v1" = "apiextensions_v1",
    "apiregistration/v1" = "apiregistration_v1",
    "internal/v1alpha1" = "apiserverinternal_v1alpha1",
    "apps/v1" = "apps_v1",
    "authentication/v1" = "authentication_v1",
    "authorization/v1" = "authorization_v1",
    "autoscaling/v1" = "autoscaling_v1",
    "autoscaling/v2" = "autoscaling_v2",
    "batch/v1" = "batch_v1",
    "certificates/v1" = "certificates_v1",
    "certificates/v1alpha1" = "certificates_v1alpha1",
    "certificates/v1beta1" = "certificates_v1beta1",
    "coordination/v1" = "coordination_v1",
    "coordination/v1alpha2" = "coordination_v1alpha2",
    "coordination/v1beta1" = "coordination_v1beta1",
    "discovery/v1" = "discovery_v1",
    "events/v1" = "events_v1",
    "flowcontrol/v1" = "flowcontrol_v1",
    "networking/v1" = "networking_v1",
    "networking/v1beta1" = "networking_v1beta1",
    "node/v1" = "node_v1",
    "policy/v1" = "policy_v1",
    "rbac/v1" = "rbac_v1",
    "resource/v1" = "resource_v1",
    "resource/v1alpha3" = "resource_v1alpha3",
    "resource/v1beta1" = "resource_v1beta1",
    "resource/v1beta2" = "resource_v1beta2",
    "scheduling/v1" = "scheduling_v1",
    "scheduling/v1alpha2" = "scheduling_v1alpha2",
    "storage/v1" = "storage_v1",
    "storage/v1beta1" = "storage_v1beta1",
    "storagemigration/v1beta1" = "storagemigration_v1beta1",
};

/// A type as its table has it, names not resolved yet.
struct RawType {
    package: &'static str,
    name: &'static str,
    atomic: bool,
    lines: Vec<&'static str>,
}

/// Parses all tables.
pub fn load() -> Schema {
    let raw: Vec<RawType> = TABLES.iter().flat_map(|(package, table)| split(package, table)).collect();
    let by_name: HashMap<String, TypeId> =
        raw.iter().enumerate().map(|(at, ty)| (format!("{}.{}", ty.package, ty.name), TypeId(at))).collect();
    let names = Names { by_name: &by_name, raw: &raw };
    let types = raw
        .iter()
        .map(|ty| Type {
            name: format!("{}.{}", ty.package, ty.name),
            fields: names.fields(ty),
            atomic: ty.atomic,
        })
        .collect();
    let resources = resources::load(&by_name);
    Schema { types, by_name, resources }
}

fn split(package: &'static str, table: &'static str) -> Vec<RawType> {
    let mut types: Vec<RawType> = Vec::new();
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(field) = line.strip_prefix("  ") {
            types.last_mut().expect("a field follows a type").lines.push(field);
        } else {
            let (name, rest) = line.split_once(':').expect("a type ends with a colon");
            types.push(RawType { package, name, atomic: rest.contains("atomic"), lines: Vec::new() });
        }
    }
    types
}

struct Names<'a> {
    by_name: &'a HashMap<String, TypeId>,
    raw: &'a [RawType],
}

impl Names<'_> {
    fn fields(&self, ty: &RawType) -> Vec<Field> {
        let mut fields = Vec::new();
        for line in &ty.lines {
            let (name, rest) = line.split_once(": ").expect("a field has a name");
            if name == "inline" {
                let inlined = rest.split_whitespace().next().unwrap_or_default();
                if let Ty::Struct(TypeId(at)) = self.ty(ty.package, inlined) {
                    fields.extend(self.fields(&self.raw[at]));
                }
            } else {
                fields.push(self.field(ty.package, name, rest));
            }
        }
        fields
    }

    fn field(&self, package: &str, name: &'static str, rest: &'static str) -> Field {
        let (rest, default) = match rest.split_once(" default(") {
            Some((rest, default)) => (rest, default.strip_suffix(')')),
            None => (rest, None),
        };
        let mut words = rest.split_whitespace().skip(1).peekable();
        let first = words.next().expect("a field has a type");
        let ty = match first {
            "map" => Ty::Map(Box::new(self.ty(package, words.next().expect("a map has an element type")))),
            other => self.ty(package, other),
        };
        let mut field = Field {
            name,
            ty,
            presence: Presence::NonZero,
            required: false,
            list: ListKind::Atomic,
            patch: PatchRule::default(),
            default: default.map(|text| serde_json::from_str(text).expect("a default is JSON")),
        };
        words.for_each(|flag| set_flag(&mut field, flag));
        field
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
            _ => Ty::Struct(*self.by_name.get(&qualified).unwrap_or_else(|| panic!("the tables have no type {qualified}"))),
        }
    }
}

fn set_flag(field: &mut Field, flag: &'static str) {
    let (word, argument) = match flag.split_once('(') {
        Some((word, argument)) => (word, argument.trim_end_matches(')')),
        None => (flag, ""),
    };
    match word {
        "ptr" => field.presence = Presence::Pointer,
        "always" => field.presence = Presence::Always,
        "req" => field.required = true,
        "atomic" => field.list = ListKind::Atomic,
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
