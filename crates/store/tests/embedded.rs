//! What the embedded engine promises about its file: nothing acknowledged is lost, nothing unusable is touched.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use ferry_store::{Embedded, Error, Event, Guard, Options, Range, Record, Revision, Store, Write};
use futures::StreamExt;

async fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, Options::default()).await.unwrap()
}

async fn put(store: &Embedded, key: &str, value: Option<&str>) -> Revision {
    let current = store.get(key).await.unwrap();
    let guard = current.map_or(Guard::Absent, |record| Guard::Revision(record.revision));
    let value = value.map(|value| value.to_owned().into());
    store.write(Write { key: key.into(), guard, value, ttl: None }).await.unwrap()
}

async fn records(store: &Embedded) -> Vec<Record> {
    store.list(Range::default()).await.unwrap().records
}

async fn events(store: &Embedded, after: Revision) -> Vec<Event> {
    let count = (store.revision().await.unwrap() - after) as usize;
    store.watch("", after).await.unwrap().take(count).map(Result::unwrap).collect().await
}

/// A store with creations, updates, deletions and compacted history.
async fn fill(dir: &Path) -> Embedded {
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
    assert!(matches!(store.watch("", 69).await.err(), Some(Error::Compacted { requested: 69, oldest: 70 })));
}

#[tokio::test]
async fn the_revision_survives_when_nothing_else_is_left() {
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
async fn documents_expire_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let ttl = Some(Duration::from_millis(100));
    let write = Write { key: "/a".into(), guard: Guard::Absent, value: Some("1".into()), ttl };
    let written = store.write(write).await.unwrap();
    drop(store);
    let store = open(dir.path()).await;
    let deleted = store.watch("", written).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!((deleted.revision, deleted.value), (written + 1, None));
}

#[tokio::test]
async fn old_history_is_forgotten_and_current_records_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { keep_for: Duration::ZERO, keep_revisions: 100, ..Options::default() };
    let store = Embedded::open(dir.path(), options.clone()).await.unwrap();
    put(&store, "/kept", Some("1")).await;
    for count in 0..800 {
        put(&store, "/busy", (count % 3 != 0).then_some("x")).await;
    }
    let Some(Error::Compacted { oldest, .. }) = store.watch("", 0).await.err() else { panic!("not compacted") };
    let revision = store.revision().await.unwrap();
    assert!((100..400).contains(&(revision - oldest)), "{oldest} of {revision}");
    let before = (records(&store).await, events(&store, oldest).await);
    drop(store);
    let store = Embedded::open(dir.path(), options).await.unwrap();
    assert_eq!((records(&store).await, events(&store, oldest).await), before);
    assert_eq!(store.get("/kept").await.unwrap().unwrap().revision, 1);
}

#[tokio::test]
async fn large_history_is_forgotten_early() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { keep_bytes: 1 << 20, ..Options::default() };
    let store = Embedded::open(dir.path(), options).await.unwrap();
    let document = "x".repeat(10_000);
    for _ in 0..500 {
        put(&store, "/large", Some(&document)).await;
    }
    assert!(matches!(store.watch("", 0).await.err(), Some(Error::Compacted { .. })));
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

#[tokio::test]
async fn a_second_opener_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let refused = Embedded::open(dir.path(), Options::default()).await.err().unwrap();
    let Error::Unusable(message) = &refused else { panic!("{refused}") };
    assert!(message.contains("store.redb") && message.contains("another process"), "{message}");
    put(&store, "/a", Some("1")).await;
    drop(store);
    assert_eq!(records(&open(dir.path()).await).await.len(), 1);
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_and_unchanged() {
    let text = "not a store ".repeat(1000);
    let zeros = vec![0; 100_000];
    for contents in [b"".as_slice(), b"x", text.as_bytes(), &zeros, b"redb\x1a\x0a\xa9\x0d\x0a", b"redb\x1a\x0a\xa9"] {
        let dir = tempfile::tempdir().unwrap();
        refuse(dir.path(), contents).await;
    }
}

/// Puts `contents` where the store is expected; opening must fail, and leave them and the directory as they are.
async fn refuse(dir: &Path, contents: &[u8]) {
    let file = dir.join("store.redb");
    fs::write(&file, contents).unwrap();
    let refused = Embedded::open(dir, Options::default()).await.err().expect("opened what is no store");
    let Error::Unusable(message) = &refused else { panic!("{refused}") };
    assert!(message.contains("store.redb") && message.contains("backup"), "{message}");
    assert!(fs::read(&file).unwrap() == contents, "the file was changed");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
}

