//! Guarantees of the embedded engine beyond the contract: restarts, retention, rejected directories.

use std::{fs, path::Path, sync::Arc, time::Duration};

use ferry_store::{
    DelayedSync, EmbeddedOptions, EmbeddedStore, HistoryWindow, ListOptions, Precondition, Record, Revision, Store,
    StoreError, StoreEvent, WriteRequest,
};
use futures::StreamExt;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 64 << 10, ..EmbeddedOptions::default() }
}

async fn open(dir: &Path) -> EmbeddedStore {
    EmbeddedStore::open(dir, options()).await.unwrap()
}

async fn put(store: &EmbeddedStore, key: &str, value: Option<&str>) -> Revision {
    let current = store.get(key).await.unwrap();
    let precondition = current.map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
    let value = value.map(|value| value.to_owned().into());
    store.write(WriteRequest { key: key.into(), precondition, value, ttl: None }).await.unwrap()
}

async fn records(store: &EmbeddedStore) -> Vec<Record> {
    store.list(ListOptions::default()).await.unwrap().records
}

async fn events(store: &EmbeddedStore, after: Revision) -> Vec<StoreEvent> {
    let count = (store.revision().await.unwrap() - after) as usize;
    store.watch("", after).await.unwrap().take(count).map(Result::unwrap).collect().await
}

/// A store with creations, updates, deletions and compacted history.
async fn fill(dir: &Path) -> EmbeddedStore {
    let store = open(dir).await;
    for round in 0..6 {
        for key in 0..20 {
            let value = format!("{round}").repeat(key * 20);
            put(&store, &format!("/{key}"), (key % 5 != round).then_some(&value)).await;
        }
    }
    store.compact(70).await.unwrap();
    store
}

#[tokio::test]
async fn reopening_keeps_records_history_and_the_revision() {
    let dir = tempfile::tempdir().unwrap();
    let store = fill(dir.path()).await;
    let before = (records(&store).await, events(&store, 70).await, store.revision().await.unwrap());
    drop(store);
    let store = open(dir.path()).await;
    assert_eq!((records(&store).await, events(&store, 70).await, store.revision().await.unwrap()), before);
    assert!(matches!(store.watch("", 69).await.err(), Some(StoreError::Compacted { requested: 69, oldest: 70 })));
}

#[tokio::test]
async fn revision_survives_without_records() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    put(&store, "/a", Some("1")).await;
    let last = put(&store, "/a", None).await;
    store.compact(last).await.unwrap();
    drop(store);
    let store = open(dir.path()).await;
    assert_eq!((records(&store).await, store.revision().await.unwrap()), (vec![], last));
}

#[tokio::test]
async fn ttl_is_kept_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let ttl = Some(Duration::from_millis(100));
    let write = WriteRequest { key: "/a".into(), precondition: Precondition::Absent, value: Some("1".into()), ttl };
    let written = store.write(write).await.unwrap();
    drop(store);
    let store = open(dir.path()).await;
    let deleted = store.watch("", written).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!((deleted.revision, deleted.value), (written + 1, None));
}

#[tokio::test]
async fn old_history_is_trimmed_and_current_records_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        window: HistoryWindow { keep_for: Duration::ZERO, keep_changes: 100, ..HistoryWindow::default() },
        ..options()
    };
    let store = EmbeddedStore::open(dir.path(), options.clone()).await.unwrap();
    put(&store, "/kept", Some("1")).await;
    for count in 0..800 {
        put(&store, "/busy", (count % 3 != 0).then_some("x")).await;
    }
    let Some(StoreError::Compacted { oldest, .. }) = store.watch("", 0).await.err() else { panic!("not compacted") };
    let revision = store.revision().await.unwrap();
    assert!((100..400).contains(&(revision - oldest)), "{oldest} of {revision}");
    let before = (records(&store).await, events(&store, oldest).await);
    drop(store);
    let store = EmbeddedStore::open(dir.path(), options).await.unwrap();
    assert_eq!((records(&store).await, events(&store, oldest).await), before);
    assert_eq!(store.get("/kept").await.unwrap().unwrap().revision, 1);
}

