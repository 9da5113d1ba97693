//! Descriptions of types and fields, as shown by `kubectl explain`.
//!
//! The build script extracts them; lists, which are missing there, are described here.

use std::collections::HashMap;

const DESCRIPTION_TABLE: &str = include_str!(concat!(env!("OUT_DIR"), "/descriptions.txt"));

/// Descriptions by component and field; that of a type has an empty field.
pub(super) struct DescriptionTable(HashMap<(&'static str, &'static str), &'static str>);

impl DescriptionTable {
    /// Parses the table, which is slow; the result is not cached.
    pub fn parse_table() -> Self {
        let mut component = "";
        let mut texts = HashMap::new();
        for (key, text) in DESCRIPTION_TABLE.lines().filter_map(|line| line.split_once('\t')) {
            match key.strip_prefix('@') {
                Some(name) => {
                    component = name;
                    texts.insert((component, ""), text);
                }
                None => _ = texts.insert((component, key), text),
            }
        }
        Self(texts)
    }

    /// The description of a type.
    pub fn type_description(&self, component: &str) -> Option<String> {
        self.get(component, "").or_else(|| list_item_kind(component).map(|kind| format!("A list of {kind} objects.")))
    }

    /// The description of a field.
    pub fn field_description(&self, component: &str, field: &str) -> Option<String> {
        self.get(component, field).or_else(|| {
            list_item_kind(component)?;
            match field {
                "items" => Some("The objects of the list.".to_owned()),
                "metadata" => Some("Metadata of the list.".to_owned()),
                // Common to all kinds.
                "apiVersion" | "kind" => self.get("io.k8s.apimachinery.pkg.apis.meta.v1.Status", field),
                _ => None,
            }
        })
    }

    fn get(&self, component: &str, field: &str) -> Option<String> {
        let text = self.0.get(&(component, field))?;
        serde_json::from_str(&format!("\"{text}\"")).ok()
    }
}

/// The item kind of a list component.
fn list_item_kind(component: &str) -> Option<&str> {
    component.rsplit('.').next()?.strip_suffix("List").filter(|kind| !kind.is_empty())
}
