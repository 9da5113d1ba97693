//! Panic containment: a panic in one unit of work is logged, counted and turned into a failure of that unit.
//!
//! [`contain_future`], [`contain_panic`] and [`contain_panic_sync`] wrap an API request, a controller's sync, an informer
//! handler, a pod worker or a scheduling attempt; the caller responds with an error or retries with back-off. A
//! process-wide panic hook can tell contained panics from others with [`is_contained`]. [`panic_counts`] is the metric
//! `ferry_panics_total`.
//!
//! Invariant: knows no other crate of this workspace.

use std::{
    any::Any,
    cell::Cell,
    collections::BTreeMap,
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

/// Number of contained panics by component.
static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

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
    contain_future(component, key, async move { work().await }).await
}

/// Runs a future of `component` on the object `key`, turning a panic into [`PanicError`].
pub async fn contain_future<F: Future>(
    component: &'static str,
    key: impl Display,
    work: F,
) -> Result<F::Output, PanicError> {
    let contained = ContainedFuture { future: pin!(work) };
    contained.await.map_err(|panic| report_panic(component, &key, panic.as_ref()))
}

/// Returns the number of contained panics of every component that had one.
pub fn panic_counts() -> BTreeMap<&'static str, u64> {
    lock_counts().clone()
}

/// Returns the number of contained panics of one component.
pub fn panic_count(component: &str) -> u64 {
    lock_counts().get(component).copied().unwrap_or(0)
}

fn lock_counts() -> MutexGuard<'static, BTreeMap<&'static str, u64>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
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
    *lock_counts().entry(component).or_default() += 1;
    tracing::error!(component, %key, panic = message, "contained a panic");
    PanicError
}

/// A future whose polls are contained.
struct ContainedFuture<'a, F> {
    future: Pin<&'a mut F>,
}

impl<F: Future> Future for ContainedFuture<'_, F> {
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
        let result = contain_panic("panics-test", "ns/name", || async {
            tokio::task::yield_now().await;
            assert!(is_contained());
            panic!("a bug");
        });
        assert_eq!(result.await.map(|never: ()| never), Err(PanicError));
        assert!(!is_contained());
        assert_eq!(panic_counts().get("panics-test"), Some(&1));
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
