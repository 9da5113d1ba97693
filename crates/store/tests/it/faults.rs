//! Disks that lie, tear and fail: what was acknowledged is there, or the store is refused by file and place, unchanged.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use ferry_store::{
    EmbeddedOptions, EmbeddedStore, HistoryWindow, ListOptions, Precondition, Record, Revision, Store, StoreContents,
    StoreError, WriteRequest, medium::StorageMedium,
};
use futures::StreamExt;

const SEGMENT: u64 = 64 << 10;
/// Number of bits flipped, one at a time, in a closed store and in a crashed one.
const FLIPS: usize = 5_000;

fn options() -> EmbeddedOptions {
    EmbeddedOptions {
        window: HistoryWindow { keep_for: Duration::ZERO, keep_changes: 20, ..HistoryWindow::default() },
        segment_bytes: SEGMENT,
        ..EmbeddedOptions::default()
    }
}

async fn put(store: &EmbeddedStore, key: &str, value: Option<String>) -> Result<Revision, StoreError> {
    let current = store.get(key).await.unwrap();
    let precondition = current.map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
    store.write(WriteRequest { key: key.into(), precondition, value: value.map(Into::into), ttl: None }).await
}

/// Everything that a reader can see: the records, and the history as text.
async fn visible(store: &EmbeddedStore) -> (Vec<Record>, Vec<String>) {
    let page = store.list(ListOptions::default()).await.unwrap();
    let Some(StoreError::Compacted { oldest, .. }) = store.watch("", 0).await.err() else {
        return (page.records, vec!["not compacted".into()]);
    };
    let count = (page.revision - oldest) as usize;
    let events = store.watch("", oldest).await.unwrap().take(count);
    (page.records, events.map(|event| format!("{:?}", event.unwrap())).collect().await)
}

/// A store with several segments, a checkpoint, deletions and history; with its files before it was closed.
async fn fill(dir: &Path) -> (Vec<Record>, Vec<String>) {
    fill_and_copy(dir).await.0
}

async fn fill_and_copy(dir: &Path) -> ((Vec<Record>, Vec<String>), Vec<(PathBuf, Vec<u8>)>) {
    let store = EmbeddedStore::open(dir, options()).await.unwrap();
    for count in 0..450u32 {
        let value = (count % 9 != 8).then(|| format!("{count} ").repeat(300));
        put(&store, &format!("/{}", count % 10), value).await.unwrap();
    }
    let visible = visible(&store).await;
    // Checkpoints are written beside the writes; the next one is many writes away.
    let crashed = loop {
        let (first, second) = (files(dir), files(dir));
        if first == second {
            break first;
        }
    };
    (visible, crashed)
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| !file.ends_with("segment.next") && !file.ends_with("checkpoint.new"));
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn copy(files: &[(PathBuf, Vec<u8>)], to: &Path) {
    for (path, contents) in files {
        fs::write(to.join(path.file_name().unwrap()), contents).unwrap();
    }
}

/// The message of a refusal names the file, where in it, and what to do.
fn assert_names(message: &str, file: &Path) {
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(message.contains(name) && message.contains("byte") && message.contains("ferry store restore"), "{message}");
}

/// One flipped bit anywhere, 10,000 times: refused, or everything is as it was. Reading changes
/// nothing, so that one copy of the store serves all of them; where nothing wrong is found, it is compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_is_rejected_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let (before, crashed) = fill_and_copy(dir.path()).await;
    let closed = files(dir.path());
    assert!(closed.len() >= 3);
    for (how, files) in [("closed in order", closed), ("crashed", crashed)] {
        flip(how, &files, &before).await;
    }
}

