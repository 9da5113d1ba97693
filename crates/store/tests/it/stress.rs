//! The contract under load: watchers that come and go while history is compacted under them and writes go through.
//!
//! `FERRY_STRESS_WRITES` sets how many writes; 100,000 unless it is set.

use crate::engines;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::engines::Engine;
use ferry_store::{
    ListOptions, Precondition, Record, Revision, Store, StoreContents, StoreError, StoreEvent, WriteRequest,
};
use futures::{StreamExt, future::join_all};

const WRITERS: usize = 256;
const KEYS: usize = 8;
const WATCHERS: usize = 64;
const PREFIXES: usize = 16;

fn writes() -> usize {
    std::env::var("FERRY_STRESS_WRITES").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000)
}

/// Creates, updates and deletes its own keys.
async fn write(store: Engine, writer: usize, count: usize) {
    let mut current: BTreeMap<String, Revision> = BTreeMap::new();
    for number in 0..count {
        let key = format!("/{}/{writer}/{}", writer % PREFIXES, number % KEYS);
        let precondition = current.get(&key).map_or(Precondition::Absent, |revision| Precondition::Revision(*revision));
        let delete = number % 11 == 10 && precondition != Precondition::Absent;
        let value = (!delete).then(|| format!("{number} of {writer}").into());
        let revision =
            store.write(WriteRequest { key: key.as_str().into(), precondition, value, ttl: None }).await.unwrap();
        if delete {
            current.remove(&key)
        } else {
            current.insert(key, revision)
        };
    }
}

/// The state of a watcher and its events.
#[derive(Default)]
struct Belief {
    records: BTreeMap<Arc<str>, Record>,
    after: Revision,
    events: u64,
    resumed: u64,
    expired: u64,
}

impl Belief {
    /// An event must follow from what is believed: nothing between was missed, nothing comes twice.
    fn apply(&mut self, event: StoreEvent) {
        assert!(event.revision > self.after, "revision {} after {}", event.revision, self.after);
        let previous = match event.value {
            Some(value) => {
                let record = Record { key: event.key.clone(), value, revision: event.revision };
                self.records.insert(event.key, record)
            }
            None => self.records.remove(&event.key),
        };
        assert_eq!(previous, event.previous, "at {}", event.revision);
        self.after = event.revision;
        self.events += 1;
    }

    async fn list(&mut self, store: &dyn Store, prefix: &str) {
        let page = store.list(ListOptions { prefix: prefix.into(), ..ListOptions::default() }).await.unwrap();
        self.records = page.records.into_iter().map(|record| (record.key.clone(), record)).collect();
        self.after = page.revision;
    }
}

/// Watches until everything up to `last`, once that is known, was seen; disconnects at random, and lists again when the
/// history is gone.
async fn watch(store: Engine, prefix: String, last: Arc<AtomicU64>) -> Belief {
    let mut belief = Belief::default();
    belief.list(&*store, &prefix).await;
    loop {
        let mut events = match store.watch(&prefix, belief.after).await {
            Ok(events) => events,
            Err(StoreError::Compacted { .. }) => {
                belief.expired += 1;
                belief.list(&*store, &prefix).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for _ in 0..fastrand::usize(1..2_000) {
            match tokio::time::timeout(Duration::from_millis(200), events.next()).await {
                Ok(Some(Ok(event))) => belief.apply(event),
                Ok(Some(Err(StoreError::Compacted { .. }))) => {
                    belief.expired += 1;
                    belief.list(&*store, &prefix).await;
                    break;
                }
                Ok(other) => panic!("{other:?}"),
                // Nothing came; all writes are done and this prefix saw its own.
                Err(_) if last.load(Ordering::SeqCst) != 0 => return belief,
                Err(_) => {}
            }
        }
        belief.resumed += 1;
    }
}

async fn compact(store: Engine, last: Arc<AtomicU64>) -> u64 {
    let mut count = 0;
    while last.load(Ordering::SeqCst) == 0 {
        let revision = store.revision().await.unwrap();
        store.compact(revision).await.unwrap();
        count += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    count
}

async fn stress(name: &str, store: Engine) {
    let count = writes();
    let last = Arc::new(AtomicU64::new(0));
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|watcher| tokio::spawn(watch(store.clone(), format!("/{}/", watcher % PREFIXES), last.clone())))
        .collect();
    let compactor = tokio::spawn(compact(store.clone(), last.clone()));
    let start = Instant::now();
    join_all((0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer, count / WRITERS)))).await;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    last.store(store.revision().await.unwrap(), Ordering::SeqCst);

    let (mut events, mut resumed, mut expired) = (0, 0, 0);
    for (watcher, belief) in join_all(watchers).await.into_iter().enumerate() {
        let belief = belief.unwrap();
        let page = store
            .list(ListOptions { prefix: format!("/{}/", watcher % PREFIXES), ..ListOptions::default() })
            .await
            .unwrap();
        assert!(page.records.iter().eq(belief.records.values()), "watch and list differ");
        (events, resumed, expired) = (events + belief.events, resumed + belief.resumed, expired + belief.expired);
    }
    let all = store.list(ListOptions::default()).await.unwrap().records;
    for record in all.iter().step_by(all.len() / 100 + 1) {
        assert_eq!(store.get(&record.key).await.unwrap().as_ref(), Some(record), "get and list differ");
    }
    let digest = StoreContents::read_store(&*store, &mut |_| ()).await.unwrap().digest();
    let compactions = compactor.await.unwrap();
    println!(
        "{name}: {count} writes ({rate:.0}/s), {WATCHERS} watchers saw {events} events in order, resumed {resumed} times, \
         {expired} times expired; {compactions} compactions; {} records, digest {}",
        all.len(),
        &digest[..16]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_agree_on_embedded() {
    let dir = tempfile::tempdir().unwrap();
    stress("embedded", engines::embedded(dir.path()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_agree_on_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = engines::cache(engines::embedded(dir.path()).await, engines::Collections::ByFirstPart).await;
    stress("cache", cache.clone()).await;
    let checked = cache.check_consistency().await.unwrap();
    assert_eq!(checked.len(), PREFIXES);
    assert!(checked.iter().all(ferry_store::ConsistencyReport::is_consistent), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_agree_on_etcd() {
    let Some(server) = engines::EtcdServer::start() else { return };
    stress("etcd", server.store("/stress").await).await;
}
