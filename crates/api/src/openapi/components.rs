//! Component schemas of OpenAPI v2 and v3.
//!
//! A component has a key: `core/v1.Pod` for a struct of the schema, `Quantity` and the like for special types.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::json;

use super::{
    custom_component::custom_component_name,
    descriptions::DescriptionTable,
    enums::{EnumValue, describe_values, parse_enums},
    group_version_kinds::{self, GroupVersionKind},
    path_names::capitalize_first,
};
use crate::{
    Map, Value,
    schema::{FieldType, ListType, StructField, StructType, TypeId, schema},
};

/// The OpenAPI version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenApiVersion {
    V2,
    V3,
}

/// The fields of `/version`; the first nine are required.
const VERSION_INFO_FIELDS: &str = "major minor gitVersion gitCommit gitTreeState buildDate goVersion compiler platform \
    emulationMajor emulationMinor minCompatibilityMajor minCompatibilityMinor";

/// The schemas of one document.
pub(super) struct ComponentSchemas {
    pub dialect: OpenApiVersion,
    descriptions: DescriptionTable,
    enums: HashMap<&'static str, Vec<EnumValue>>,
    kinds: HashMap<TypeId, GroupVersionKind>,
    /// The group-versions of the common kinds: that of the document, or all.
    common: BTreeSet<(&'static str, &'static str)>,
}

impl ComponentSchemas {
    /// For a v3 document of one group-version, or of none.
    pub fn for_v3(group_version: Option<(&'static str, &'static str)>) -> Self {
        Self::new(OpenApiVersion::V3, group_version.into_iter().chain([("", "v1")]).collect())
    }

    /// For a v3 document of custom resources.
    pub fn for_v3_custom_resources() -> Self {
        Self::new(OpenApiVersion::V3, group_version_kinds::client_group_versions())
    }

    /// For the v2 document.
    pub fn for_v2() -> Self {
        Self::new(OpenApiVersion::V2, group_version_kinds::all_group_versions())
    }

    fn new(dialect: OpenApiVersion, common: BTreeSet<(&'static str, &'static str)>) -> Self {
        Self {
            dialect,
            descriptions: DescriptionTable::parse_table(),
            enums: parse_enums(),
            kinds: group_version_kinds::kinds_by_type(),
            common,
        }
    }

    /// Returns the schemas of some components and of all components that they refer to.
    pub fn schemas_with_references(&self, keys: impl Iterator<Item = String>) -> Map {
        let mut found: BTreeMap<String, Value> = BTreeMap::new();
        let mut waiting: Vec<String> = keys.collect();
        while let Some(key) = waiting.pop() {
            if found.contains_key(&key) {
                continue;
            }
            if let Some(id) = schema().type_named(&key) {
                waiting.extend(schema().get(id).fields.iter().filter_map(|field| component_key(&field.ty, field)));
            }
            let mut schema = self.component_schema(&key);
            if let Some(text) = self.descriptions.type_description(&component_name(&key)) {
                schema["description"] = text.into();
            }
            found.insert(key, schema);
        }
        found.into_iter().map(|(key, schema)| (component_name(&key), schema)).collect()
    }

    /// Returns `{"$ref": …}`.
    pub fn schema_reference(&self, key: &str) -> Value {
        let place = if self.dialect == OpenApiVersion::V2 { "definitions" } else { "components/schemas" };
        json!({"$ref": format!("#/{place}/{}", component_name(key))})
    }

    fn component_schema(&self, key: &str) -> Value {
        match (schema().type_named(key), self.dialect) {
            (Some(id), _) => self.struct_schema(id),
            (None, OpenApiVersion::V2) if key == "Quantity" => json!({"type": "string"}),
            (None, OpenApiVersion::V2) if key == "IntOrString" => json!({"type": "string", "format": "int-or-string"}),
            (None, _) => self.special_schema(key),
        }
    }

    fn special_schema(&self, key: &str) -> Value {
        match key {
            "Quantity" => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            "IntOrString" => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            "Time" | "MicroTime" => json!({"type": "string", "format": "date-time"}),
            "Duration" => json!({"type": "string"}),
            "Info" => self.version_info_schema(),
            "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => json!({}),
            _ => json!({"type": "object"}),
        }
    }

