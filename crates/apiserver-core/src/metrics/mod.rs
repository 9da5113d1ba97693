//! Metric primitives: counters, gauges and histograms by key, and Prometheus' text format.

pub mod family;
mod text;

pub use text::MetricsPage;
