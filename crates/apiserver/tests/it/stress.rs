//! Watches under stress, over TLS and HTTP/2: many watchers with selectors, many writes, random disconnects.
//!
//! Each watcher writes down every event that it is told, over all its connections. What it should have been told is
//! computed from the store's whole history: no event may be missing, be there twice, or come out of order.
//! `FERRY_STRESS=full` is 200 watchers and 20,000 writes.

mod history;
mod watcher;
mod writer;

use std::{sync::Arc, time::Duration};

use crate::wire::Wire;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use watcher::{Link, Watcher};

/// The seed of everything that is drawn; what the two sides do in between is up to the scheduler.
const SEED: u64 = 20_260_401;
/// Watchers that share a connection.
const SHARING: usize = 20;
/// Everything ends well before this, or it hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// The size of the run.
struct Scale {
    watchers: usize,
    writers: usize,
    writes: usize,
}

impl Scale {
    fn chosen() -> Self {
        match std::env::var("FERRY_STRESS").as_deref() {
            Ok("full") => Self { watchers: 200, writers: 20, writes: 20_000 },
            _ => Self { watchers: 60, writers: 10, writes: 4_000 },
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_watcher_hears_everything_once_and_in_order() {
    let scale = Scale::chosen();
    let wire = Arc::new(Wire::start().await);
    writer::namespaces(&wire.client().await).await;
    let start = wire.store.revision().await.unwrap();

    let links: Vec<_> = (0..scale.watchers.div_ceil(SHARING)).map(|_| Arc::new(Link::new(&wire))).collect();
    let watchers: Vec<_> = (0..scale.watchers).map(|index| Watcher::new(index, start)).collect();
    let selectors: Vec<_> = watchers.iter().map(|watcher| watcher.scope.clone()).collect();
    let watching: Vec<_> = watchers
        .into_iter()
        .map(|watcher| {
            let link = links[watcher.scope.index / SHARING].clone();
            tokio::spawn(watcher.run(link))
        })
        .collect();
    let over = CancellationToken::new();
    let cutting = tokio::spawn(watcher::cut(links, over.clone()));

    let writing = (0..scale.writers).map(|index| writer::run(wire.clone(), index, scale.writes / scale.writers));
    let written: usize = join_all(writing.map(tokio::spawn)).await.into_iter().map(|count| count.unwrap()).sum();
    writer::ends(&wire.client().await, &selectors).await;

    let all = tokio::time::timeout(PATIENCE, join_all(watching)).await.expect("every watcher hears its end");
    over.cancel();
    let cuts = cutting.await.unwrap();
    let history = history::read(&wire.store, start).await;
    let mut told = 0;
    let mut resumed = 0;
    for heard in all {
        let heard = heard.expect("no watcher fails");
        let expected = history::told(&history, &heard.scope);
        history::compare(&heard.events, &expected, &heard.scope);
        told += heard.events.len();
        resumed += heard.resumed;
    }
    println!("{written} writes, {} watchers told {told} events, {resumed} resumes, {cuts} cuts", scale.watchers);
    assert!(written * 10 >= scale.writes * 9, "most writes succeed: {written} of {}", scale.writes);
    assert!(resumed > scale.watchers, "watchers were disconnected: {resumed}");
    assert!(told > scale.writes, "watchers overlap, so more is told than written: {told}");
}
