//! Label and field selection for lists and watches, evaluated on the indexed fields of cached items without decoding.

use api::{
    Value, convert, meta,
    schema::ResourceRef,
    selector::{self, FieldSelector, LabelSelector},
    status::Status,
};
use apiserver_core::{catalog::catalog, document, initializers, request::ResourceRequest};
use store::{CachedItem, SelectionBloomFilter};

/// The label and field selectors of a list or a watch.
#[derive(Clone, Debug, Default)]
pub struct SelectionPredicate {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
    /// Selectable fields of a custom resource, which are read from the decoded object.
    custom: Option<(ResourceRef, FieldSelector)>,
    namespaced: bool,
}

/// One field requirement.
#[derive(Clone, Debug)]
struct FieldTerm {
    field: FieldSource,
    equal: bool,
    value: String,
}

/// The source of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldSource {
    Name,
    Namespace,
    /// Index into the cached item's selectable fields.
    Indexed(usize),
}

impl SelectionPredicate {
    /// Parses the selectors of a query. A request that names an object selects it by name.
    pub fn from_request(request: &ResourceRequest) -> Result<Self, Status> {
        let bad = |error: selector::SelectorError| Status::bad_request(error.to_string());
        let labels = LabelSelector::parse(request.query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
        let fields = request.query.get("fieldSelector").unwrap_or_default();
        let fields = FieldSelector::parse(fields, &request.resource).map_err(bad)?;
        let place = |name: &str| match name {
            "metadata.name" => Some(FieldSource::Name),
            "metadata.namespace" => Some(FieldSource::Namespace),
            name => catalog().field_index(&request.resource, name).map(FieldSource::Indexed),
        };
        let term = |(name, equal, value): (&str, bool, &str)| {
            Some(FieldTerm { field: place(name)?, equal, value: value.to_owned() })
        };
        let custom =
            request.resource.custom_schema.is_some() && fields.requirements().any(|(name, ..)| place(name).is_none());
        let terms: Vec<FieldTerm> = fields.requirements().filter_map(term).collect();
        let custom = custom.then(|| (request.resource.clone(), fields));
        let mut selection = Self { labels, fields: terms, custom, namespaced: request.resource.is_namespaced() };
        if !request.name.is_empty() {
            selection.require_name(&request.name)?;
        }
        if !initializers::includes_pending(request)
            && let Some(key) = catalog().pending_field_index(&request.resource)
        {
            selection.fields.push(FieldTerm { field: FieldSource::Indexed(key), equal: true, value: String::new() });
        }
        Ok(selection)
    }

    fn require_name(&mut self, name: &str) -> Result<(), Status> {
        if self.fields.is_empty() {
            self.fields = vec![FieldTerm { field: FieldSource::Name, equal: true, value: name.to_owned() }];
            return Ok(());
        }
        let same = |term: &FieldTerm| term.field == FieldSource::Name && term.equal && term.value == name;
        if self.fields.iter().any(same) {
            return Ok(());
        }
        Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"))
    }

    /// Whether all objects are selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.custom.is_none()
    }

    /// The filter of labels and fields that must have one value: every selected object includes it.
    pub fn bloom_filter(&self) -> SelectionBloomFilter {
        let labels = self.labels.requirements().filter_map(|(key, operator, values)| match values {
            [value] if operator == "In" => Some((key, value)),
            _ => None,
        });
        let filter = labels.fold(SelectionBloomFilter::default(), |filter, (key, value)| filter.with_label(key, value));
        self.fields.iter().fold(filter, |filter, term| match term.field {
            FieldSource::Indexed(index) if term.equal && !term.value.is_empty() => {
                filter.with_field(index, &term.value)
            }
            _ => filter,
        })
    }

    /// Whether an object is selected.
    pub fn matches(&self, item: &CachedItem) -> bool {
        self.labels.matches_by(|key| item.selectable_fields.label(key))
            && self.may_match(item)
            && self.custom.as_ref().is_none_or(|(row, fields)| matches_custom_fields(row, fields, item))
    }

    /// Whether the version-independent fields match.
    pub fn may_match(&self, item: &CachedItem) -> bool {
        let field = |term: &FieldTerm| (self.field_value(item, term.field) == term.value) == term.equal;
        self.fields.iter().all(field)
    }

    /// Whether an object that a conversion webhook converted is selected; labels are those of the converted object.
    pub fn matches_converted(&self, item: &CachedItem, object: &Value) -> bool {
        self.labels.matches_by(|key| meta::value_at(object, &["metadata", "labels", key]).and_then(Value::as_str))
            && self.may_match(item)
            && self.custom.as_ref().is_none_or(|(_, fields)| fields.matches(object))
    }

    fn field_value<'i>(&self, item: &'i CachedItem, field: FieldSource) -> &'i str {
        let mut parts = item.record.key.rsplit('/');
        match field {
            FieldSource::Name => parts.next().unwrap_or_default(),
            FieldSource::Namespace if self.namespaced => parts.nth(1).unwrap_or_default(),
            FieldSource::Namespace => "",
            FieldSource::Indexed(key) => item.selectable_fields.field(key),
        }
    }
}

/// Whether the fields of a custom resource match; an undecodable object never does.
fn matches_custom_fields(row: &ResourceRef, fields: &FieldSelector, item: &CachedItem) -> bool {
    document::decode_record(&item.record).is_ok_and(|object| fields.matches(&convert::convert_to(row, object)))
}
