//! Opens a store's directory: one opener at a time, everything verified before anything is changed.

use std::{
    fs::{DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    EmbeddedOptions, SharedState,
    checkpoint::{self, CheckpointHead},
    load::{self, LoadedStore},
    log::WriteAheadLog,
    medium::{DiskMedium, StorageMedium},
    open_error::OpenError,
    segment::{self, SegmentHead},
    state::EngineState,
};
use crate::{Revision, StoreError};

/// Attempts to read files that another process is writing.
const INSPECTIONS: usize = 20;
/// Time to wait for the lock of another process.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

/// An opened store, ready for its writer.
pub(super) struct OpenedStore {
    pub log: WriteAheadLog,
    pub shared: Arc<SharedState>,
    pub expiries: Vec<load::ExpiryEntry>,
    /// Revisions up to here may have been handed out and lost.
    pub reserved: Revision,
}

/// Opens the store in `dir`, or makes a new one, and loads it.
pub(super) fn open_store(
    dir: &Path,
    options: &EmbeddedOptions,
    medium: Arc<dyn StorageMedium>,
) -> Result<OpenedStore, StoreError> {
    open_dir(dir, options, medium).map_err(|refusal| StoreError::Unusable(refusal.to_string()))
}

fn open_dir(dir: &Path, options: &EmbeddedOptions, medium: Arc<dyn StorageMedium>) -> Result<OpenedStore, OpenError> {
    create_dir(dir).map_err(OpenError::with_path(dir))?;
    let lock = lock_dir(dir)?;
    let size = options.segment_bytes.max(64 << 10);
    if !load::store_exists(dir)? {
        create_store(&*medium, dir, size, &SharedState::new(EngineState::new(0))).map_err(OpenError::with_path(dir))?;
    }
    let mut loaded = load::load_store(dir)?;
    if loaded.torn {
        let file = loaded.last.path.display();
        tracing::info!(%file, offset = loaded.end, "store: removed an unacknowledged write that a crash cut short");
    }
    let expiries = std::mem::take(&mut loaded.expiries);
    let reserved = loaded.reserved;
    let (log, shared) = WriteAheadLog::resume(medium, dir, lock, size, loaded)?;
    Ok(OpenedStore { log, shared, expiries, reserved })
}

/// Loads the store in `dir` without changing it. Another process may write it meanwhile.
pub(super) fn inspect_store(dir: &Path) -> Result<LoadedStore, StoreError> {
    let mut tries = INSPECTIONS;
    loop {
        let inspected = inspect_once(dir);
        match inspected {
            // Files come and go while a writer works; without one, what is wrong stays wrong.
            Err(InspectError { written: true, .. }) if tries > 0 => tries -= 1,
            inspected => return inspected.map_err(|inspected| StoreError::Unusable(inspected.refusal.to_string())),
        }
    }
}

struct InspectError {
    refusal: OpenError,
    written: bool,
}

fn inspect_once(dir: &Path) -> Result<LoadedStore, InspectError> {
    if !dir.is_dir() {
        return Err(InspectError { refusal: OpenError::Missing(dir.into()), written: false });
    }
    let (held, written) = match lock_dir(dir) {
        Ok(held) => (Some(held), false),
        Err(OpenError::Locked(_)) => (None, true),
        Err(refusal) => return Err(InspectError { refusal, written: false }),
    };
    let loaded = load::store_exists(dir).and_then(|exists| match exists {
        true => load::load_store(dir),
        false => Err(OpenError::Missing(dir.into())),
    });
    drop(held);
    loaded.map_err(|refusal| InspectError { refusal, written })
}

/// Makes a store with these records in `dir`, which has none; its revision is that of `shared`.
pub(super) fn create_with(dir: &Path, shared: &SharedState) -> Result<(), StoreError> {
    let created = || {
        create_dir(dir).map_err(OpenError::with_path(dir))?;
        let _lock = lock_dir(dir)?;
        if load::store_exists(dir)? {
            return Err(OpenError::Exists(dir.into()));
        }
        create_store(&DiskMedium, dir, EmbeddedOptions::default().segment_bytes, shared)
            .map_err(OpenError::with_path(dir))
    };
    created().map_err(|refusal| StoreError::Unusable(refusal.to_string()))
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

fn lock_dir(dir: &Path) -> Result<File, OpenError> {
    let file = File::open(dir).map_err(OpenError::with_path(dir))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // A process that is just being started has all files of its parent until its program is loaded.
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_TIMEOUT => thread::sleep(LOCK_TIMEOUT / 10),
            Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(dir.into())),
            Err(TryLockError::Error(error)) => return Err(OpenError::with_path(dir)(error)),
        }
    }
}

/// Makes a store: its checkpoint is what makes it one, so that comes last.
fn create_store(medium: &dyn StorageMedium, dir: &Path, size: u64, shared: &SharedState) -> io::Result<()> {
    let id = random_identity();
    let revision = shared.read().revision();
    let file = segment::prepare_segment(medium, dir, size)?;
    segment::adopt_segment(medium, dir, &file, SegmentHead { id, number: 1, first: revision + 1, size })?;
    checkpoint::write_checkpoint(medium, dir, CheckpointHead { id, segment: 1, revision }, shared)?;
    Ok(())
}

/// A number that no other store has.
pub(super) fn random_identity() -> u64 {
    fastrand::u64(..)
}
