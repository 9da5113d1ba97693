//! One version of a CRD, as the schema of its API resource.

use std::{any::Any, borrow::Cow, cmp::Ordering, sync::Arc};

use api::{
    Value,
    apply::StructuralView,
    meta,
    schema::{CustomResourceSchema, ObjectWrite, PrinterColumn},
    validate::FieldError,
};
use jiff::Timestamp;

use super::{ConversionStrategy, CrdInfo, ScalePaths, object_validation};
use crate::{defaulting, pruning, structural_schema::Structural};

/// One version of a CRD.
#[derive(Debug)]
pub struct CrdVersion {
    /// The CRD.
    pub crd: Arc<CrdInfo>,
    /// Index of the version in `spec.versions`.
    pub index: usize,
}

impl CrdVersion {
    /// Returns the CRD version behind a resource's custom schema.
    pub fn from_schema(custom: &dyn CustomResourceSchema) -> Option<&Self> {
        custom.as_any().downcast_ref()
    }

    /// Returns the structural schema.
    pub fn schema(&self) -> &Arc<Structural> {
        self.crd.schema(self.index)
    }

    /// Returns the paths of the `scale` subresource, if it is enabled.
    pub fn scale(&self) -> Option<&ScalePaths> {
        self.crd.versions[self.index].scale.as_ref()
    }

    /// Returns the API version, such as `example.com/v1`.
    pub fn api_version(&self) -> String {
        self.crd.api_version(self.index)
    }
}

impl CustomResourceSchema for CrdVersion {
    fn prune_unknown_fields(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        pruning::prune_unknown_fields(self.schema(), object)
    }

    fn default(&self, object: &mut Value) {
        defaulting::apply_defaults(self.schema(), object);
    }

    fn structural_view(&self, api_version: &str) -> Option<&dyn StructuralView> {
        let at = self.crd.api_version_index(api_version)?;
        Some(&**self.crd.schema(at))
    }

    fn with_api_version<'v>(&self, object: &'v Value, api_version: &str) -> Option<Cow<'v, Value>> {
        let at = self.crd.api_version_index(api_version)?;
        let api_version_of_object = meta::string_at(object, &["apiVersion"]);
        if api_version_of_object == api_version || api_version_of_object.is_empty() {
            return Some(Cow::Borrowed(object));
        }
        Some(Cow::Owned(self.crd.relabel_version(object.clone(), at)))
    }

    fn has_identical_versions(&self) -> bool {
        matches!(self.crd.conversion, ConversionStrategy::None)
    }

    fn upgrade_stored(&self, object: Value) -> Value {
        let own = self.crd.api_version_index(meta::string_at(&object, &["apiVersion"])) == Some(self.index);
        let object = self.crd.prune_and_default(object);
        if own { object } else { self.crd.relabel_version(object, self.index) }
    }

    fn validate_write(&self, change: ObjectWrite<'_>) -> Vec<FieldError> {
        object_validation::validate_object(&self.crd, self.index, change)
    }

    fn printer_columns(&self) -> Vec<PrinterColumn> {
        self.crd.built_version(self.index).table_convertor.printer_columns()
    }

    fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.crd.built_version(self.index).table_convertor.row_cells(object, now)
    }

    fn list_kind(&self) -> &str {
        self.crd.list_kind
    }

    fn deprecation_warning(&self) -> Option<String> {
        self.crd.versions[self.index].warning.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the warning of a deprecated version: `deprecationWarning`, or a default that names the version to use
/// instead.
pub(super) fn deprecation_warning(version: &Value, (group, kind): (&str, &str), all: &[Value]) -> String {
    if let Some(text) = version.get("deprecationWarning").and_then(Value::as_str) {
        return text.to_owned();
    }
    let name = meta::string_at(version, &["name"]);
    let usable = |other: &&Value| other["served"] == true && other["deprecated"] != true;
    let names = all.iter().filter(usable).map(|other| meta::string_at(other, &["name"]));
    let newer = names.filter(|other| compare_versions(name, other) == Ordering::Less);
    let text = format!("{group}/{name} {kind} is deprecated");
    match newer.max_by(|a, b| compare_versions(a, b)) {
        Some(newest) => format!("{text}; use {group}/{newest} {kind}"),
        None => text,
    }
}

/// Compares versions by Kubernetes' version priority: GA above beta above alpha, then higher numbers above lower ones.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Parses `v2beta1` into stability, major and minor version.
fn parse_version(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let (stability, minor) = match &rest[digits..] {
        "" => return Some((2, major, 0)),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (0, minor),
            _ => return None,
        },
    };
    // `v1beta` has no minor version.
    let minor = if minor.is_empty() { 0 } else { minor.parse().ok()? };
    Some((stability, major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_priority() {
        let mut versions = ["foo1", "v1alpha1", "v2", "v1", "v11beta2", "v1beta1", "foo10", "v10"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v1beta1", "v1alpha1", "foo1", "foo10"]);
    }
}
