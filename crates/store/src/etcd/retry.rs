//! Retries calls: with several servers, one that is down must not fail what another can do.
//!
//! A read is retried after any connection failure, a write only if it was certainly never sent: the outcome of one that
//! was sent is unknown.

use std::{error::Error as _, future::Future, io, time::Duration};

use tonic::{Code, Status};

const ATTEMPTS: u32 = 8;
const MIN_BACKOFF: Duration = Duration::from_millis(5);

/// Decides after which failures a call is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Read,
    Write,
}

/// Makes a call, and retries it with back-off where that is safe.
pub(super) async fn retry_call<T, F>(call: CallKind, mut make: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut attempt = 0;
    loop {
        match make().await {
            Err(status) if attempt < ATTEMPTS && is_retriable(call, &status) => {
                tokio::time::sleep(MIN_BACKOFF * 2u32.pow(attempt)).await;
                attempt += 1;
            }
            made => return made,
        }
    }
}

fn is_retriable(call: CallKind, status: &Status) -> bool {
    match call {
        CallKind::Read => matches!(status.code(), Code::Unavailable | Code::Cancelled),
        CallKind::Write => status.code() == Code::Unavailable && was_never_sent(status),
    }
}

/// Returns whether the connection itself failed.
fn was_never_sent(status: &Status) -> bool {
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