    fn version_info_schema(&self) -> Value {
        let required: Vec<&str> = VERSION_INFO_FIELDS.split(' ').take(9).collect();
        let property = |name: &str| {
            let mut schema = json!({"type": "string"});
            if self.dialect == OpenApiVersion::V3 && required.contains(&name) {
                schema["default"] = "".into();
            }
            (name.to_owned(), schema)
        };
        let properties: Map = VERSION_INFO_FIELDS.split(' ').map(property).collect();
        json!({"type": "object", "properties": properties, "required": required})
    }

    fn struct_schema(&self, id: TypeId) -> Value {
        let ty = schema().get(id);
        let mut properties: Map =
            ty.fields.iter().map(|field| (field.name.to_owned(), self.property_schema(ty, field))).collect();
        let kinds = self.kinds_of(id, ty);
        if !kinds.is_empty() && ty.short_name() != "WatchEvent" {
            for field in ["apiVersion", "kind"] {
                let mut schema = json!({"type": "string"});
                self.describe(ty, field, &mut schema);
                properties.insert(field.into(), schema);
            }
        }
        let mut out = json!({"type": "object"});
        if !properties.is_empty() {
            out["properties"] = Value::Object(properties);
        }
        let required: Vec<&str> = ty.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        if !required.is_empty() {
            out["required"] = json!(required);
        }
        if !kinds.is_empty() {
            out["x-kubernetes-group-version-kind"] = kinds.iter().map(GroupVersionKind::to_value).collect();
        }
        if ty.atomic {
            out["x-kubernetes-map-type"] = "atomic".into();
        }
        if let Some(union) = union_extension(ty) {
            out["x-kubernetes-unions"] = json!([union]);
        }
        out
    }

    fn kinds_of(&self, id: TypeId, ty: &StructType) -> Vec<GroupVersionKind> {
        let everywhere = matches!(ty.name.as_str(), "meta/v1.DeleteOptions" | "meta/v1.WatchEvent");
        if everywhere {
            let kind = |(group, version): &(&'static str, &'static str)| GroupVersionKind {
                group,
                version,
                kind: ty.short_name().to_owned(),
            };
            return self.common.iter().map(kind).collect();
        }
        self.kinds.get(&id).cloned().into_iter().collect()
    }

    fn describe(&self, ty: &StructType, field: &str, schema: &mut Value) {
        if let Some(text) = self.descriptions.field_description(&component_name(&ty.name), field) {
            schema["description"] = text.into();
        }
    }

    fn property_schema(&self, ty: &StructType, field: &StructField) -> Value {
        let mut out = self.element_schema(&field.ty, field);
        self.describe(ty, field.name, &mut out);
        if let Some(values) = self.enums.get(format!("{}.{}", ty.name, field.name).as_str()) {
            set_enum(&mut out, &field.ty, values);
        }
        if self.dialect == OpenApiVersion::V3
            && let Some(default) = field.published_default()
        {
            out["default"] = default;
        }
        if let Some(topology) = field.topology {
            let extension = if matches!(field.ty, FieldType::List(_) | FieldType::Bytes) { "list" } else { "map" };
            out[format!("x-kubernetes-{extension}-type")] = topology.into();
        }
        if let ListType::Map(keys) = &field.list_type {
            out["x-kubernetes-list-map-keys"] = json!(keys);
        }
        if let Some(key) = field.patch_strategy.merge_key.filter(|key| !key.is_empty()) {
            out["x-kubernetes-patch-merge-key"] = key.into();
        }
        let strategies = patch_strategies(field);
        if !strategies.is_empty() {
            out["x-kubernetes-patch-strategy"] = strategies.join(",").into();
        }
        match out.as_object() {
            Some(map) if map.len() > 1 && self.dialect == OpenApiVersion::V3 => wrap_reference(out),
            _ => out,
        }
    }

    fn element_schema(&self, ty: &FieldType, field: &StructField) -> Value {
        match ty {
            FieldType::String => json!({"type": "string"}),
            FieldType::Bool => json!({"type": "boolean"}),
            FieldType::Int32 => json!({"type": "integer", "format": "int32"}),
            FieldType::Int64 => json!({"type": "integer", "format": "int64"}),
            FieldType::Double => json!({"type": "number", "format": "double"}),
            FieldType::Bytes => json!({"type": "string", "format": "byte"}),
            FieldType::List(inner) => json!({"type": "array", "items": self.item_schema(inner, field)}),
            FieldType::Map(inner) => json!({"type": "object", "additionalProperties": self.item_schema(inner, field)}),
            _ => self.schema_reference(&component_key(ty, field).unwrap_or_default()),
        }
    }

