//! The table: a row per load, the servers side by side, and how many times less Ferry takes. Or the same as lines of JSON.

use serde_json::json;

use crate::loads::LoadResult;

/// The results of one server.
pub struct ReportColumn {
    /// Memory before the load.
    pub idle: u64,
    /// The loads.
    pub results: Vec<LoadResult>,
    /// Memory after the load.
    pub after: u64,
}

/// Prints the table.
pub fn print(columns: &[(&str, ReportColumn)]) {
    let Some(((_, ours), others)) = columns.split_first() else { return };
    let theirs = others.first().map(|(_, column)| column);
    println!(
        "{:<22}{:>12}{:>12}{:>9}{:>12}{:>12}{:>10}{:>8}",
        "server CPU, µs each", "ferry", "upstream", "ratio", "ferry/s", "upstream/s", "p99 ms", "MB"
    );
    for (at, result) in ours.results.iter().enumerate() {
        let other = theirs.and_then(|column| column.results.get(at));
        println!(
            "{:<22}{:>12.1}{:>12}{:>9}{:>12.0}{:>12}{:>10.1}{:>8.0}",
            result.name,
            cost(result),
            other.map_or(String::new(), |other| format!("{:.1}", cost(other))),
            other.map_or(String::new(), |other| format!("1/{:.1}", cost(other) / cost(result).max(0.001))),
            rate(result),
            other.map_or(String::new(), |other| format!("{:.0}", rate(other))),
            result.p99.as_secs_f64() * 1000.0,
            megabytes(result.resident),
        );
    }
    for (name, get) in [
        ("idle memory, MB", (|c: &ReportColumn| c.idle) as fn(&ReportColumn) -> u64),
        ("memory after, MB", |c| c.after),
    ] {
        let (ours, theirs) = (megabytes(get(ours)), theirs.map(|column| megabytes(get(column))));
        println!(
            "{name:<22}{ours:>12.1}{:>12}{:>9}",
            theirs.map_or(String::new(), |theirs| format!("{theirs:.1}")),
            theirs.map_or(String::new(), |theirs| format!("1/{:.1}", theirs / ours)),
        );
    }
}

/// Prints a line of JSON for each load and server: what an operation cost, and how many went through.
pub fn print_json(columns: &[(&str, ReportColumn)]) {
    for (server, column) in columns {
        for result in &column.results {
            let (cost, rate) = (cost(result), rate(result));
            println!("{}", json!({"server": server, "row": result.name, "cpu": cost, "rate": rate}));
        }
    }
}

fn cost(result: &LoadResult) -> f64 {
    result.cpu.as_secs_f64() * 1e6 / result.count as f64
}

fn rate(result: &LoadResult) -> f64 {
    result.count as f64 / result.took.as_secs_f64()
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
