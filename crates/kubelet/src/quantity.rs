//! Resource quantities as integers, rounded up as upstream.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Returns the value in units. Validation guarantees that it parses.
pub fn to_units(quantity: &Quantity) -> i64 {
    api::quantity::Quantity::parse(&quantity.0).map_or(0, api::quantity::Quantity::value)
}

/// Returns the value in thousandths.
pub fn to_millis(quantity: &Quantity) -> i64 {
    api::quantity::Quantity::parse(&quantity.0).map_or(0, api::quantity::Quantity::millis)
}
