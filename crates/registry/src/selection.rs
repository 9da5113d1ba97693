//! Which objects a list or a watch is about, decided by what the cache knows of a document without decoding it.

use api::{
    Value, convert, meta,
    schema::ResourceRef,
    selector::{self, FieldSelector, LabelSelector},
    status::Status,
};
use apiserver_core::{catalog::catalog, document, initializers, request::ResourceRequest};
use store::CachedItem;

/// Which objects a list or a watch is about.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    labels: LabelSelector,
    fields: Vec<Term>,
    /// What is asked of the fields of a custom resource, which are read from the object as its schema is now.
    custom: Option<(ResourceRef, FieldSelector)>,
    namespaced: bool,
}

/// A field that must, or must not, have a value.
#[derive(Clone, Debug)]
struct Term {
    field: Field,
    equal: bool,
    value: String,
}

/// Where the value of a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// Among the marks.
    Mark(usize),
}

impl Selection {
    /// Reads the selectors of a query. A watch of one object is a watch by its name.
    pub fn of(target: &ResourceRequest) -> Result<Self, Status> {
        let bad = |error: selector::SelectorError| Status::bad_request(error.to_string());
        let labels = LabelSelector::parse(target.query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
        let fields = target.query.get("fieldSelector").unwrap_or_default();
        let fields = FieldSelector::parse(fields, &target.resource).map_err(bad)?;
        let place = |name: &str| match name {
            "metadata.name" => Some(Field::Name),
            "metadata.namespace" => Some(Field::Namespace),
            name => catalog().place(&target.resource, name).map(Field::Mark),
        };
        let term = |(name, equal, value): (&str, bool, &str)| {
            Some(Term { field: place(name)?, equal, value: value.to_owned() })
        };
        let custom =
            target.resource.custom_schema.is_some() && fields.requirements().any(|(name, ..)| place(name).is_none());
        let terms: Vec<Term> = fields.requirements().filter_map(term).collect();
        let custom = custom.then(|| (target.resource.clone(), fields));
        let mut selection = Self { labels, fields: terms, custom, namespaced: target.resource.is_namespaced() };
        if !target.name.is_empty() {
            selection.only(&target.name)?;
        }
        if !initializers::wants_all(target)
            && let Some(place) = catalog().pending(&target.resource)
        {
            selection.fields.push(Term { field: Field::Mark(place), equal: true, value: String::new() });
        }
        Ok(selection)
    }

    fn only(&mut self, name: &str) -> Result<(), Status> {
        if self.fields.is_empty() {
            self.fields = vec![Term { field: Field::Name, equal: true, value: name.to_owned() }];
            return Ok(());
        }
        let same = |term: &Term| term.field == Field::Name && term.equal && term.value == name;
        if self.fields.iter().any(same) {
            return Ok(());
        }
        Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"))
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.custom.is_none()
    }

    /// Whether an object is selected.
    pub fn matches(&self, item: &CachedItem) -> bool {
        self.labels.matches_by(|key| item.selectable_fields.label(key))
            && self.may_match(item)
            && self.custom.as_ref().is_none_or(|(row, fields)| matches(row, fields, item))
    }

    /// Whether an object is selected by what is the same of it in every version.
    pub fn may_match(&self, item: &CachedItem) -> bool {
        let field = |term: &Term| (self.value(item, term.field) == term.value) == term.equal;
        self.fields.iter().all(field)
    }

    /// Whether an object is selected that somebody else converted: labels, too, are as they made them.
    pub fn matches_converted(&self, item: &CachedItem, object: &Value) -> bool {
        self.labels.matches_by(|key| meta::value_at(object, &["metadata", "labels", key]).and_then(Value::as_str))
            && self.may_match(item)
            && self.custom.as_ref().is_none_or(|(_, fields)| fields.matches(object))
    }

    fn value<'i>(&self, item: &'i CachedItem, field: Field) -> &'i str {
        let mut parts = item.record.key.rsplit('/');
        match field {
            Field::Name => parts.next().unwrap_or_default(),
            Field::Namespace if self.namespaced => parts.nth(1).unwrap_or_default(),
            Field::Namespace => "",
            Field::Mark(place) => item.selectable_fields.field(place),
        }
    }
}

/// Whether the fields of a custom resource are as asked; what cannot be read has none.
fn matches(row: &ResourceRef, fields: &FieldSelector, item: &CachedItem) -> bool {
    document::decode_record(&item.record).is_ok_and(|object| fields.matches(&convert::convert_to(row, object)))
}
