//! Calls that are made again: with several servers, one that is down must not fail what another can do.
//!
//! A read is made again after any failure of the connection. A write only when it certainly never left: nobody knows
//! what became of one that did.

use std::{error::Error as _, future::Future, io, time::Duration};

use tonic::{Code, Status};

const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
}

/// Makes a call, and again where that is safe and may help.
pub(super) async fn retried<T, F>(call: Call, mut make: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut attempt = 0;
    loop {
        match make().await {
            Err(status) if attempt < ATTEMPTS && worth_another(call, &status) => {
                tokio::time::sleep(FIRST_PAUSE * 2u32.pow(attempt)).await;
                attempt += 1;
            }
            made => return made,
        }
    }
}

fn worth_another(call: Call, status: &Status) -> bool {
    match call {
        Call::Read => matches!(status.code(), Code::Unavailable | Code::Cancelled),
        Call::Write => status.code() == Code::Unavailable && never_left(status),
    }
}

/// Whether there was not even a connection.
fn never_left(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
            return matches!(error.kind(), AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable);
        }
        source = cause.source();
    }
    false
}