    /// The schema of a list or map element, with the default of its type.
    fn item_schema(&self, ty: &FieldType, field: &StructField) -> Value {
        let mut out = self.element_schema(ty, field);
        if self.dialect == OpenApiVersion::V3
            && let Some(zero) = ty.zero_value()
        {
            out["default"] = zero;
            return wrap_reference(out);
        }
        out
    }
}

/// Sets the values of an enumeration, at the elements of a list or map; upstream describes them at the field only.
fn set_enum(schema: &mut Value, ty: &FieldType, values: &[EnumValue]) {
    let names: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
    match ty {
        FieldType::List(_) => schema["items"]["enum"] = json!(names),
        FieldType::Map(_) => schema["additionalProperties"]["enum"] = json!(names),
        _ => {
            schema["enum"] = json!(names);
            schema["description"] =
                (schema["description"].as_str().unwrap_or_default().to_owned() + &describe_values(values)).into();
        }
    }
}

/// Wraps a reference with siblings in `allOf`, as v3 requires.
fn wrap_reference(mut schema: Value) -> Value {
    if let Some(reference) = schema.as_object_mut().and_then(|map| map.remove("$ref")) {
        schema["allOf"] = json!([{"$ref": reference}]);
    }
    schema
}

fn patch_strategies(field: &StructField) -> Vec<&'static str> {
    let rules = [
        (field.patch_strategy.merge_key.is_some(), "merge"),
        (field.patch_strategy.retain_keys, "retainKeys"),
        (field.patch_strategy.replace, "replace"),
    ];
    rules.into_iter().filter_map(|(on, name)| on.then_some(name)).collect()
}

/// The component key of a type or of its elements.
fn component_key(ty: &FieldType, field: &StructField) -> Option<String> {
    let name = match ty {
        FieldType::Struct(id) => return Some(schema().get(*id).name.clone()),
        FieldType::List(inner) | FieldType::Map(inner) => return component_key(inner, field),
        FieldType::Time => "Time",
        FieldType::MicroTime => "MicroTime",
        FieldType::Duration => "Duration",
        FieldType::Quantity => "Quantity",
        FieldType::IntOrString => "IntOrString",
        FieldType::Raw => field.type_name,
        _ => return None,
    };
    Some(name.to_owned())
}

/// Returns the component name: `io.k8s.api.core.v1.Pod` for `core/v1.Pod`.
pub(super) fn component_name(key: &str) -> String {
    if let Some(name) = custom_component_name(key) {
        return name.to_owned();
    }
    const MACHINERY: &str = "io.k8s.apimachinery.pkg";
    let Some((package, rest)) = key.split_once('/') else {
        return match key {
            "Quantity" => format!("{MACHINERY}.api.resource.Quantity"),
            "IntOrString" => format!("{MACHINERY}.util.intstr.IntOrString"),
            "Raw" => format!("{MACHINERY}.runtime.RawExtension"),
            "Info" => format!("{MACHINERY}.version.Info"),
            json if json.starts_with("JSON") => {
                format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{json}")
            }
            other => format!("{MACHINERY}.apis.meta.v1.{other}"),
        };
    };
    match package {
        "meta" => format!("{MACHINERY}.apis.meta.{rest}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{rest}"),
        "apiregistration" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{rest}"),
        "internal" => format!("io.k8s.api.apiserverinternal.{rest}"),
        other => format!("io.k8s.api.{other}.{rest}"),
    }
}

fn union_extension(ty: &StructType) -> Option<Value> {
    let union = ty.union.as_ref()?;
    let fields: Map = union.fields.iter().map(|field| ((*field).to_owned(), capitalize_first(field).into())).collect();
    let mut out = json!({"fields-to-discriminateBy": fields});
    if !union.discriminator.is_empty() {
        out["discriminator"] = union.discriminator.into();
    }
    Some(out)
}
