//! The structural schema as server-side apply sees it: list types, map types and atomicity.

use api::{
    Value,
    apply::{ChildView, KeyOrigin, StructuralView, TypeView, ViewForm},
    schema::FieldType,
};

use super::{AdditionalProperties, JsonType, ListType, OBJECT_META_FIELDS, Structural};

impl StructuralView for Structural {
    fn type_view(&self) -> TypeView<'_> {
        if self.int_or_string {
            return TypeView { form: ViewForm::Scalar(&FieldType::IntOrString), atomic: true };
        }
        let scalar = |ty: &'static FieldType| TypeView { form: ViewForm::Scalar(ty), atomic: true };
        match self.kind {
            JsonType::Any if self.properties.is_empty() => TypeView::DEDUCED,
            JsonType::Any | JsonType::Object if self.has_fields() => {
                TypeView { form: ViewForm::Fields(self), atomic: self.atomic }
            }
            JsonType::Any | JsonType::Object => TypeView { atomic: self.atomic, ..TypeView::DEDUCED },
            JsonType::Array => {
                TypeView { form: ViewForm::Items(self), atomic: matches!(self.list_type, ListType::Atomic) }
            }
            JsonType::String => scalar(&FieldType::String),
            JsonType::Integer => scalar(&FieldType::Int64),
            JsonType::Number => scalar(&FieldType::Double),
            JsonType::Boolean => scalar(&FieldType::Bool),
        }
    }

    fn child_view(&self, name: &str) -> Option<ChildView<'_>> {
        if self.is_resource()
            && let Some(name) = OBJECT_META_FIELDS.into_iter().find(|known| *known == name)
        {
            let view = if name == "metadata" { TypeView::object_metadata() } else { TypeView::TEXT };
            return Some(ChildView { view, key_origin: KeyOrigin::TableField(name) });
        }
        if let Some(node) = self.property(name) {
            return Some(ChildView { view: node.type_view(), key_origin: KeyOrigin::SchemaField });
        }
        match &self.additional_properties {
            AdditionalProperties::Schema(node) => {
                Some(ChildView { view: node.type_view(), key_origin: KeyOrigin::UserDefined })
            }
            AdditionalProperties::Any => {
                Some(ChildView { view: TypeView::DEDUCED, key_origin: KeyOrigin::UserDefined })
            }
            AdditionalProperties::None if self.preserve_unknown_fields => {
                Some(ChildView { view: TypeView::DEDUCED, key_origin: KeyOrigin::UserDefined })
            }
            AdditionalProperties::None => None,
        }
    }

    fn item_view(&self) -> TypeView<'_> {
        self.items.as_ref().map_or(TypeView::DEDUCED, |items| items.type_view())
    }

    fn key_fields(&self) -> &[String] {
        match &self.list_type {
            ListType::Map(keys) => keys,
            ListType::Set | ListType::Atomic => &[],
        }
    }

    fn key_default(&self, key: &str) -> Option<Value> {
        self.items.as_deref()?.property(key)?.default.as_deref().cloned()
    }
}

impl Structural {
    fn has_fields(&self) -> bool {
        self.is_resource()
            || !self.properties.is_empty()
            || !matches!(self.additional_properties, AdditionalProperties::None)
    }
}