#[tokio::test]
async fn large_history_is_trimmed_early() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        EmbeddedOptions { window: HistoryWindow { keep_bytes: 1 << 20, ..HistoryWindow::default() }, ..options() };
    let store = EmbeddedStore::open(dir.path(), options).await.unwrap();
    let document = "x".repeat(10_000);
    for _ in 0..500 {
        put(&store, "/large", Some(&document)).await;
    }
    assert!(matches!(store.watch("", 0).await.err(), Some(StoreError::Compacted { .. })));
}

/// Recent history beyond the guaranteed number of changes is kept only while it is small.
#[tokio::test]
async fn history_is_bounded_after_a_burst() {
    let dir = tempfile::tempdir().unwrap();
    let window = HistoryWindow { keep_changes: 100, spare_bytes: 1 << 20, ..HistoryWindow::default() };
    let store = EmbeddedStore::open(dir.path(), EmbeddedOptions { window, ..options() }).await.unwrap();
    let document = "x".repeat(10_000);
    for _ in 0..900 {
        put(&store, "/burst", Some(&document)).await;
    }
    let Some(StoreError::Compacted { oldest, .. }) = store.watch("", 0).await.err() else { panic!("not compacted") };
    assert!((100..600).contains(&(900 - oldest)), "{oldest} of 900");
}

/// A busy key, such as a lease, must not grow the files: replaced documents leave them with the history.
#[tokio::test]
async fn the_files_do_not_grow_without_bound() {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        window: HistoryWindow { keep_for: Duration::ZERO, keep_changes: 50, ..HistoryWindow::default() },
        ..options()
    };
    let store = EmbeddedStore::open(dir.path(), options.clone()).await.unwrap();
    put(&store, "/kept", Some("1")).await;
    let document = "x".repeat(2_000);
    let mut largest = 0;
    for count in 0..2_000 {
        put(&store, &format!("/lease/{}", count % 10), Some(&document)).await;
        let files = fs::read_dir(dir.path()).unwrap().filter_map(|file| file.ok()?.metadata().ok());
        largest = largest.max(files.map(|file| file.len()).sum::<u64>());
    }
    assert!(largest < 20 * (64 << 10), "{largest} bytes for 20 kB of records; 4 MB were written");
    let before = records(&store).await;
    drop(store);
    let verified = EmbeddedStore::verify_files(dir.path()).await.unwrap();
    assert_eq!((verified.revision, verified.records, verified.torn), (2_001, 11, false));
    assert_eq!(records(&EmbeddedStore::open(dir.path(), options).await.unwrap()).await, before);
}

/// Ten nodes renew their leases every ten seconds for a day. Only the clock is not what it would be: with it running so
/// fast, history is what the number of revisions says. Small segments make every kind of work happen often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_of_leases_does_not_grow_the_files() {
    const NODES: usize = 10;
    const RENEWALS: usize = 24 * 60 * 6;
    const SEGMENT: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        window: HistoryWindow { keep_for: Duration::ZERO, ..HistoryWindow::default() },
        segment_bytes: SEGMENT,
        ..EmbeddedOptions::default()
    };
    let store = Arc::new(EmbeddedStore::open(dir.path(), options).await.unwrap());
    let mut sizes = Vec::new();
    for renewal in 0..RENEWALS {
        let renew = |node: usize| {
            let (store, lease) = (store.clone(), format!("{renewal} of {node} {}", "x".repeat(500)));
            async move { put(&store, &format!("/registry/leases/{node}"), Some(&lease)).await }
        };
        futures::future::join_all((0..NODES).map(renew)).await;
        if renewal % 60 == 59 {
            let files = fs::read_dir(dir.path()).unwrap().filter_map(|file| file.ok()?.metadata().ok());
            sizes.push(files.map(|file| file.len()).sum::<u64>());
        }
    }
    let (first, second) = sizes.split_at(sizes.len() / 2);
    let (first, second) = (first.iter().max().unwrap(), second.iter().max().unwrap());
    println!(
        "{} renewals: at most {first} bytes in the first half of the day, {second} in the second",
        RENEWALS * NODES
    );
    assert!(*second <= first + SEGMENT, "the files grew from {first} to {second} bytes");
}

