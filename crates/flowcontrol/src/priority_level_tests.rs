//! Tests of a single priority level.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;

use super::{
    config::{PriorityLevelConfig, QueuingConfig},
    priority_level::{PriorityLevel, RejectReason},
};

const PATIENT: Duration = Duration::from_secs(60);

fn test_level(seats: usize, queuing: Option<QueuingConfig>) -> Arc<PriorityLevel> {
    let config = PriorityLevelConfig {
        uid: HeaderValue::from_static(""),
        exempt: false,
        shares: 1,
        lendable: 0,
        borrows: None,
        queuing,
    };
    let level = Arc::new(PriorityLevel::new("l"));
    level.apply_config(&config, seats, seats);
    level
}

fn test_queuing(length: usize) -> Option<QueuingConfig> {
    Some(QueuingConfig { queues: 4, hand: 2, length })
}

#[tokio::test]
async fn request_waits_for_a_seat() {
    let (level, schema) = (test_level(2, test_queuing(10)), Arc::from("s"));
    let first = level.start_request(&schema, 1, 1, PATIENT).await.unwrap();
    let second = level.start_request(&schema, 1, 1, PATIENT).await.unwrap();
    let waiting = tokio::spawn({
        let (level, schema) = (level.clone(), schema.clone());
        async move { level.start_request(&schema, 1, 1, PATIENT).await.map(drop) }
    });
    while level.take_snapshot().counts["s"].waiting == 0 {
        tokio::task::yield_now().await;
    }
    drop(first);
    waiting.await.unwrap().unwrap();
    drop(second);
    let counts = &level.take_snapshot().counts["s"];
    assert_eq!((counts.dispatched, counts.executing, counts.seats, counts.waiting), (3, 0, 0, 0));
}

#[tokio::test]
async fn request_that_cannot_wait_is_rejected() {
    let schema = Arc::from("s");
    let without = test_level(1, None);
    let _seat = without.start_request(&schema, 1, 1, PATIENT).await.unwrap();
    assert_eq!(without.start_request(&schema, 1, 1, PATIENT).await.err(), Some(RejectReason::NoSeats));
    let with = test_level(1, test_queuing(10));
    let _seat = with.start_request(&schema, 1, 1, PATIENT).await.unwrap();
    assert_eq!(with.start_request(&schema, 1, 1, Duration::ZERO).await.err(), Some(RejectReason::TooLong));
    let full = test_level(1, Some(QueuingConfig { queues: 1, hand: 1, length: 1 }));
    let _seat = full.start_request(&schema, 1, 1, PATIENT).await.unwrap();
    let waiting = tokio::spawn({
        let (full, schema) = (full.clone(), schema.clone());
        async move { full.start_request(&schema, 1, 1, PATIENT).await.map(drop) }
    });
    while full.take_snapshot().counts["s"].waiting == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(full.start_request(&schema, 1, 1, PATIENT).await.err(), Some(RejectReason::QueueFull));
    waiting.abort();
}

#[tokio::test]
async fn cancelled_waiter_releases_its_seats() {
    let (level, schema) = (test_level(1, test_queuing(10)), Arc::from("s"));
    let seat = level.start_request(&schema, 1, 1, PATIENT).await.unwrap();
    for _ in 0..5 {
        assert!(level.start_request(&schema, 1, 1, Duration::ZERO).await.is_err());
    }
    drop(seat);
    assert!(level.start_request(&schema, 1, 1, Duration::ZERO).await.is_ok());
}

#[tokio::test]
async fn wide_requests_are_capped_by_the_limit() {
    let (level, schema) = (test_level(3, test_queuing(10)), Arc::from("s"));
    let wide = level.start_request(&schema, 1, 10, PATIENT).await.unwrap();
    assert_eq!(level.take_snapshot().counts["s"].seats, 3, "a level is never asked for more than it has");
    assert!(level.start_request(&schema, 2, 1, Duration::ZERO).await.is_err());
    drop(wide);
    assert!(level.start_request(&schema, 2, 1, Duration::ZERO).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_seats_never_exceed_the_limit() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (level, schema) = (test_level(4, test_queuing(1000)), Arc::<str>::from("s"));
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = (0..200).map(|at| {
        let (level, schema, now, most) = (level.clone(), schema.clone(), now.clone(), most.clone());
        tokio::spawn(async move {
            let _seat = level.start_request(&schema, at, 1, PATIENT).await.unwrap();
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
        })
    });
    for one in work.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    assert!(most.load(Ordering::SeqCst) <= 4);
    assert_eq!(level.take_snapshot().counts["s"].dispatched, 200);
}