#[tokio::test]
async fn a_truncated_store_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    drop(fill(dir.path()).await);
    let whole = fs::read(dir.path().join("store.redb")).unwrap();
    for keep in [whole.len() / 8, whole.len() / 2, 4096, 320, 100] {
        let dir = tempfile::tempdir().unwrap();
        refuse(dir.path(), &whole[..keep]).await;
    }
}

#[tokio::test]
async fn a_store_of_another_format_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    drop(fill(dir.path()).await);
    let file = dir.path().join("store.redb");
    let db = redb::Database::open(&file).unwrap();
    let transaction = db.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction.open_table(meta).unwrap().insert("format", 7).unwrap();
    transaction.commit().unwrap();
    drop(db);
    let before = fs::read(&file).unwrap();
    let refused = Embedded::open(dir.path(), Options::default()).await.err().unwrap();
    assert!(refused.to_string().contains("format 7"), "{refused}");
    assert!(fs::read(&file).unwrap() == before, "the file was changed");
}

/// One damaged byte anywhere: either the store is refused and unchanged, or everything in it is as it was.
#[tokio::test]
async fn a_damaged_byte_never_goes_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = fill(dir.path()).await;
    let before = (records(&store).await, events(&store, 70).await);
    drop(store);
    let whole = fs::read(dir.path().join("store.redb")).unwrap();
    let used = whole.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(offset, _)| offset);
    let used: Vec<_> = used.collect();
    let header = (0..320).step_by(3);
    let sampled = used.iter().copied().step_by(used.len() / 150 + 1);
    let mut refused = 0;
    for offset in header.chain(sampled) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("store.redb");
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x41;
        fs::write(&file, &damaged).unwrap();
        match Embedded::open(dir.path(), Options::default()).await {
            Err(Error::Unusable(_)) => {
                refused += 1;
                assert!(fs::read(&file).unwrap() == damaged, "changed after damage at {offset}");
            }
            Err(error) => panic!("{offset}: {error}"),
            Ok(store) => {
                assert_eq!((records(&store).await, events(&store, 70).await), before, "damage at {offset}");
            }
        }
    }
    // The rest of the bytes belong to pages that are free.
    assert!(refused > 0);
}

#[tokio::test]
async fn a_changed_document_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = fill(dir.path()).await;
    put(&store, "/document", Some("this is genuine")).await;
    drop(store);
    let mut contents = fs::read(dir.path().join("store.redb")).unwrap();
    let genuine: Vec<_> = contents.windows(7).enumerate().filter(|(_, bytes)| bytes == b"genuine").collect();
    let offsets: Vec<_> = genuine.into_iter().map(|(offset, _)| offset).collect();
    offsets.iter().for_each(|offset| contents[*offset..*offset + 7].copy_from_slice(b"altered"));
    refuse(dir.path(), &contents).await;
}

const CHILD_DIR: &str = "FERRY_STORE_TEST_CHILD_DIR";

/// Not a rule by itself: run as a child by the test below, it writes until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let store = std::sync::Arc::new(open(Path::new(&dir)).await);
    let writers = (0..8).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for count in 0u64.. {
                let key = format!("/{writer}/{count}");
                let revision = put(&store, &key, Some(&key.repeat(50))).await;
                println!("\nacknowledged {key} {revision}");
            }
        })
    });
    futures::future::join_all(writers.collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    for round in 1..=3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_killed", "--nocapture"])
            .env(CHILD_DIR, dir.path().join(round.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        acknowledged.clear();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let words: Vec<_> = line.split(' ').collect();
            if let ["acknowledged", key, revision] = words[..] {
                acknowledged.insert(key.to_owned(), revision.parse::<Revision>().unwrap());
            }
            if acknowledged.len() == 100 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let store = open(&dir.path().join(round.to_string())).await;
        assert!(acknowledged.len() >= 100 * round);
        for (key, revision) in &acknowledged {
            let record = store.get(key).await.unwrap().unwrap_or_else(|| panic!("{key} is lost"));
            assert_eq!((record.revision, record.value), (*revision, key.repeat(50).into()));
        }
    }
}
