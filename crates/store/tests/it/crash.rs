//! A writer under load is killed, at random moments and at every named point: nothing acknowledged is lost, no revision
//! goes back or is used twice, and the files are in order.
//!
//! `FERRY_CRASHES` sets how often the writer is killed at a random moment; 20 unless it is set.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ferry_store::{
    EmbeddedOptions, EmbeddedStore, HistoryWindow, ListOptions, Precondition, Record, Revision, Store, WriteRequest,
    medium::{CRASH_POINTS, StorageMedium},
};

const CHILD_DIR: &str = "FERRY_STORE_TEST_CHILD_DIR";
const CHILD_POINT: &str = "FERRY_STORE_TEST_CHILD_POINT";
const WRITERS: usize = 8;
const KEYS: u64 = 5;

/// Small files and little history, so that every kind of work happens all the time.
fn options() -> EmbeddedOptions {
    EmbeddedOptions {
        window: HistoryWindow { keep_for: Duration::ZERO, keep_changes: 100, ..HistoryWindow::default() },
        segment_bytes: 64 << 10,
        ..EmbeddedOptions::default()
    }
}

/// The value of write number `number` of a key.
fn document(key: &str, number: u64) -> Option<String> {
    (number % 7 != 6).then(|| format!("{number} {}", key.repeat(50)))
}

/// Ends the process at a point, the `remaining`th time that it is reached.
struct EndsAt {
    point: String,
    remaining: AtomicU64,
}

impl StorageMedium for EndsAt {
    fn reached_point(&self, point: &'static str) {
        if point == self.point && self.remaining.fetch_sub(1, Ordering::SeqCst) == 1 {
            std::process::abort();
        }
    }
}

/// Not a rule by itself: run as a child by the tests below, it shows what it finds and writes until it is ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_it_ends() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let point = std::env::var(CHILD_POINT).unwrap_or_default();
    let (point, times) = point.split_once('=').unwrap_or(("", "0"));
    let medium = EndsAt { point: point.into(), remaining: AtomicU64::new(times.parse().unwrap()) };
    // Background work reaches its points at any pace; closing comes after the last write.
    let limit = match point {
        "" => u64::MAX,
        "close.marked" => 300,
        _ => 20_000,
    };
    let store = Arc::new(EmbeddedStore::open_with_medium(Path::new(&dir), options(), Arc::new(medium)).await.unwrap());
    println!("\nopened {} ;", store.revision().await.unwrap());
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer, limit))).collect();
    for writer in writers {
        writer.await.unwrap();
        store.compact(store.revision().await.unwrap()).await.unwrap();
    }
}

/// Each key has one writer, so its writes are in order and at most one is not acknowledged.
async fn write(store: Arc<EmbeddedStore>, writer: usize, limit: u64) {
    let mut next = HashMap::new();
    for round in 0..limit {
        let key = format!("/{writer}/{}", round % KEYS);
        let current = store.get(&key).await.unwrap();
        let number = next.entry(key.clone()).or_insert_with(|| current.as_ref().map_or(0, |record| number(record) + 1));
        let precondition = current.map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
        let value = document(&key, *number).map(Into::into);
        let revision =
            store.write(WriteRequest { key: key.as_str().into(), precondition, value, ttl: None }).await.unwrap();
        println!("\nacknowledged {key} {number} {revision} ;");
        *number += 1;
        if round % 40 == 39 {
            store.compact(revision).await.unwrap();
        }
    }
}

fn number(record: &Record) -> u64 {
    let text = std::str::from_utf8(&record.value).unwrap();
    text.split_once(' ').unwrap().0.parse().unwrap()
}

/// Asserts that the store has every acknowledged write.
#[derive(Default)]
struct Expected {
    /// The last write of each key that must be there: its number and revision.
    acknowledged: BTreeMap<String, (u64, Revision)>,
    newest: Revision,
    /// No revision up to here may be given to a write any more.
    used: Revision,
    writes: u64,
}

