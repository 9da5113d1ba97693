//! Tests that cannot run on this machine: the one way for a test to report that, so that no skip goes unnoticed.
//!
//! `FERRY_NO_SKIP` makes every skip a failure; CI sets it. `FERRY_SKIP_FILE` names a file that gets a line per skipped
//! test; `cargo xtask test` sets it and prints the file at its end.

use std::{env, fmt::Display, fs::OpenOptions, io::Write, thread};

/// Reports that the current test is skipped and why. The caller returns from the test.
///
/// # Panics
/// If `FERRY_NO_SKIP` is set, or the file that `FERRY_SKIP_FILE` names cannot be written.
#[track_caller]
pub fn skip_test(reason: impl Display) {
    // The test harness names a test's thread after the test.
    let test = thread::current().name().unwrap_or("a test").to_owned();
    assert!(env::var_os("FERRY_NO_SKIP").is_none(), "{test} would be skipped: {reason}");
    report_skip(&test, &reason);
}

/// Reports that the current test is skipped because data outside of the repository is absent, such as recordings of
/// upstream's servers. It is never a failure: a clone does not have that data.
pub fn skip_without_data(reason: impl Display) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    report_skip(&test, &reason);
}

fn report_skip(test: &str, reason: &dyn Display) {
    eprintln!("skipped: {reason}");
    let Some(path) = env::var_os("FERRY_SKIP_FILE") else { return };
    let program = env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_stem()).unwrap_or_default().to_string_lossy();
    // Cargo appends a hash to the name of a test binary.
    let binary = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let line = format!("{binary} {test}: {}\n", reason.to_string().replace('\n', " "));
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
