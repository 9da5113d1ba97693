//! Descriptions of types and fields, as shown by `kubectl explain`.
//!
//! The build script extracts them; lists, which are missing there, are described here.

use std::collections::HashMap;

const TEXTS: &str = include_str!(concat!(env!("OUT_DIR"), "/descriptions.txt"));

/// Descriptions by component and field; that of a type has an empty field.
pub(super) struct Descriptions(HashMap<(&'static str, &'static str), &'static str>);

impl Descriptions {
    /// Parses the table, which is slow; the result is not cached.
    pub fn load() -> Self {
        let mut component = "";
        let mut texts = HashMap::new();
        for (key, text) in TEXTS.lines().filter_map(|line| line.split_once('\t')) {
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
    pub fn of_type(&self, component: &str) -> Option<String> {
        self.get(component, "").or_else(|| of_list(component).map(|kind| format!("A list of {kind} objects.")))
    }

    /// The description of a field.
    pub fn of_field(&self, component: &str, field: &str) -> Option<String> {
        self.get(component, field).or_else(|| {
            of_list(component)?;
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
fn of_list(component: &str) -> Option<&str> {
    component.rsplit('.').next()?.strip_suffix("List").filter(|kind| !kind.is_empty())
}
