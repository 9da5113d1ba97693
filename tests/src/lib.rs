//! Drives the shipped binary as a user does: `ferry`, the unmodified `kubectl`, real containers.
//!
//! Every [`Cluster`] lives in a network namespace and a data directory of its own, so that tests can run side by side and no
//! packet leaves the machine. Dropping one takes it down, also after a failed test.

mod apiserver;
mod authority;
mod cluster;
mod command;
pub mod definitions;
pub mod machine;
pub mod python;
pub mod upstream;

pub use apiserver::ApiServer;
pub use authority::Authority;
pub use cluster::{Cluster, Host};
pub use command::{Output, run};

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long something that should happen may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Asks until there is an answer; the last complaint is told when patience ends.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(complaint) if start.elapsed() > PATIENCE => panic!("{what}: {complaint}"),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Why tests with containers cannot run on this machine; `None` if they can. Reports the test as skipped.
pub fn skip_reason() -> Option<String> {
    let reason = machine::missing()?;
    skip::skip_test(&reason);
    Some(reason)
}
