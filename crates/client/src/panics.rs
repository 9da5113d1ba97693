//! Panic containment: a panic in one unit of work is logged, counted and turned into a failure of that unit.
//!
//! [`contain_panic`] and [`contain_panic_sync`] wrap the work of a controller's sync, an informer handler, a pod worker or
//! a scheduling attempt; the caller retries with back-off. A process-wide panic hook can tell contained panics from
//! others with [`is_contained`].

use std::{
    any::Any,
    cell::Cell,
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use crate::metrics;

thread_local! {
    /// Nesting depth of contained work on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A contained panic; the panic itself has been logged and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("panicked")]
pub struct PanicError;

/// Whether the calling thread runs contained work, so that a panic does not end the process.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

/// Runs `work` of `component` on the object `key`, turning a panic into [`PanicError`].
pub async fn contain_panic<F: Future>(
    component: &'static str,
    key: impl Display,
    work: impl FnOnce() -> F,
) -> Result<F::Output, PanicError> {
    // The closure runs inside the contained future: it may panic too.
    let contained = ContainedFuture { future: Box::pin(async move { work().await }) };
    contained.await.map_err(|panic| report_panic(component, &key, panic.as_ref()))
}

/// Runs `work` of `component` on the object `key`, turning a panic into [`PanicError`].
pub fn contain_panic_sync<T>(
    component: &'static str,
    key: impl Display,
    work: impl FnOnce() -> T,
) -> Result<T, PanicError> {
    run_contained(work).map_err(|panic| report_panic(component, &key, panic.as_ref()))
}

fn run_contained<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    DEPTH.set(DEPTH.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    result
}

fn report_panic(component: &'static str, key: &dyn Display, panic: &(dyn Any + Send)) -> PanicError {
    let text = panic.downcast_ref::<&str>().copied();
    let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)");
    metrics::count_panic(component);
    tracing::error!(component, %key, panic = message, "contained a panic, retrying with back-off");
    PanicError
}

/// A future whose polls are contained.
struct ContainedFuture<F> {
    future: Pin<Box<F>>,
}

impl<F: Future> Future for ContainedFuture<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match run_contained(|| self.future.as_mut().poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_is_contained_counted_and_returned_as_error() {
        let before = metrics::panics("panics-test");
        let result = contain_panic("panics-test", "ns/name", || async {
            tokio::task::yield_now().await;
            assert!(is_contained());
            panic!("a bug");
        });
        assert_eq!(result.await.map(|never: ()| never), Err(PanicError));
        assert!(!is_contained());
        assert_eq!(metrics::panics("panics-test"), before + 1);
    }

    #[tokio::test]
    async fn panic_while_the_future_is_built_is_contained() {
        fn build() -> std::future::Ready<()> {
            panic!("a bug")
        }
        assert_eq!(contain_panic("panics-test-build", "ns/name", build).await, Err(PanicError));
    }

    #[test]
    fn result_of_contained_work_is_returned() {
        assert_eq!(contain_panic_sync("panics-test-sync", "ns/name", || 7), Ok(7));
    }
}
