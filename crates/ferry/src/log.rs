//! The log of the running cluster, on standard error: the terminal in the foreground, a file in the background.

use std::{
    fs,
    io::{self, IsTerminal, Read, Seek, SeekFrom},
    path::Path,
};

use tracing_subscriber::EnvFilter;

/// Starts logging. `verbose` counts `-v` flags; a filter in `FERRY_LOG` takes precedence.
pub fn init_logging(verbose: u8) {
    let filter = match verbose {
        0 => "info,kube=warn,kube_client=warn,kube_runtime=warn,h2=warn,hyper=warn,rustls=warn,tower=warn",
        1 => "debug,h2=info,hyper=info,rustls=info,tower=info",
        _ => "trace",
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("FERRY_LOG").unwrap_or_else(|_| EnvFilter::new(filter)))
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
