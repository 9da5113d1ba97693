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

use super::{Conversion, Definition, Scale, faults};
use crate::{default, prune, schema::Node};

/// One version of a CRD.
#[derive(Debug)]
pub struct Version {
    /// The CRD.
    pub definition: Arc<Definition>,
    /// Index of the version in `spec.versions`.
    pub at: usize,
}

impl Version {
    /// Returns the CRD version behind a resource's custom schema.
    pub fn of(custom: &dyn CustomResourceSchema) -> Option<&Self> {
        custom.as_any().downcast_ref()
    }

    /// Returns the structural schema.
    pub fn schema(&self) -> &Arc<Node> {
        self.definition.schema(self.at)
    }

    /// Returns the paths of the `scale` subresource, if it is enabled.
    pub fn scale(&self) -> Option<&Scale> {
        self.definition.versions[self.at].scale.as_ref()
    }

    /// Returns the API version, such as `example.com/v1`.
    pub fn api_version(&self) -> String {
        self.definition.api_version(self.at)
    }
}

impl CustomResourceSchema for Version {
    fn prune_unknown_fields(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        prune::prune(self.schema(), object)
    }

    fn default(&self, object: &mut Value) {
        default::default(self.schema(), object);
    }

    fn structural_view(&self, api_version: &str) -> Option<&dyn StructuralView> {
        let at = self.definition.version_of(api_version)?;
        Some(&**self.definition.schema(at))
    }

    fn with_api_version<'v>(&self, object: &'v Value, api_version: &str) -> Option<Cow<'v, Value>> {
        let at = self.definition.version_of(api_version)?;
        let given = meta::string_at(object, &["apiVersion"]);
        if given == api_version || given.is_empty() {
            return Some(Cow::Borrowed(object));
        }
        Some(Cow::Owned(self.definition.renamed(object.clone(), at)))
    }

    fn has_identical_versions(&self) -> bool {
        matches!(self.definition.conversion, Conversion::None)
    }

    fn upgrade_stored(&self, object: Value) -> Value {
        let own = self.definition.version_of(meta::string_at(&object, &["apiVersion"])) == Some(self.at);
        let object = self.definition.refreshed(object);
        if own { object } else { self.definition.renamed(object, self.at) }
    }

    fn validate_write(&self, change: ObjectWrite<'_>) -> Vec<FieldError> {
        faults::faults(self, change)
    }

    fn printer_columns(&self) -> Vec<PrinterColumn> {
        self.definition.made(self.at).printer.columns()
    }

    fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.definition.made(self.at).printer.cells(object, now)
    }

    fn list_kind(&self) -> &str {
        self.definition.list_kind
    }

    fn deprecation_warning(&self) -> Option<String> {
        self.definition.versions[self.at].warning.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the warning of a deprecated version: `deprecationWarning`, or a default that names the version to use
/// instead.
pub(super) fn warning(version: &Value, (group, kind): (&str, &str), all: &[Value]) -> String {
    if let Some(text) = version.get("deprecationWarning").and_then(Value::as_str) {
        return text.to_owned();
    }
    let name = meta::string_at(version, &["name"]);
    let usable = |other: &&Value| other["served"] == true && other["deprecated"] != true;
    let names = all.iter().filter(usable).map(|other| meta::string_at(other, &["name"]));
    let newer = names.filter(|other| order(name, other) == Ordering::Less);
    let text = format!("{group}/{name} {kind} is deprecated");
    match newer.max_by(|a, b| order(a, b)) {
        Some(newest) => format!("{text}; use {group}/{newest} {kind}"),
        None => text,
    }
}

/// Compares versions by Kubernetes' version priority: GA above beta above alpha, then higher numbers above lower ones.
pub fn order(a: &str, b: &str) -> Ordering {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Parses `v2beta1` into stability, major and minor version.
fn parts(version: &str) -> Option<(u8, u64, u64)> {
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
    fn versions_have_an_order() {
        let mut versions = ["foo1", "v1alpha1", "v2", "v1", "v11beta2", "v1beta1", "foo10", "v10"];
        versions.sort_by(|a, b| order(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v1beta1", "v1alpha1", "foo1", "foo10"]);
    }
}