async fn flip(how: &str, files: &[(PathBuf, Vec<u8>)], before: &(Vec<Record>, Vec<String>)) {
    let work = tempfile::tempdir().unwrap();
    copy(files, work.path());
    let digest = StoreContents::read_dir(work.path()).unwrap().digest();
    let (mut refused, mut harmless) = (0, 0);
    let total: usize = files.iter().map(|(_, contents)| contents.len()).sum();
    for _ in 0..FLIPS {
        let (file, offset) = pick(files, fastrand::usize(..total));
        let path = work.path().join(file.0.file_name().unwrap());
        let flipped = file.1[offset] ^ 1 << fastrand::u32(..8);
        let handle = File::options().write(true).open(&path).unwrap();
        handle.write_all_at(&[flipped], offset as u64).unwrap();
        match StoreContents::read_dir(work.path()) {
            Err(StoreError::Unusable(message)) => {
                refused += 1;
                assert_names(&message, &path);
            }
            Err(error) => panic!("{error}"),
            Ok(contents) => {
                harmless += 1;
                assert_eq!(contents.digest(), digest, "{path:?} at {offset}");
                if harmless % 20 == 0 {
                    let store = EmbeddedStore::open(work.path(), options()).await.unwrap();
                    assert_eq!(visible(&store).await, *before, "{path:?} at {offset}");
                    drop(store);
                    files_again(files, work.path());
                }
            }
        }
        handle.write_all_at(&[file.1[offset]], offset as u64).unwrap();
    }
    println!(
        "{how}: {FLIPS} flipped bits: {refused} refused by file and place, {harmless} in unused space, no wrong answer"
    );
    assert!(refused > 1_000, "{refused}");
}

fn pick(files: &[(PathBuf, Vec<u8>)], mut at: usize) -> (&(PathBuf, Vec<u8>), usize) {
    for file in files {
        if at < file.1.len() {
            return (file, at);
        }
        at -= file.1.len();
    }
    unreachable!("the place is within the files")
}

/// Puts the files back as they were.
fn files_again(files: &[(PathBuf, Vec<u8>)], dir: &Path) {
    for file in fs::read_dir(dir).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    copy(files, dir);
}

#[tokio::test]
async fn truncated_file_is_rejected_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path()).await;
    let files = files(dir.path());
    for (path, contents) in &files {
        for keep in [0, 1, 511, 512, 4096, contents.len() / 2, contents.len() - 1] {
            let work = tempfile::tempdir().unwrap();
            copy(&files, work.path());
            let truncated = work.path().join(path.file_name().unwrap());
            let keep = keep.min(contents.len() - 1);
            fs::write(&truncated, &contents[..keep]).unwrap();
            let Some(StoreError::Unusable(message)) = EmbeddedStore::open(work.path(), options()).await.err() else {
                panic!("{truncated:?} with {keep} bytes was opened")
            };
            assert_names(&message, path);
            assert!(fs::read(&truncated).unwrap() == contents[..keep], "changed");
        }
    }
}

/// A last write of which any set of sectors is missing was never acknowledged: the store opens without it.
#[tokio::test]
async fn only_a_torn_last_write_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), options()).await.unwrap();
    for count in 0..5 {
        put(&store, &format!("/{count}"), Some("kept".repeat(100))).await.unwrap();
    }
    let before = (store.list(ListOptions::default()).await.unwrap().records, files(dir.path()));
    put(&store, "/torn", Some("torn".repeat(1_000))).await.unwrap();
    let after = files(dir.path());
    drop(store);
    let segment = after.iter().position(|(path, _)| path.to_str().unwrap().contains("segment")).unwrap();
    let (old, new) = (&before.1[segment].1, &after[segment].1);
    let changed: Vec<_> = (0..new.len() / 512).filter(|s| old[s * 512..][..512] != new[s * 512..][..512]).collect();
    assert!(changed.len() > 7, "{changed:?}");
    for _ in 0..300 {
        let missing: Vec<_> = changed.iter().filter(|_| fastrand::bool()).collect();
        if missing.is_empty() {
            continue;
        }
        let work = tempfile::tempdir().unwrap();
        let mut torn = after.clone();
        for sector in missing {
            torn[segment].1[sector * 512..][..512].copy_from_slice(&old[sector * 512..][..512]);
        }
        copy(&torn, work.path());
        let store = EmbeddedStore::open(work.path(), options()).await.unwrap();
        assert_eq!(store.list(ListOptions::default()).await.unwrap().records, before.0);
        assert_eq!(put(&store, "/next", Some("x".into())).await.unwrap(), 6);
        drop(store);
        assert_eq!(EmbeddedStore::verify_files(work.path()).await.unwrap().records, 6);
    }
}

