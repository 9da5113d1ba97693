//! Tracks the requests of a connection, to close idle connections and to ask clients to reconnect.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use apiserver_core::Body;
use http::Response;
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::Notify;

/// Timeout of idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The requests of one connection.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    requests: AtomicUsize,
    changed: Notify,
    leave: Notify,
}

/// A request of a connection, until it is dropped.
#[derive(Debug)]
pub struct InFlightGuard(Arc<ConnectionActivity>);

impl ConnectionActivity {
    /// Registers a request until the guard is dropped.
    pub fn begin_request(self: &Arc<Self>) -> InFlightGuard {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        InFlightGuard(self.clone())
    }

    /// Asks the client to reconnect after its pending requests.
    pub fn leave(&self) {
        self.leave.notify_one();
    }

    /// Waits until the connection is idle for too long or [`Self::leave`] was called.
    pub async fn wait_for_close(&self) {
        loop {
            let idle = async {
                match self.requests.load(Ordering::Relaxed) {
                    0 => tokio::time::sleep(IDLE_TIMEOUT).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.leave.notified() => return,
                () = idle => return,
            }
        }
    }
}

impl InFlightGuard {
    /// Holds the guard until a streamed body ends; a complete body releases it at once.
    pub fn hold_until_sent(self, response: Response<Body>) -> Response<Body> {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        response.map(|body| {
            body.map_frame(move |frame| {
                let _held = &self;
                frame
            })
            .boxed_unsync()
        })
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leave_request_closes_the_connection() {
        let activity = Arc::new(ConnectionActivity::default());
        let busy = activity.begin_request();
        activity.leave();
        activity.wait_for_close().await;
        drop(busy);
        assert_eq!(activity.requests.load(Ordering::Relaxed), 0);
    }
}
