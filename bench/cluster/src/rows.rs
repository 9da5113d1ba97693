//! The output: a line of JSON per row, with every measured value.

use std::time::Duration;

use serde_json::json;

/// Prints durations, in seconds.
pub fn seconds(row: &str, values: &[Duration]) {
    let values: Vec<f64> = values.iter().map(Duration::as_secs_f64).collect();
    println!("{}", json!({"row": row, "unit": "s", "values": values}));
}
