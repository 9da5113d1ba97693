//! Reads a few values out of a JSON document and passes over the rest.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Paths to read, as a tree of names.
#[derive(Default)]
pub(super) struct PathSet {
    root: PathNode,
    count: usize,
}

#[derive(Default)]
struct PathNode {
    children: Vec<(&'static str, PathNode)>,
    /// The index of the path.
    index: Option<usize>,
}

/// The values that a scan finds.
#[derive(Default)]
pub(super) struct ScannedValues<'v> {
    pub labels: Vec<(Cow<'v, str>, Cow<'v, str>)>,
    /// The text at each path; `None` if it is absent or empty.
    pub values: Vec<Option<Cow<'v, str>>>,
}

impl PathSet {
    /// Adds a path and returns its index among the values.
    pub fn add_path(&mut self, path: &'static str) -> usize {
        let mut node = &mut self.root;
        for name in path.split('.') {
            let at = node.children.iter().position(|(known, _)| *known == name);
            let at = at.unwrap_or_else(|| {
                node.children.push((name, PathNode::default()));
                node.children.len() - 1
            });
            node = &mut node.children[at].1;
        }
        self.count += 1;
        *node.index.get_or_insert(self.count - 1)
    }

    /// Reads the labels and the texts at all paths; `None` if the document is no JSON object.
    pub fn scan_document<'v>(&self, json: &'v [u8]) -> Option<ScannedValues<'v>> {
        let mut values = ScannedValues { labels: Vec::new(), values: vec![None; self.count] };
        let mut reader = serde_json::Deserializer::from_slice(json);
        DocumentVisitor { node: Some(&self.root), depth: Depth::Object, scanned: &mut values }
            .deserialize(&mut reader)
            .ok()?;
        Some(values)
    }
}

/// The position relative to the labels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Object,
    Metadata,
    Labels,
    Elsewhere,
}

struct DocumentVisitor<'a, 'v> {
    node: Option<&'a PathNode>,
    depth: Depth,
    scanned: &'a mut ScannedValues<'v>,
}

impl DocumentVisitor<'_, '_> {
    fn set_value(&mut self, text: impl FnOnce() -> String) {
        if let Some(slot) = self.node.and_then(|node| node.index).and_then(|place| self.scanned.values.get_mut(place)) {
            *slot = Some(text().into()).filter(|text: &Cow<'_, str>| !text.is_empty());
        }
    }
}

impl<'v> DeserializeSeed<'v> for DocumentVisitor<'_, 'v> {
    type Value = ();

    fn deserialize<D: Deserializer<'v>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'v> Visitor<'v> for DocumentVisitor<'_, 'v> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'v>>(mut self, mut map: A) -> Result<(), A::Error> {
        // An object counts as present.
        self.set_value(|| "{}".to_owned());
        while let Some(name) = map.next_key_seed(BorrowedText)? {
            if self.depth == Depth::Labels {
                let value = map.next_value_seed(BorrowedText)?;
                self.scanned.labels.push((name, value));
                continue;
            }
            let depth = match (self.depth, &*name) {
                (Depth::Object, "metadata") => Depth::Metadata,
                (Depth::Metadata, "labels") => Depth::Labels,
                _ => Depth::Elsewhere,
            };
            let children = self.node.into_iter().flat_map(|node| &node.children);
            let node = children.into_iter().find(|(known, _)| *known == name).map(|(_, node)| node);
            if node.is_none() && depth == Depth::Elsewhere {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(DocumentVisitor { node, depth, scanned: &mut *self.scanned })?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'v>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'v str) -> Result<(), E> {
        if let Some(slot) = self.node.and_then(|node| node.index).and_then(|place| self.scanned.values.get_mut(place)) {
            *slot = Some(text.into()).filter(|text: &Cow<'_, str>| !text.is_empty());
        }
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.set_value(|| text.to_owned());
        Ok(())
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<(), E> {
        self.set_value(|| value.to_string());
        Ok(())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<(), E> {
        self.set_value(|| value.to_string());
        Ok(())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<(), E> {
        self.set_value(|| value.to_string());
        Ok(())
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<(), E> {
        self.set_value(|| value.to_string());
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A string, borrowed where it has no escapes.
struct BorrowedText;

impl<'v> DeserializeSeed<'v> for BorrowedText {
    type Value = Cow<'v, str>;

    fn deserialize<D: Deserializer<'v>>(self, reader: D) -> Result<Cow<'v, str>, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'v> Visitor<'v> for BorrowedText {
    type Value = Cow<'v, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'v str) -> Result<Cow<'v, str>, E> {
        Ok(text.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'v, str>, E> {
        Ok(text.to_owned().into())
    }
}
