//! The log of the running cluster, on standard error: the terminal in the foreground, a file in the background.

use std::{
    fs,
    io::{self, IsTerminal, Read, Seek, SeekFrom},
    path::Path,
};

use tracing_subscriber::{EnvFilter, fmt::format::FmtSpan};

/// Filter directives that limit the log lines of libraries to warnings.
const LIBRARIES: &str = "kube=warn,kube_client=warn,kube_runtime=warn,h2=warn,hyper=warn,rustls=warn,tower=warn";

/// Starts logging at one of upstream's levels; a filter in `FERRY_LOG` takes precedence.
///
/// 0 to 2 log changes of state, 3 adds every API request, 4 every sync and decision, 6 the stages of requests and syncs
/// with their durations, 8 everything.
pub fn init_logging(level: u8) {
    let filter = match level {
        0..=2 => format!("info,{LIBRARIES}"),
        3 => format!("info,httplog=debug,{LIBRARIES}"),
        4..=5 => format!("debug,stage=off,{LIBRARIES}"),
        6..=7 => format!("debug,{LIBRARIES}"),
        _ => "trace".to_owned(),
    };
    let spans = if level < 6 { FmtSpan::NONE } else { FmtSpan::CLOSE };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("FERRY_LOG").unwrap_or_else(|_| EnvFilter::new(filter)))
        .with_span_events(spans)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // Fails only if there is a log already.
    let _ = subscriber.try_init();
}

/// The last lines of a log file that were written after `from` bytes.
pub fn read_tail(path: &Path, from: u64, lines: usize) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].join("\n"))
}
