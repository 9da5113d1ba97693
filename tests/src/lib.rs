//! Drives the shipped binary as a user does: `ferry`, the unmodified `kubectl`, real containers.
//!
//! Every [`TestCluster`] lives in a network namespace and a data directory of its own, so that tests can run side by side and no
//! packet leaves the machine. Dropping one takes it down, also after a failed test.

mod apiserver;
mod authority;
mod cluster;
mod command;
pub mod definitions;
pub mod machine;
pub mod python;
pub mod upstream;

pub use apiserver::TestApiServer;
pub use authority::TestCa;
pub use cluster::{TestCluster, TestHost};
pub use command::{CommandOutput, run_command};

use std::{
    thread,
    time::{Duration, Instant},
};

/// Time for an expected event on a busy machine.
pub const EVENTUAL_TIMEOUT: Duration = Duration::from_secs(90);

/// Retries until it succeeds; panics with the last error after [`EVENTUAL_TIMEOUT`].
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(complaint) if start.elapsed() > EVENTUAL_TIMEOUT => panic!("{what}: {complaint}"),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The reason why tests with containers cannot run on this machine; `None` if they can. Reports the test as skipped.
pub fn skip_reason() -> Option<String> {
    let reason = machine::missing_requirement()?;
    skip::skip_test(&reason);
    Some(reason)
}
