//! Which objects a list or a watch is about.

use api::{
    meta,
    selector::{FieldSelector, LabelSelector},
    status::Status,
};

use crate::request::Target;

/// Which objects a list or a watch is about.
#[derive(Clone, Debug)]
pub struct Selection {
    /// By labels.
    pub labels: LabelSelector,
    /// By fields.
    pub fields: FieldSelector,
}

impl Selection {
    /// Reads the selectors of a query.
    pub fn of(target: &Target) -> Result<Self, Status> {
        let bad = |error: api::selector::Error| Status::bad_request(error.to_string());
        Ok(Self {
            labels: LabelSelector::parse(target.query.get("labelSelector").unwrap_or_default()).map_err(bad)?,
            fields: FieldSelector::parse(target.query.get("fieldSelector").unwrap_or_default(), target.resource)
                .map_err(bad)?,
        })
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object, in the version of the request, is selected.
    pub fn matches(&self, object: &api::Value) -> bool {
        let labels = meta::at(object, &["metadata", "labels"]).unwrap_or(&api::Value::Null);
        self.labels.matches(labels) && self.fields.matches(object)
    }
}
