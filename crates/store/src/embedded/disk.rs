//! The file of the embedded engine: what is in it, how it is opened, loaded and written.
//!
//! It holds the documents by revision, and two numbers: the format and the compacted revision. Which revision of a key
//! is the newest follows from loading them in order. A file is loaded in full, and its checksums verified, before the
//! first byte of it is changed.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    mem::ManuallyDrop,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    panic::catch_unwind,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use super::{
    entry::Entry,
    rehearsal::Rehearsal,
    state::{Change, State},
};
use crate::{Error, Event, Record, Revision};

const FILE: &str = "store.redb";
/// What a file is called until it is complete.
const NEW_FILE: &str = "store.redb.new";
const FORMAT: u64 = 1;
/// All reads come from memory, so redb needs little.
const CACHE_BYTES: usize = 8 << 20;

/// Revision → entry (`entry.rs`).
const REVISIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("revisions");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";
const META_COMPACTED: &str = "compacted";

/// The open file; nobody else can open its directory meanwhile.
pub(super) struct Disk {
    db: Database,
    /// Locked. Declared after `db`, so that it is released after the file is closed.
    _dir: File,
}

/// A document that is to be deleted: when, as which revision, under which key.
pub(super) type Expiry = (u64, Revision, Arc<str>);

/// What was in the file.
#[derive(Default)]
pub(super) struct Loaded {
    pub state: State,
    pub expiries: Vec<Expiry>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("another process has the store open; stop that one, or use another directory")]
    Locked,
    #[error("the store is in format {0} and this version reads format {FORMAT}; use the version that wrote it")]
    Format(u64),
    #[error(
        "the store is damaged ({0}); nothing was changed. Restore it from a backup, or move it away to start with an \
         empty store"
    )]
    Damaged(String),
    #[error("cannot open the store: {0}")]
    Io(#[from] io::Error),
}

impl Refusal {
    fn damaged(reason: impl ToString) -> Self {
        Self::Damaged(reason.to_string())
    }
}

/// Opens the file in `dir`, or makes a new one, and loads it.
pub(super) fn open(dir: &Path) -> Result<(Disk, Loaded), Error> {
    let path = dir.join(FILE);
    open_file(dir, &path).map_err(|refusal| Error::Unusable(format!("{}: {refusal}", path.display())))
}

fn open_file(dir: &Path, path: &Path) -> Result<(Disk, Loaded), Refusal> {
    create_dir(dir)?;
    let lock = lock(dir)?;
    if !path.try_exists()? {
        create(dir, path, &lock)?;
    }
    // redb reports most damage as an error and some as a panic.
    let rehearsed = catch_unwind(|| rehearse(path)).unwrap_or_else(|_| Err(Refusal::damaged("its structure")))?;
    let db = catch_unwind(|| open_for_writing(path, rehearsed.intact));
    let db = db.unwrap_or_else(|_| Err(Refusal::damaged("its structure")))?;
    Ok((Disk { db, _dir: lock }, rehearsed.loaded))
}