impl Expected {
    fn start(dir: &Path, point: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_writes_until_it_ends", "--nocapture"])
            .env(CHILD_DIR, dir)
            .env(CHILD_POINT, point)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Runs a writer, kills it after so many acknowledged writes, and checks what it leaves behind.
    async fn round(&mut self, dir: &Path, point: &str, kill_after: u64) -> std::process::ExitStatus {
        let mut child = Self::start(dir, point);
        let mut seen = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            match line.split(' ').collect::<Vec<_>>()[..] {
                // A line without its end was cut short.
                ["opened", revision, ";"] => assert!(revision.parse::<Revision>().unwrap() >= self.newest),
                ["acknowledged", key, number, revision, ";"] => {
                    self.acknowledge(key, number.parse().unwrap(), revision.parse().unwrap());
                    seen += 1;
                    if seen == kill_after {
                        child.kill().unwrap();
                    }
                }
                _ => {}
            }
        }
        let status = child.wait().unwrap();
        self.check(dir, point).await;
        status
    }

    fn acknowledge(&mut self, key: &str, number: u64, revision: Revision) {
        assert!(revision > self.used, "revision {revision} of {key} was used before the crash");
        if let Some((before, earlier)) = self.acknowledged.insert(key.into(), (number, revision)) {
            assert!(revision > earlier && number == before + 1, "{key}: {revision} after {earlier}");
        }
        self.newest = self.newest.max(revision);
        self.writes += 1;
    }

    async fn check(&mut self, dir: &Path, point: &str) {
        let verified = match EmbeddedStore::verify_files(dir).await {
            // Ended before the store was made.
            Err(error) if self.writes == 0 && error.to_string().contains("no store") => return,
            verified => verified.unwrap(),
        };
        assert!(verified.revision >= self.newest, "{point}: at {} after {}", verified.revision, self.newest);
        let store = EmbeddedStore::open(dir, options()).await.unwrap();
        let page = store.list(ListOptions::default()).await.unwrap();
        assert_eq!((page.revision, page.records.len() as u64), (verified.revision, verified.records));
        let found: HashMap<_, _> = page.records.iter().map(|record| (&*record.key, record)).collect();
        for (key, (number, revision)) in &self.acknowledged {
            self::check(key, *number, *revision, found.get(&**key).copied(), point);
        }
        for record in &page.records {
            assert_eq!(document(&record.key, number(record)).unwrap(), record.value, "{point}");
        }
        // The next writer goes on from what is there, be it acknowledged or not.
        let found = page.records.iter().map(|record| (record.key.to_string(), (number(record), record.revision)));
        self.acknowledged = found.collect();
        self.used = verified.revision;
        self.newest = verified.revision;
    }
}

/// The acknowledged write of a key is there, or the one after it.
fn check(key: &str, acknowledged: u64, revision: Revision, found: Option<&Record>, point: &str) {
    let there = match found {
        Some(record) if record.revision == revision => number(record) == acknowledged,
        Some(record) => record.revision > revision && number(record) == acknowledged + 1,
        None => document(key, acknowledged).is_none() || document(key, acknowledged + 1).is_none(),
    };
    assert!(there, "{point}: {key}: write {acknowledged} was acknowledged as {revision}, found {found:?}");
}

#[tokio::test]
async fn acknowledged_writes_survive_random_kills() {
    let crashes = std::env::var("FERRY_CRASHES").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Expected::default();
    for _ in 0..crashes {
        expected.round(dir.path(), "", fastrand::u64(1..800)).await;
    }
    let Expected { writes, newest, .. } = expected;
    println!("killed {crashes} times: {writes} acknowledged writes, none lost; {newest} revisions, none used twice");
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill_at_every_crash_point() {
    let mut writes = 0;
    for point in CRASH_POINTS {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = Expected::default();
        for times in [1, 2] {
            let times = if point == "close.marked" { 1 } else { times };
            let status = expected.round(dir.path(), &format!("{point}={times}"), u64::MAX).await;
            assert!(!status.success(), "{point} was never reached");
        }
        writes += expected.writes;
    }
    println!("ended twice at each of {} points: {writes} acknowledged writes, none lost", CRASH_POINTS.len());
}
