//! Slow-start batches: sizes double while calls succeed, which bounds the number of failing calls.

use futures::future::join_all;

/// Maximum number of concurrent calls.
const MAX_BATCH_SIZE: usize = 500;

/// Calls `action` with 0 to `count` - 1 in concurrent batches of 1, 2, 4…, stopping after a batch with a failure.
/// Returns the number of calls that returned true, and the first failure.
pub(crate) async fn slow_start_batch<F, E>(count: usize, action: impl Fn(usize) -> F) -> (usize, Result<(), E>)
where
    F: Future<Output = Result<bool, E>>,
{
    let (mut made, mut next, mut size) = (0, 0, 1);
    while next < count {
        size = size.min(count - next).min(MAX_BATCH_SIZE);
        let results = join_all((next..next + size).map(&action)).await;
        made += results.iter().filter(|result| matches!(result, Ok(true))).count();
        if let Some(Err(error)) = results.into_iter().find(Result::is_err) {
            return (made, Err(error));
        }
        next += size;
        size *= 2;
    }
    (made, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Runs `count` calls that fail from number `fails_from` on.
    async fn check(count: usize, fails_from: usize, calls_made: usize, made: usize) {
        let calls = Cell::new(0);
        let action = |_| {
            calls.set(calls.get() + 1);
            let call = calls.get();
            async move { if call >= fails_from { Err(call) } else { Ok(true) } }
        };
        let (done, result) = slow_start_batch(count, action).await;
        assert_eq!((calls.get(), done, result.is_err()), (calls_made, made, made < count));
    }

    #[tokio::test]
    async fn failure_stops_the_next_batch() {
        check(10, usize::MAX, 10, 10).await;
        check(10, 1, 1, 0).await;
        check(10, 3, 3, 2).await;
        check(10, 4, 7, 3).await;
        check(0, 1, 0, 0).await;
    }
}
