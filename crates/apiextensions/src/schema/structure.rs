//! How server-side apply sees a structural schema.

use api::{
    Value,
    apply::{Child, Form, Named, Structure, View},
    schema::Ty,
};

use super::{Kind, ListKind, META, Node, Others};

impl Structure for Node {
    fn view(&self) -> View<'_> {
        if self.int_or_string {
            return View { form: Form::Scalar(&Ty::IntOrString), atomic: true };
        }
        let scalar = |ty: &'static Ty| View { form: Form::Scalar(ty), atomic: true };
        match self.kind {
            Kind::Any if self.properties.is_empty() => View::DEDUCED,
            Kind::Any | Kind::Object if self.has_fields() => View { form: Form::Fields(self), atomic: self.atomic },
            Kind::Any | Kind::Object => View { atomic: self.atomic, ..View::DEDUCED },
            Kind::Array => View { form: Form::Items(self), atomic: matches!(self.list, ListKind::Atomic) },
            Kind::String => scalar(&Ty::String),
            Kind::Integer => scalar(&Ty::Int64),
            Kind::Number => scalar(&Ty::Double),
            Kind::Boolean => scalar(&Ty::Bool),
        }
    }

    fn child(&self, name: &str) -> Option<Child<'_>> {
        if self.is_resource()
            && let Some(name) = META.into_iter().find(|known| *known == name)
        {
            let view = if name == "metadata" { View::metadata() } else { View::TEXT };
            return Some(Child { view, named: Named::ByTable(name) });
        }
        if let Some(node) = self.property(name) {
            return Some(Child { view: node.view(), named: Named::BySchema });
        }
        match &self.others {
            Others::Node(node) => Some(Child { view: node.view(), named: Named::Freely }),
            Others::Any => Some(Child { view: View::DEDUCED, named: Named::Freely }),
            Others::None if self.preserve => Some(Child { view: View::DEDUCED, named: Named::Freely }),
            Others::None => None,
        }
    }

    fn item(&self) -> View<'_> {
        self.items.as_ref().map_or(View::DEDUCED, |items| items.view())
    }

    fn keys(&self) -> &[String] {
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
