//! Running other programs: what is run is printed, and what fails is an error that names it.

use std::{
    ffi::OsStr,
    fmt::Write,
    fs,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

/// `program arguments…`, split at blanks. For arguments with blanks in them use [`Command`] itself.
pub fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// The same as root: through `sudo` unless this process is root already.
pub fn as_root(line: &str) -> Command {
    if is_root() { command(line) } else { command(&format!("sudo {line}")) }
}

pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

/// Prints the command, runs it with its output shown, and fails if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot run `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs the command and returns what it prints; shows nothing unless it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{line}`"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("`{line}` failed ({}):\n{}", output.status, errors.trim_end());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Does one step of a task and prints what it was and how long it took.
pub fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("• {name}");
    let start = Instant::now();
    let done = work().with_context(|| name.to_owned())?;
    println!("  {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}

/// The command as one would type it.
fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args().map(OsStr::to_string_lossy) {
        let plain = !argument.is_empty() && !argument.contains(|c: char| c.is_whitespace() || "'\"$;*".contains(c));
        // Writing to a string cannot fail.
        let _ = if plain { write!(line, " {argument}") } else { write!(line, " '{argument}'") };
    }
    line
}
