//! The embedded engine under load, alone and with the cache over it: durable puts, reads, fan-out, memory, start-up.

use std::{
    error::Error,
    fs,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::join_all;
use store::{
    CollectionCatalog, EmbeddedOptions, EmbeddedStore, HistoryWindow, Precondition, ResourceVersionMatch,
    SelectableFields, Store, WatchCache, WriteRequest,
};

const DOCUMENT: usize = 1024;

/// A collection is a resource; documents without labels have no marks.
struct Collections;

impl CollectionCatalog for Collections {
    fn collection_name<'k>(&self, key: &'k str) -> Option<&'k str> {
        let end = key.strip_prefix("/registry/")?.find('/')?;
        Some(&key[.."/registry/".len() + end + 1])
    }

    fn selectable_fields(&self, _: &str, _: &Bytes) -> SelectableFields {
        SelectableFields::default()
    }
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A document like those of a cluster: text, no two the same.
fn document(seed: usize) -> Bytes {
    let mut text = format!("{{\"metadata\":{{\"name\":\"object-{seed}\",\"uid\":\"{seed:036}\"}},\"data\":\"");
    text.extend(std::iter::repeat_n('x', DOCUMENT.saturating_sub(text.len() + 2)));
    (text + "\"}").into()
}

async fn create(store: &dyn Store, key: String, seed: usize) {
    let write =
        WriteRequest { key: key.into(), precondition: Precondition::Absent, value: Some(document(seed)), ttl: None };
    store.write(write).await.expect("a put of a benchmark");
}

/// Durable puts per second with so many writers, each waiting for its own.
pub async fn puts(dir: &Path, writers: usize, lasts: Duration) -> Outcome<f64> {
    let dir = tempfile::tempdir_in(dir)?;
    let store = Arc::new(EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await?);
    let start = Instant::now();
    let tasks = (0..writers).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut count = 0;
            while start.elapsed() < lasts {
                create(&*store, format!("/registry/configmaps/{writer}/{count}"), count).await;
                count += 1;
            }
            count
        })
    });
    let counts = join_all(tasks.collect::<Vec<_>>()).await;
    let total: usize = counts.into_iter().sum::<Result<_, _>>()?;
    Ok(total as f64 / start.elapsed().as_secs_f64())
}

fn key(number: usize) -> String {
    format!("/registry/configmaps/ns-{}/object-{number}", number % 100)
}

/// The history would count as memory of the records.
fn without_history() -> EmbeddedOptions {
    EmbeddedOptions {
        window: HistoryWindow { keep_for: Duration::ZERO, keep_changes: 0, ..HistoryWindow::default() },
        ..EmbeddedOptions::default()
    }
}

/// Makes a store of many records. What they cost and give is measured by another process, whose memory is nothing else's.
pub async fn large(dir: &Path, records: usize) -> Outcome<()> {
    let dir = tempfile::tempdir_in(dir)?;
    let store = Arc::new(EmbeddedStore::open(dir.path(), without_history()).await?);
    for chunk in 0..records.div_ceil(1000) {
        let numbers = chunk * 1000..records.min((chunk + 1) * 1000);
        join_all(numbers.map(|number| create(&*store, key(number), number))).await;
    }
    drop(store);
    let count = records.to_string();
    let mut measure = Command::new(std::env::current_exe()?);
    let ended = measure.arg("--open").arg(dir.path()).args(["--records", &count]).status()?;
    if ended.success() { Ok(()) } else { Err("measuring a large store failed".into()) }
}

/// Measures a store with this many records.
pub async fn open(dir: &Path, records: usize) -> Outcome<()> {
    let before = resident()?;
    let start = Instant::now();
    let store = Arc::new(EmbeddedStore::open(dir, without_history()).await?);
    println!("start with {records} records             {:>10.2} s", start.elapsed().as_secs_f64());
    let engine = resident()?;
    let window = HistoryWindow { keep_for: Duration::ZERO, keep_changes: 0, ..HistoryWindow::default() };
    let cache = Arc::new(WatchCache::with_engine(store, Arc::new(Collections), window).await?);
    println!("  the cache too                          {:>10.2} s", start.elapsed().as_secs_f64());
    let encoded = key(records - 1).len() + DOCUMENT;
    let per_record = |after: usize| after.saturating_sub(before) as f64 / records as f64;
    let allowed = encoded as f64 * 1.3 + 300.0;
    println!("resident bytes per record of {encoded}       {:>10.0}   (at most {allowed:.0})", per_record(engine));
    println!("  the cache too                          {:>10.0}", per_record(resident()?));
    ranges(&cache, records).await?;
    fan_out(cache, 1000, 200).await
}

async fn ranges(cache: &WatchCache, records: usize) -> Outcome<()> {
    let start = Instant::now();
    let mut lists = 0;
    while start.elapsed() < Duration::from_secs(2) {
        let prefix = format!("/registry/configmaps/ns-{}/", lists % 100);
        let snapshot = cache.snapshot(&prefix, ResourceVersionMatch::Newest).await?;
        let found: Vec<_> = snapshot.items_after(None).map(|item| item.record.clone()).collect();
        assert_eq!(found.len(), records / 100);
        lists += 1;
    }
    let rate = lists as f64 / start.elapsed().as_secs_f64();
    println!(
        "ranges of {} records/s                {rate:>10.0}   ({:.0} records/s)",
        records / 100,
        rate * records as f64 / 100.0
    );
    Ok(())
}

async fn fan_out(cache: Arc<WatchCache>, watchers: usize, writes: usize) -> Outcome<()> {
    let after = cache.revision().await?;
    let mut tasks = Vec::new();
    for _ in 0..watchers {
        let watch = cache.watch_prefix("/registry/fan/", after)?;
        tasks.push(tokio::spawn(see(watch, writes)));
    }
    let start = Instant::now();
    let (began, engine) = (processor()?, cache.clone());
    join_all((0..writes).map(|number| create(&*engine, format!("/registry/fan/{number}"), number))).await;
    let seen: usize = join_all(tasks).await.into_iter().sum::<Result<_, _>>()?;
    assert_eq!(seen, watchers * writes);
    println!("events/s to {watchers} watchers               {:>10.0}", seen as f64 / start.elapsed().as_secs_f64());
    println!("  processor time per event and watcher   {:>10.2} µs", (processor()? - began) * 1e6 / seen as f64);
    Ok(())
}

/// Takes so many changes.
async fn see(mut watch: store::CacheWatcher, writes: usize) -> usize {
    let mut seen = 0;
    while seen < writes {
        let Ok(changes) = watch.take_changes(64) else { return seen };
        seen += changes.len();
        if changes.is_empty() {
            watch.wait_for_change().await;
        }
    }
    seen
}

/// The processor time of this process, in seconds.
fn processor() -> Outcome<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().ok_or("no name in /proc/self/stat")?;
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}

/// The resident memory of this process, in bytes.
fn resident() -> Outcome<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}
