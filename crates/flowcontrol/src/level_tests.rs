//! Tests of a single priority level.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;

use super::{
    config::{LevelConfig, Queuing},
    level::{Level, Refused},
};

const PATIENT: Duration = Duration::from_secs(60);

fn level(seats: usize, queuing: Option<Queuing>) -> Arc<Level> {
    let config = LevelConfig {
        uid: HeaderValue::from_static(""),
        exempt: false,
        shares: 1,
        lendable: 0,
        borrows: None,
        queuing,
    };
    let level = Arc::new(Level::new("l"));
    level.configure(&config, seats, seats);
    level
}

fn queuing(length: usize) -> Option<Queuing> {
    Some(Queuing { queues: 4, hand: 2, length })
}

#[tokio::test]
async fn request_waits_for_a_seat() {
    let (level, schema) = (level(2, queuing(10)), Arc::from("s"));
    let first = level.enter(&schema, 1, 1, PATIENT).await.unwrap();
    let second = level.enter(&schema, 1, 1, PATIENT).await.unwrap();
    let waiting = tokio::spawn({
        let (level, schema) = (level.clone(), schema.clone());
        async move { level.enter(&schema, 1, 1, PATIENT).await.map(drop) }
    });
    while level.view().counts["s"].waiting == 0 {
        tokio::task::yield_now().await;
    }
    drop(first);
    waiting.await.unwrap().unwrap();
    drop(second);
    let counts = &level.view().counts["s"];
    assert_eq!((counts.dispatched, counts.executing, counts.seats, counts.waiting), (3, 0, 0, 0));
}

#[tokio::test]
async fn request_that_cannot_wait_is_rejected() {
    let schema = Arc::from("s");
    let without = level(1, None);
    let _seat = without.enter(&schema, 1, 1, PATIENT).await.unwrap();
    assert_eq!(without.enter(&schema, 1, 1, PATIENT).await.err(), Some(Refused::NoSeats));
    let with = level(1, queuing(10));
    let _seat = with.enter(&schema, 1, 1, PATIENT).await.unwrap();
    assert_eq!(with.enter(&schema, 1, 1, Duration::ZERO).await.err(), Some(Refused::TooLong));
    let full = level(1, Some(Queuing { queues: 1, hand: 1, length: 1 }));
    let _seat = full.enter(&schema, 1, 1, PATIENT).await.unwrap();
    let waiting = tokio::spawn({
        let (full, schema) = (full.clone(), schema.clone());
        async move { full.enter(&schema, 1, 1, PATIENT).await.map(drop) }
    });
    while full.view().counts["s"].waiting == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(full.enter(&schema, 1, 1, PATIENT).await.err(), Some(Refused::QueueFull));
    waiting.abort();
}

#[tokio::test]
async fn cancelled_waiter_releases_its_seats() {
    let (level, schema) = (level(1, queuing(10)), Arc::from("s"));
    let seat = level.enter(&schema, 1, 1, PATIENT).await.unwrap();
    for _ in 0..5 {
        assert!(level.enter(&schema, 1, 1, Duration::ZERO).await.is_err());
    }
    drop(seat);
    assert!(level.enter(&schema, 1, 1, Duration::ZERO).await.is_ok());
}

#[tokio::test]
async fn wide_requests_are_capped_by_the_limit() {
    let (level, schema) = (level(3, queuing(10)), Arc::from("s"));
    let wide = level.enter(&schema, 1, 10, PATIENT).await.unwrap();
    assert_eq!(level.view().counts["s"].seats, 3, "a level is never asked for more than it has");
    assert!(level.enter(&schema, 2, 1, Duration::ZERO).await.is_err());
    drop(wide);
    assert!(level.enter(&schema, 2, 1, Duration::ZERO).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_seats_never_exceed_the_limit() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (level, schema) = (level(4, queuing(1000)), Arc::<str>::from("s"));
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = (0..200).map(|at| {
        let (level, schema, now, most) = (level.clone(), schema.clone(), now.clone(), most.clone());
        tokio::spawn(async move {
            let _seat = level.enter(&schema, at, 1, PATIENT).await.unwrap();
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
        })
    });
    for one in work.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    assert!(most.load(Ordering::SeqCst) <= 4);
    assert_eq!(level.view().counts["s"].dispatched, 200);
}