/// Creates the directory for its owner only, since secrets are kept there, and makes its name durable.
fn create_dir(dir: &Path) -> io::Result<()> {
    let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    for parent in missing.iter().filter_map(|dir| dir.parent()).filter(|dir| !dir.as_os_str().is_empty()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Locks the directory rather than the file, so that this also covers the file's creation.
fn lock(dir: &Path) -> Result<File, Refusal> {
    let dir = File::open(dir)?;
    match dir.try_lock() {
        Ok(()) => Ok(dir),
        Err(TryLockError::WouldBlock) => Err(Refusal::Locked),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Makes an empty store under another name first: a file under the final name is always complete.
fn create(dir: &Path, path: &Path, lock: &File) -> Result<(), Refusal> {
    let new = dir.join(NEW_FILE);
    if new.try_exists()? {
        fs::remove_file(&new)?;
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
    initialize(file).map_err(|error| Refusal::Io(io::Error::other(error)))?;
    fs::rename(&new, path)?;
    Ok(lock.sync_all()?)
}

fn initialize(file: File) -> Result<(), redb::Error> {
    let db = Builder::new().set_cache_size(CACHE_BYTES).create_file(file)?;
    let transaction = db.begin_write()?;
    transaction.open_table(REVISIONS)?;
    let mut meta = transaction.open_table(META)?;
    meta.insert(META_FORMAT, FORMAT)?;
    meta.insert(META_COMPACTED, 0)?;
    drop(meta);
    Ok(transaction.commit()?)
}

struct Rehearsed {
    loaded: Loaded,
    /// The file needs no repair beyond what redb does by itself when it opens it.
    intact: bool,
}

/// Opens, verifies and loads a file without changing it.
fn rehearse(path: &Path) -> Result<Rehearsed, Refusal> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Err(Refusal::damaged("it is empty"));
    }
    let repaired = Arc::new(AtomicBool::new(false));
    let noticed = repaired.clone();
    let db = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .set_repair_callback(move |_| noticed.store(true, Ordering::Relaxed))
        .create_with_backend(Rehearsal::new(file)?)
        .map_err(Refusal::damaged)?;
    // If a panic comes, the database is leaked: closing it then could panic once more and end the process.
    let mut db = ManuallyDrop::new(db);
    // A repair, as after a crash, has verified everything already.
    let verified = if repaired.load(Ordering::Relaxed) { Ok(true) } else { db.check_integrity() };
    let loaded = verified.map_err(Refusal::damaged).and_then(|intact| Ok(Rehearsed { loaded: load(&db)?, intact }));
    drop(ManuallyDrop::into_inner(db));
    loaded
}

fn open_for_writing(path: &Path, intact: bool) -> Result<Database, Refusal> {
    let mut db = Builder::new().set_cache_size(CACHE_BYTES).open(path).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => Refusal::Locked,
        error => Refusal::damaged(error),
    })?;
    if !intact {
        db.check_integrity().map_err(Refusal::damaged)?;
    }
    Ok(db)
}

fn load(db: &Database) -> Result<Loaded, Refusal> {
    let transaction = db.begin_read().map_err(Refusal::damaged)?;
    let meta = transaction.open_table(META).map_err(Refusal::damaged)?;
    let number = |name: &'static str| {
        let number = meta.get(name).map_err(Refusal::damaged)?.map(|number| number.value());
        number.ok_or_else(|| Refusal::Damaged(format!("it has no {name}")))
    };
    let format = number(META_FORMAT)?;
    if format != FORMAT {
        return Err(Refusal::Format(format));
    }
    let mut loaded = Loaded { state: State::new(number(META_COMPACTED)?), ..Loaded::default() };
    let revisions = transaction.open_table(REVISIONS).map_err(Refusal::damaged)?;
    for row in revisions.iter().map_err(Refusal::damaged)? {
        let (revision, bytes) = row.map_err(Refusal::damaged)?;
        let revision = revision.value();
        let added = Entry::decode(bytes.value()).and_then(|entry| loaded.add(revision, &entry));
        added.ok_or_else(|| Refusal::Damaged(format!("revision {revision}")))?;
    }
    let state = &loaded.state;
    loaded.expiries.retain(|(_, revision, key)| state.get(key).is_some_and(|record| record.revision == *revision));
    Ok(loaded)
}

impl Loaded {
    /// Adds the next entry; `None` if it does not follow from what was loaded before.
    fn add(&mut self, revision: Revision, entry: &Entry<'_>) -> Option<()> {
        let current = self.state.get(entry.key).cloned();
        let key = current.as_ref().map_or_else(|| entry.key.into(), |record| record.key.clone());
        if entry.expires != 0 {
            self.expiries.push((entry.expires, revision, key.clone()));
        }
        let value = entry.value.map(bytes::Bytes::copy_from_slice);
        if revision <= self.state.compacted() {
            let replaced = self.state.restore(Record { key, value: value?, revision });
            return replaced.is_none().then_some(());
        }
        let previous = current.as_ref().map_or(0, |record| record.revision);
        if revision != self.state.revision() + 1 || previous != entry.previous {
            return None;
        }
        let event = Event { revision, key, value, previous: current };
        self.state.apply(Change { event: event.into(), written: entry.written, expires: entry.expires });
        Some(())
    }
}

/// What of the past leaves the file.
pub(super) struct Forget {
    /// The new compacted revision.
    pub through: Revision,
    pub revisions: Vec<Revision>,
}

impl Disk {
    /// For tests that bring a backend of their own.
    #[cfg(test)]
    pub fn in_memory(db: Database) -> Self {
        Self { db, _dir: tempfile::tempfile().unwrap() }
    }

    /// Writes all of it, or nothing, and returns when it is durable.
    pub fn commit(&self, changes: &[Change], forget: Option<&Forget>) -> Result<(), redb::Error> {
        let transaction = self.db.begin_write()?;
        let mut revisions = transaction.open_table(REVISIONS)?;
        let mut buffer = Vec::new();
        for change in changes {
            Entry::of(change).encode(&mut buffer);
            revisions.insert(change.event.revision, buffer.as_slice())?;
        }
        if let Some(forget) = forget {
            for revision in &forget.revisions {
                revisions.remove(revision)?;
            }
            transaction.open_table(META)?.insert(META_COMPACTED, forget.through)?;
        }
        drop(revisions);
        Ok(transaction.commit()?)
    }
}
