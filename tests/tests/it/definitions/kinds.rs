//! The kinds that definitions make: one for each version that is served.

use ferry_tests::definitions::CrdSource;
use serde_json::Value;

/// A kind in a version.
pub struct ServedKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    /// The schema of whole objects.
    pub schema: Value,
}

impl ServedKind {
    /// The kinds of a definition.
    pub fn of(definition: &CrdSource) -> Vec<Self> {
        let parsed = formats::yaml::parse(definition.document.text.as_bytes());
        let mut object = parsed.unwrap_or_else(|error| panic!("{}: {error}", definition.name)).value;
        let mut spec = object["spec"].take();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = spec["versions"].take();
        let served = versions.as_array().into_iter().flatten().filter(|version| version["served"] == true);
        let kind = |version: &Value| Self {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: text(&spec["names"]["kind"]),
            plural: text(&spec["names"]["plural"]),
            namespaced: spec["scope"] == "Namespaced",
            schema: version["schema"]["openAPIV3Schema"].clone(),
        };
        served.map(kind).collect()
    }

    /// As kubectl names it without doubt.
    pub fn resource(&self) -> String {
        format!("{}.{}.{}", self.plural, self.version, self.group)
    }

    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The path of its objects in the default namespace.
    pub fn path(&self) -> String {
        let namespace = if self.namespaced { "/namespaces/default" } else { "" };
        format!("/apis/{}{namespace}/{}", self.api_version(), self.plural)
    }
}
