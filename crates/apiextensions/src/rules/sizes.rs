//! Maximum sizes of values, by the schema's bounds and the request size limit. Rule cost estimation is based on them.

use cel::{CostEstimate, SizeEstimator, unescape_identifier};

use crate::schema::{Kind, Node, Others};

/// Maximum request size that the estimate assumes, in bytes.
const REQUEST: i64 = 3 << 20;
const TIME: i64 = 32;
const DATE: i64 = 12;

/// Estimates the sizes of values below a schema node.
pub struct Reach<'a>(pub &'a Node);

impl SizeEstimator for Reach<'_> {
    fn estimate_size(&self, path: &[&str]) -> Option<CostEstimate> {
        // The first step is the variable, which is the node itself.
        let mut at = Place::Node(self.0);
        for step in path.get(1..)? {
            at = at.step(step)?;
        }
        Some(CostEstimate { min: 0, max: u64::try_from(at.most()).unwrap_or(0) })
    }
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Node(&'a Node),
    /// The keys of a map.
    Keys,
}

impl<'a> Place<'a> {
    fn step(self, step: &str) -> Option<Place<'a>> {
        let Place::Node(node) = self else { return None };
        let next = match step {
            "@items" | "@values" => match &node.others {
                Others::Node(inner) if node.kind == Kind::Object => inner,
                _ => node.items.as_ref()?,
            },
            "@keys" => return matches!(node.others, Others::Node(_)).then_some(Place::Keys),
            name if node.kind == Kind::Object && !matches!(node.others, Others::Node(_)) => {
                node.property(&unescape_identifier(name)?)?
            }
            _ => return None,
        };
        super::types::is_typed(next).then_some(Place::Node(next))
    }

    fn most(self) -> i64 {
        match self {
            Place::Node(node) => most(node),
            Place::Keys => 0,
        }
    }
}

/// Returns the maximum number of elements, entries or bytes of a value.
fn most(node: &Node) -> i64 {
    let bounds = node.bounds();
    if node.int_or_string {
        return bounds.max_length.map_or(REQUEST - 2, |most| most.max(0).saturating_mul(4));
    }
    match (node.kind, &node.others) {
        (Kind::Array, _) => match (bounds.max_items, &node.items) {
            (Some(most), _) => most.max(0),
            (None, Some(items)) => (REQUEST - 2) / (least_size(items) + 1),
            (None, None) => 0,
        },
        (Kind::Object, Others::Node(inner)) => match bounds.max_properties {
            Some(most) => most.max(0),
            None => (REQUEST - 2) / (least_size(inner) + 6),
        },
        (Kind::String, _) => match (&*bounds.format, bounds.max_length) {
            ("duration" | "date-time", _) => TIME,
            ("date", _) => DATE,
            ("byte", Some(most)) => most.max(0),
            (_, Some(most)) => most.max(0).saturating_mul(4),
            ("byte", None) => REQUEST - 2,
            (_, None) if !bounds.one_of_values.is_empty() => {
                let lengths = bounds.one_of_values.iter().filter_map(|value| value.as_str());
                lengths.map(|text| text.len() as i64).max().unwrap_or(0)
            }
            (_, None) => REQUEST - 2,
        },
        _ => 0,
    }
}

/// Returns the minimum size of a value's JSON encoding, in bytes.
pub fn least_size(node: &Node) -> i64 {
    if node.int_or_string {
        return 1;
    }
    match (node.kind, &node.others) {
        (Kind::Boolean, _) => 4,
        (Kind::Number | Kind::Integer, _) => 1,
        (Kind::String, _) => match &*node.bounds().format {
            "duration" => 3,
            "date" => DATE,
            "date-time" => 21,
            _ => 2,
        },
        (Kind::Object, Others::None | Others::Any) => {
            let required = node.bounds().required.iter().filter_map(|name| Some((name, node.property(name)?)));
            let counted = required.filter(|(_, inner)| inner.default.is_none() && super::types::is_typed(inner));
            2 + counted.map(|(name, inner)| name.len() as i64 + least_size(inner) + 4).sum::<i64>()
        }
        _ => 2,
    }
}

/// Returns the maximum number of values of a schema in one request.
pub fn most_often(node: &Node) -> u64 {
    u64::try_from(REQUEST / (least_size(node) + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    /// A character takes up to four bytes; the product saturates for the largest `maxLength`.
    #[test]
    fn bounds_that_no_request_can_carry_are_large() {
        let check = |text: api::Value| {
            let mut text = text;
            text["maxLength"] = i64::MAX.into();
            text["x-kubernetes-validations"] = json!([{"rule": "self.contains(self)"}]);
            let schema = json!({"type": "object", "properties": {"a": text}});
            let errors = crate::rules::check(&Arc::new(crate::schema::parse(&schema)), "schema");
            assert!(errors.iter().any(|error| error.to_string().contains("exceeds budget")), "{errors:?}");
        };
        check(json!({"type": "string"}));
        check(json!({"x-kubernetes-int-or-string": true}));
    }
}