/// A hole where a write was durable is damage, though it looks like one that was never made.
#[tokio::test]
async fn hole_before_durable_writes_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), options()).await.unwrap();
    for count in 0..20 {
        put(&store, &format!("/{count}"), Some("x".repeat(700))).await.unwrap();
    }
    drop(store);
    let files = files(dir.path());
    let segment = files.iter().position(|(path, _)| path.to_str().unwrap().contains("segment")).unwrap();
    for sector in 1..20 {
        let work = tempfile::tempdir().unwrap();
        let mut holed = files.clone();
        holed[segment].1[sector * 512..][..512].fill(0);
        copy(&holed, work.path());
        let refused = EmbeddedStore::open(work.path(), options()).await.err().expect("opened with a hole");
        assert_names(&refused.to_string(), &files[segment].0);
    }
}

/// A disk whose `left`th change fails, and every one after it while `failing`.
struct Failing {
    left: AtomicI64,
    changes: AtomicU64,
    error: i32,
}

impl Failing {
    fn check(&self) -> io::Result<()> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            ..=0 => Err(io::Error::from_raw_os_error(self.error)),
            _ => Ok(()),
        }
    }
}

impl StorageMedium for Failing {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.check()?;
        File::options().read(true).write(true).create_new(true).open(path)
    }
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let checked = self.check();
        // A write that fails may have written a part.
        let part = if checked.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        file.write_all_at(part, offset)?;
        checked
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.check().and_then(|()| file.sync_data())
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check().and_then(|()| fs::rename(from, to))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check().and_then(|()| fs::remove_file(path))
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check().and_then(|()| File::open(dir)?.sync_all())
    }
}

/// Writes until the disk fails; then nothing is acknowledged that the disk refused, readers see only what was
/// acknowledged, and after a restart on a disk in order all of it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_every_failing_write() {
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    let mut tried = 0;
    for error in [ENOSPC, EIO] {
        let mut fails_at = 0;
        loop {
            let medium = Arc::new(Failing { left: fails_at.into(), changes: 0.into(), error });
            let dir = tempfile::tempdir().unwrap();
            let failed = fail(dir.path(), medium.clone()).await;
            tried += 1;
            if !failed && medium.changes.load(Ordering::SeqCst) <= fails_at as u64 {
                break;
            }
            fails_at += 1;
        }
    }
    println!("a disk that fails from the Nth change on: {tried} places, nothing acknowledged lost");
}

/// Whether a write or the opening failed.
async fn fail(dir: &Path, medium: Arc<Failing>) -> bool {
    let mut acknowledged = Vec::new();
    let mut failed = true;
    if let Ok(store) = EmbeddedStore::open_with_medium(dir, options(), medium).await {
        failed = false;
        for count in 0..70 {
            let value = format!("{count} ").repeat(400);
            match put(&store, &format!("/{count}"), Some(value.clone())).await {
                Ok(revision) => acknowledged.push((count, revision, value)),
                Err(StoreError::Engine(_)) => failed = true,
                Err(error) => panic!("{error}"),
            }
        }
        let shown = store.list(ListOptions::default()).await.unwrap();
        assert_eq!(shown.records.len(), acknowledged.len(), "shown and not acknowledged, or the other way round");
    }
    let store = EmbeddedStore::open(dir, options()).await.unwrap();
    for (count, revision, value) in acknowledged {
        let record = store.get(&format!("/{count}")).await.unwrap().unwrap();
        assert_eq!((record.revision, record.value), (revision, value.into()));
    }
    failed
}

/// A full disk refuses writes, and once there is room again they go on, without a restart.
#[tokio::test]
async fn writes_resume_after_a_full_disk_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let medium = Arc::new(Failing { left: i64::MAX.into(), changes: 0.into(), error: 28 });
    let store = EmbeddedStore::open_with_medium(dir.path(), options(), medium.clone()).await.unwrap();
    put(&store, "/a", Some("x".repeat(1_000))).await.unwrap();
    medium.left.store(0, Ordering::SeqCst);
    // Does not fit into the segment, and there is no room for another.
    let large = Some("x".repeat(70_000));
    assert!(matches!(put(&store, "/b", large.clone()).await, Err(StoreError::Engine(_))));
    assert!(store.check_health().await.is_ok());
    medium.left.store(i64::MAX, Ordering::SeqCst);
    let revision = put(&store, "/b", large).await.unwrap();
    drop(store);
    assert_eq!(EmbeddedStore::verify_files(dir.path()).await.unwrap().revision, revision);
}
