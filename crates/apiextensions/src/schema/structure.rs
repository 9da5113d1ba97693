//! The structural schema as server-side apply sees it: list types, map types and atomicity.

use api::{
    Value,
    apply::{ChildView, KeyOrigin, StructuralView, TypeView, ViewForm},
    schema::FieldType,
};

use super::{Kind, ListKind, META, Node, Others};

impl StructuralView for Node {
    fn type_view(&self) -> TypeView<'_> {
        if self.int_or_string {
            return TypeView { form: ViewForm::Scalar(&FieldType::IntOrString), atomic: true };
        }
        let scalar = |ty: &'static FieldType| TypeView { form: ViewForm::Scalar(ty), atomic: true };
        match self.kind {
            Kind::Any if self.properties.is_empty() => TypeView::DEDUCED,
            Kind::Any | Kind::Object if self.has_fields() => {
                TypeView { form: ViewForm::Fields(self), atomic: self.atomic }
            }
            Kind::Any | Kind::Object => TypeView { atomic: self.atomic, ..TypeView::DEDUCED },
            Kind::Array => TypeView { form: ViewForm::Items(self), atomic: matches!(self.list, ListKind::Atomic) },
            Kind::String => scalar(&FieldType::String),
            Kind::Integer => scalar(&FieldType::Int64),
            Kind::Number => scalar(&FieldType::Double),
            Kind::Boolean => scalar(&FieldType::Bool),
        }
    }

    fn child_view(&self, name: &str) -> Option<ChildView<'_>> {
        if self.is_resource()
            && let Some(name) = META.into_iter().find(|known| *known == name)
        {
            let view = if name == "metadata" { TypeView::object_metadata() } else { TypeView::TEXT };
            return Some(ChildView { view, key_origin: KeyOrigin::TableField(name) });
        }
        if let Some(node) = self.property(name) {
            return Some(ChildView { view: node.type_view(), key_origin: KeyOrigin::SchemaField });
        }
        match &self.others {
            Others::Node(node) => Some(ChildView { view: node.type_view(), key_origin: KeyOrigin::UserDefined }),
            Others::Any => Some(ChildView { view: TypeView::DEDUCED, key_origin: KeyOrigin::UserDefined }),
            Others::None if self.preserve => {
                Some(ChildView { view: TypeView::DEDUCED, key_origin: KeyOrigin::UserDefined })
            }
            Others::None => None,
        }
    }

    fn item_view(&self) -> TypeView<'_> {
        self.items.as_ref().map_or(TypeView::DEDUCED, |items| items.type_view())
    }

    fn key_fields(&self) -> &[String] {
        match &self.list {
            ListKind::Map(keys) => keys,
            ListKind::Set | ListKind::Atomic => &[],
        }
    }

    fn key_default(&self, key: &str) -> Option<Value> {
        self.items.as_deref()?.property(key)?.default.as_deref().cloned()
    }
}

impl Node {
    fn has_fields(&self) -> bool {
        self.is_resource() || !self.properties.is_empty() || !matches!(self.others, Others::None)
    }
}