#[tokio::test]
async fn a_document_larger_than_a_segment_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for size in [100_000, 10, 3_000_000, 64 << 10] {
        put(&store, &format!("/{size}"), Some(&"x".repeat(size))).await;
    }
    let before = records(&store).await;
    drop(store);
    assert_eq!(records(&open(dir.path()).await).await, before);
}

#[tokio::test]
async fn watches_end_when_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    put(&store, "/a", Some("1")).await;
    let watch = store.watch("", 0).await.unwrap();
    drop(store);
    assert_eq!(watch.map(|event| event.unwrap().revision).collect::<Vec<_>>().await, [1]);
}

async fn refusal(dir: &Path) -> String {
    let refused = EmbeddedStore::open(dir, options()).await.err().expect("opened what is no store");
    let StoreError::Unusable(message) = refused else { panic!("{refused}") };
    message
}

#[tokio::test]
async fn second_opener_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    assert!(refusal(dir.path()).await.contains("another process"));
    put(&store, "/a", Some("1")).await;
    drop(store);
    assert_eq!(records(&open(dir.path()).await).await.len(), 1);
}

#[tokio::test]
async fn earlier_format_is_rejected_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("store.redb"), "earlier").unwrap();
    let message = refusal(dir.path()).await;
    assert!(message.contains("store.redb") && message.contains("format 1"), "{message}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn read_only_directory_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "no directory").unwrap();
    let message = refusal(&file).await;
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    assert_eq!(fs::read(&file).unwrap(), b"no directory");
}

#[tokio::test]
async fn every_missing_file_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for count in 0..40 {
        put(&store, &format!("/{count}"), Some(&"x".repeat(5_000))).await;
    }
    drop(store);
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path()).collect();
    let kept: Vec<_> = files.iter().filter(|file| !file.ends_with("segment.next")).collect();
    assert!(kept.len() > 3, "{kept:?}");
    for file in kept {
        let contents = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let message = refusal(dir.path()).await;
        assert!(message.contains("damaged") && message.contains("backup"), "{message}");
        fs::write(file, contents).unwrap();
    }
    assert_eq!(records(&open(dir.path()).await).await.len(), 40);
}

/// Writes that may lag are acknowledged, seen and kept; after an end without order no revision is used again.
#[tokio::test]
async fn delayed_sync_never_reuses_a_revision() {
    let dir = tempfile::tempdir().unwrap();
    let delayed_sync = vec![DelayedSync { prefix: "/leases/".into(), max_delay: Duration::from_millis(1) }];
    let options = EmbeddedOptions { delayed_sync, ..options() };
    let store = EmbeddedStore::open(dir.path(), options.clone()).await.unwrap();
    let mut last = 0;
    for count in 0..50 {
        last = put(&store, "/leases/a", Some(&count.to_string())).await;
    }
    assert_eq!(events(&store, 0).await.len(), 50);
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    drop(store);

    let in_order = EmbeddedStore::open(dir.path(), options.clone()).await.unwrap();
    assert_eq!(in_order.revision().await.unwrap(), last);
    let crashed = EmbeddedStore::open(copy.path(), options).await.unwrap();
    assert!(crashed.revision().await.unwrap() > last);
    assert!(matches!(crashed.watch("", last).await.err(), Some(StoreError::Compacted { .. })));
    assert_eq!(crashed.get("/leases/a").await.unwrap().unwrap().value, "49");
    let next = put(&crashed, "/other", Some("x")).await;
    drop(crashed);
    assert_eq!(open(copy.path()).await.revision().await.unwrap(), next);
}
