//! Label selectors as upstream's messages print them (Go's `%v` of a `*metav1.LabelSelector`).

use std::fmt::{self, Display, Formatter};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Displays a selector as Go does.
pub(crate) struct LabelSelectorText<'a>(pub(crate) Option<&'a LabelSelector>);

impl Display for LabelSelectorText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(selector) = self.0 else { return f.write_str("nil") };
        f.write_str("&LabelSelector{MatchLabels:map[string]string{")?;
        for (key, value) in selector.match_labels.iter().flatten() {
            write!(f, "{key}: {value},")?;
        }
        f.write_str("},MatchExpressions:[]LabelSelectorRequirement{")?;
        for requirement in selector.match_expressions.iter().flatten() {
            let values = requirement.values.as_deref().unwrap_or_default().join(" ");
            let (key, operator) = (&requirement.key, &requirement.operator);
            write!(f, "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")?;
        }
        f.write_str("},}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_is_printed_like_go() {
        let selector = serde_json::from_value(json!({"matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}))
        .unwrap();
        let expected = "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:\
            []LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}";
        assert_eq!(LabelSelectorText(Some(&selector)).to_string(), expected);
        assert_eq!(LabelSelectorText(None).to_string(), "nil");
    }
}
