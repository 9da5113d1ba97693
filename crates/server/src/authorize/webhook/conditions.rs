//! Match conditions: which requests a webhook is asked about, in CEL over the review.
//!
//! There is no CEL here yet: a webhook with conditions is refused by name when the server starts, because asking it about
//! everything, or about nothing, would both be wrong.

use api::validate::FieldError;
use serde::Deserialize;

/// One condition.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// An expression that is true for requests that the webhook is asked about.
    #[serde(default)]
    pub expression: String,
}

/// What is wrong with conditions.
pub fn check(conditions: &[Condition], field: &str) -> Vec<FieldError> {
    let one = |(at, condition): (usize, &Condition)| {
        let field = format!("{field}.matchConditions[{at}].expression");
        match condition.expression.trim() {
            "" => FieldError::required(field, ""),
            expression => FieldError::invalid(field, expression, "match conditions are not supported"),
        }
    };
    conditions.iter().enumerate().map(one).collect()
}
