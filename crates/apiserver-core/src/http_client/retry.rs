//! Retries of HTTP requests with exponential back-off.

use std::{future::Future, time::Duration};

use http::{StatusCode, header};

use super::{HttpClientError, HttpResponse};

/// The delays and number of retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryBackoff {
    /// Delay before the first retry.
    pub initial_delay: Duration,
    /// Maximum number of attempts.
    pub attempts: u32,
}

impl RetryBackoff {
    /// Upstream's number of attempts for webhooks.
    pub fn with_initial_delay(first: Duration) -> Self {
        Self { initial_delay: first, attempts: 5 }
    }

    /// The delay after `attempts` attempts: grows by half each time, with jitter.
    pub fn delay_after(&self, attempts: u32) -> Duration {
        self.initial_delay.mul_f64(1.5_f64.powi(i32::try_from(attempts).unwrap_or(0)) * (1.0 + 0.2 * fastrand::f64()))
    }
}

/// Sends a request until it succeeds, fails permanently or runs out of attempts.
pub async fn with_backoff<F: Future<Output = Result<HttpResponse, HttpClientError>>>(
    backoff: RetryBackoff,
    mut send: impl FnMut() -> F,
) -> Result<HttpResponse, HttpClientError> {
    let mut attempts = 0;
    loop {
        let result = send().await;
        attempts += 1;
        if attempts >= backoff.attempts || !is_retryable(&result) {
            return result;
        }
        tokio::time::sleep(backoff.delay_after(attempts - 1)).await;
    }
}

/// Whether a failure is temporary: a broken connection, or a status that asks for a retry.
pub fn is_retryable(result: &Result<HttpResponse, HttpClientError>) -> bool {
    match result {
        Ok(response) => {
            matches!(
                response.status,
                StatusCode::INTERNAL_SERVER_ERROR | StatusCode::GATEWAY_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
            ) || response.headers.contains_key(header::RETRY_AFTER)
        }
        Err(HttpClientError::Connection(error)) => !error.is_connect(),
        Err(error) => matches!(error, HttpClientError::Body(_)),
    }
}
