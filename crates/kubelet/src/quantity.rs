//! Resource quantities as whole numbers, rounded up as upstream does.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The value in units, for example bytes or processes. What cannot be parsed is zero: the API server has validated it.
pub fn value(quantity: &Quantity) -> i64 {
    api::quantity::Quantity::parse(&quantity.0).map_or(0, api::quantity::Quantity::value)
}

/// The value in thousandths, for processor time.
pub fn milli(quantity: &Quantity) -> i64 {
    api::quantity::Quantity::parse(&quantity.0).map_or(0, api::quantity::Quantity::millis)
}
