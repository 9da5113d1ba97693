//! Maximum sizes of values, by the schema's bounds and the request size limit. Rule cost estimation is based on them.

use cel::{Estimate, SizeEstimator, unescape_identifier};

use crate::structural_schema::{AdditionalProperties, JsonType, Structural};

/// Maximum request size that the estimate assumes, in bytes.
const MAX_REQUEST_SIZE: i64 = 3 << 20;
const TIME_SIZE: i64 = 32;
const DATE_SIZE: i64 = 12;

/// Estimates the sizes of values below a schema node.
pub struct SchemaSizeEstimator<'a>(pub &'a Structural);

impl SizeEstimator for SchemaSizeEstimator<'_> {
    fn estimate_size(&self, path: &[&str]) -> Option<Estimate> {
        // The first step is the variable, which is the node itself.
        let mut at = SizedValue::Node(self.0);
        for step in path.get(1..)? {
            at = at.descend(step)?;
        }
        Some(Estimate { min: 0, max: u64::try_from(at.max_size()).unwrap_or(0) })
    }
}

#[derive(Clone, Copy)]
enum SizedValue<'a> {
    Node(&'a Structural),
    /// The keys of a map.
    Keys,
}

impl<'a> SizedValue<'a> {
    fn descend(self, step: &str) -> Option<SizedValue<'a>> {
        let SizedValue::Node(node) = self else { return None };
        let next = match step {
            "@items" | "@values" => match &node.additional_properties {
                AdditionalProperties::Schema(inner) if node.kind == JsonType::Object => inner,
                _ => node.items.as_ref()?,
            },
            "@keys" => {
                return matches!(node.additional_properties, AdditionalProperties::Schema(_))
                    .then_some(SizedValue::Keys);
            }
            name if node.kind == JsonType::Object
                && !matches!(node.additional_properties, AdditionalProperties::Schema(_)) =>
            {
                node.property(&unescape_identifier(name)?)?
            }
            _ => return None,
        };
        super::cel_types::has_cel_type(next).then_some(SizedValue::Node(next))
    }

    fn max_size(self) -> i64 {
        match self {
            SizedValue::Node(node) => max_size(node),
            SizedValue::Keys => 0,
        }
    }
}

/// Returns the maximum number of elements, entries or bytes of a value.
fn max_size(node: &Structural) -> i64 {
    let validation = node.value_validation();
    if node.int_or_string {
        return validation.max_length.map_or(MAX_REQUEST_SIZE - 2, |most| most.max(0).saturating_mul(4));
    }
    match (node.kind, &node.additional_properties) {
        (JsonType::Array, _) => match (validation.max_items, &node.items) {
            (Some(most), _) => most.max(0),
            (None, Some(items)) => (MAX_REQUEST_SIZE - 2) / (min_serialized_size(items) + 1),
            (None, None) => 0,
        },
        (JsonType::Object, AdditionalProperties::Schema(inner)) => match validation.max_properties {
            Some(most) => most.max(0),
            None => (MAX_REQUEST_SIZE - 2) / (min_serialized_size(inner) + 6),
        },
        (JsonType::String, _) => match (&*validation.format, validation.max_length) {
            ("duration" | "date-time", _) => TIME_SIZE,
            ("date", _) => DATE_SIZE,
            ("byte", Some(most)) => most.max(0),
            (_, Some(most)) => most.max(0).saturating_mul(4),
            ("byte", None) => MAX_REQUEST_SIZE - 2,
            (_, None) if !validation.enumeration.is_empty() => {
                let lengths = validation.enumeration.iter().filter_map(|value| value.as_str());
                lengths.map(|text| text.len() as i64).max().unwrap_or(0)
            }
            (_, None) => MAX_REQUEST_SIZE - 2,
        },
        _ => 0,
    }
}

/// Returns the minimum size of a value's JSON encoding, in bytes.
pub fn min_serialized_size(node: &Structural) -> i64 {
    if node.int_or_string {
        return 1;
    }
    match (node.kind, &node.additional_properties) {
        (JsonType::Boolean, _) => 4,
        (JsonType::Number | JsonType::Integer, _) => 1,
        (JsonType::String, _) => match &*node.value_validation().format {
            "duration" => 3,
            "date" => DATE_SIZE,
            "date-time" => 21,
            _ => 2,
        },
        (JsonType::Object, AdditionalProperties::None | AdditionalProperties::Any) => {
            let required =
                node.value_validation().required.iter().filter_map(|name| Some((name, node.property(name)?)));
            let counted =
                required.filter(|(_, inner)| inner.default.is_none() && super::cel_types::has_cel_type(inner));
            2 + counted.map(|(name, inner)| name.len() as i64 + min_serialized_size(inner) + 4).sum::<i64>()
        }
        _ => 2,
    }
}

/// Returns the maximum number of values of a schema in one request.
pub fn max_cardinality(node: &Structural) -> u64 {
    u64::try_from(MAX_REQUEST_SIZE / (min_serialized_size(node) + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    /// A character takes up to four bytes; the product saturates for the largest `maxLength`.
    #[test]
    fn cost_saturates_for_the_largest_max_length() {
        let check = |text: api::Value| {
            let mut text = text;
            text["maxLength"] = i64::MAX.into();
            text["x-kubernetes-validations"] = json!([{"rule": "self.contains(self)"}]);
            let schema = json!({"type": "object", "properties": {"a": text}});
            let errors = crate::validation_rules::check_rules(
                &Arc::new(crate::structural_schema::parse_schema(&schema)),
                "schema",
            );
            assert!(errors.iter().any(|error| error.to_string().contains("exceeds budget")), "{errors:?}");
        };
        check(json!({"type": "string"}));
        check(json!({"x-kubernetes-int-or-string": true}));
    }
}
