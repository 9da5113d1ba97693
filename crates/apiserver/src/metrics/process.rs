//! Process metrics from `/proc`.

use std::fs;

use apiserver_core::metrics::MetricsPage;

/// The kernel's unit of CPU time, equal on all supported architectures.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_SIZE: f64 = 4096.0;

/// Writes the process metrics that can be read.
pub fn write_process_metrics(page: &mut MetricsPage, started: jiff::Timestamp) {
    let mut put = |name: &str, help: &str, kind: &str, value: Option<f64>| {
        if let Some(value) = value {
            page.write_header(name, help, kind);
            page.write_sample(name, "", value);
        }
    };
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The preceding process name may contain spaces and parentheses.
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(|f| f.parse().unwrap_or(0.0)).collect();
    let field = |at: usize| fields.get(at).copied();
    let cpu = field(11).zip(field(12)).map(|(user, system)| (user + system) / TICKS_PER_SECOND);
    put("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", cpu);
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    put("process_open_fds", "Number of open file descriptors.", "gauge", open);
    put("process_max_fds", "Maximum number of open file descriptors.", "gauge", max_files());
    put("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", field(20));
    put(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        "gauge",
        field(21).map(|pages| pages * PAGE_SIZE),
    );
    let started = started.as_millisecond() as f64 / 1000.0;
    put("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", "gauge", Some(started));
}

fn max_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
