//! Tries again, with pauses that grow, what may go better the next time.

use std::{future::Future, time::Duration};

use http::{StatusCode, header};

use super::{Answer, Error};

/// How often and after which pauses.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// How often at most it is tried.
    pub tries: u32,
}

impl Backoff {
    /// As often as upstream tries webhooks.
    pub fn from(first: Duration) -> Self {
        Self { first, tries: 5 }
    }

    /// The pause after so many tries: half as long again each time, and a little random so that not all come at once.
    pub fn pause(&self, tries: u32) -> Duration {
        self.first.mul_f64(1.5_f64.powi(i32::try_from(tries).unwrap_or(0)) * (1.0 + 0.2 * fastrand::f64()))
    }
}

/// Asks until there is an answer that counts, or one too many that does not.
pub async fn with_backoff<F: Future<Output = Result<Answer, Error>>>(
    backoff: Backoff,
    mut ask: impl FnMut() -> F,
) -> Result<Answer, Error> {
    let mut tries = 0;
    loop {
        let answer = ask().await;
        tries += 1;
        if tries >= backoff.tries || !is_worth_a_retry(&answer) {
            return answer;
        }
        tokio::time::sleep(backoff.pause(tries - 1)).await;
    }
}

/// Whether the fault is one that passes: a connection that broke, or a server that says so.
pub fn is_worth_a_retry(answer: &Result<Answer, Error>) -> bool {
    match answer {
        Ok(answer) => {
            matches!(
                answer.status,
                StatusCode::INTERNAL_SERVER_ERROR | StatusCode::GATEWAY_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
            ) || answer.headers.contains_key(header::RETRY_AFTER)
        }
        Err(Error::Connect(crate::backend::Error::Http(_)) | Error::Body(_)) => true,
        Err(_) => false,
    }
}
