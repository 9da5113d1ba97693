//! Bad input, by a seeded generator, over TLS as anybody can send it: bodies, paths, queries, headers, HTTP/1.1 as text,
//! HTTP/2 frames, bytes that are not TLS, connections that go silent.
//!
//! The server neither panics nor hangs, responds with 5xx only where upstream does, and the memory that it took is
//! given back. `FERRY_MALFORMED=count:seed` is another number of requests, or others.

#[path = "malformed/attack.rs"]
mod attack;
#[path = "malformed/body.rs"]
mod body;
#[path = "malformed/case.rs"]
mod case;
#[path = "it/fixture/mod.rs"]
mod fixture;
#[path = "malformed/frames.rs"]
mod frames;
#[path = "malformed/http1.rs"]
mod http1;
#[path = "malformed/request.rs"]
mod request;
#[path = "it/wire/mod.rs"]
mod wire;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use attack::{Attacker, Outcome};
use case::Case;
use futures::{StreamExt, stream};
use peak_alloc::PeakAlloc;
use tokio::{io::AsyncReadExt, time::timeout};
use wire::Wire;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Requests at once.
const AT_ONCE: usize = 24;
/// Memory that may stay allocated: the few well-formed writes.
const SLACK: usize = 8 << 20;

fn chosen() -> (u64, u64) {
    let chosen = std::env::var("FERRY_MALFORMED").unwrap_or_default();
    let (count, seed) = chosen.split_once(':').unwrap_or((&chosen, ""));
    (count.parse().unwrap_or(10_000), seed.parse().unwrap_or(36))
}

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(panic);
    }));
}

/// Sends the cases of a range and returns how many had each outcome; whatever must not be is told as text.
async fn send(
    attacker: &Arc<Attacker>,
    seed: u64,
    cases: std::ops::Range<u64>,
) -> (BTreeMap<String, usize>, Vec<String>) {
    let outcomes = stream::iter(cases).map(|index| {
        let attacker = attacker.clone();
        async move {
            let case = Case::of(seed, index);
            let outcome = attacker.send(&case).await;
            let wrong = match &outcome {
                Outcome::Hangs => true,
                Outcome::Status(500) => !case.may_fail(),
                Outcome::Status(status) => *status >= 500,
                Outcome::Ended => false,
            };
            (
                case.family(),
                outcome.clone(),
                wrong.then(|| format!("case {index} of seed {seed}: {outcome:?} to {case}")),
            )
        }
    });
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut outcomes = outcomes.map(tokio::spawn).buffer_unordered(AT_ONCE);
    while let Some(outcome) = outcomes.next().await {
        let (family, outcome, complaint) = outcome.expect("the client does not fail");
        *counts.entry(format!("{family} {outcome:?}")).or_default() += 1;
        wrong.extend(complaint);
    }
    (counts, wrong)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn malformed_requests_are_refused_and_forgotten() {
    count_panics();
    let (count, seed) = chosen();
    let wire = Wire::start().await;
    let attacker = Arc::new(Attacker::new(wire.port, wire.tls(&["h2"]), wire.tls(&["http/1.1"])));
    request::prepare(&wire.client().await).await;
    // What is made once and kept is made by the first tenth.
    let (_, mut wrong) = send(&attacker, seed, 0..count / 10).await;
    attacker.disconnect().await;
    let before = settled().await;
    let (counts, more) = send(&attacker, seed, count / 10..count).await;
    attacker.disconnect().await;
    wrong.extend(more);
    for (outcome, count) in &counts {
        println!("{count:6} {outcome}");
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "nothing panics");
    let (status, _) = wire.client().await.get("/readyz").await;
    assert_eq!(status, 200, "the server is as well as before");
    let after = settled_below(before + SLACK).await;
    println!("{} KiB allocated before, {} KiB after", before >> 10, after >> 10);
    assert!(after < before + SLACK, "{} KiB before, {} KiB after", before >> 10, after >> 10);
}

/// Bytes that are allocated once connections that have ended are forgotten: when they no longer become fewer.
async fn settled() -> usize {
    let mut least = MEMORY.current_usage();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = MEMORY.current_usage();
        if now >= least {
            return least;
        }
        least = now;
    }
}

/// As [`settled`], with patience as long as it is above a limit.
async fn settled_below(limit: usize) -> usize {
    for _ in 0..40 {
        let now = settled().await;
        if now < limit {
            return now;
        }
    }
    settled().await
}

/// A client that says nothing, or not all, is not waited for without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_end() {
    // Connections on which nothing is asked are closed after 90 seconds.
    const PATIENCE: Duration = Duration::from_secs(120);
    let wire = Wire::start().await;
    let attacker = Arc::new(Attacker::new(wire.port, wire.tls(&["h2"]), wire.tls(&["http/1.1"])));
    let starts: [(&str, Option<&str>, &[u8]); 4] = [
        ("no TLS handshake", None, b""),
        ("half a TLS handshake", None, b"\x16\x03\x01\x02\x00\x01\x00"),
        ("half of the headers", Some("http/1.1"), b"GET /api HTTP/1.1\r\nHost: x\r\nAccept: "),
        ("half of an HTTP/2 preface", Some("h2"), b"PRI * HTTP/2.0\r\n"),
    ];
    let waits = starts.map(|(what, protocol, bytes)| {
        let attacker = attacker.clone();
        tokio::spawn(async move {
            let mut stream = attacker.connect(protocol).await.expect("connected");
            attack::write(&mut stream, bytes).await;
            let mut rest = Vec::new();
            let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
            ended.is_err().then_some(what)
        })
    });
    let hanging: Vec<&str> = futures::future::join_all(waits).await.into_iter().filter_map(Result::unwrap).collect();
    assert!(hanging.is_empty(), "still open after {PATIENCE:?}: {hanging:?}");
}
