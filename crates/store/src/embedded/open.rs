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
    Options, Shared,
    checkpoint::{self, CheckpointHead},
    damage::Refusal,
    load::{self, Loaded},
    log::Log,
    medium::{Disk, Medium},
    segment::{self, SegmentHead},
    state::State,
};
use crate::{Error, Revision};

/// How often files that another process writes are read again when they do not fit together.
const INSPECTIONS: usize = 20;
/// How long a directory that somebody else has may take to become free.
const LETS_GO: Duration = Duration::from_millis(300);

/// What the writer needs to begin.
pub(super) struct Opened {
    pub log: Log,
    pub shared: Arc<Shared>,
    pub expiries: Vec<load::Expiry>,
    /// Revisions up to here may have been handed out and lost.
    pub reserved: Revision,
}

/// Opens the store in `dir`, or makes a new one, and loads it.
pub(super) fn open(dir: &Path, options: &Options, medium: Arc<dyn Medium>) -> Result<Opened, Error> {
    open_dir(dir, options, medium).map_err(|refusal| Error::Unusable(refusal.to_string()))
}

fn open_dir(dir: &Path, options: &Options, medium: Arc<dyn Medium>) -> Result<Opened, Refusal> {
    create_dir(dir).map_err(Refusal::io(dir))?;
    let lock = lock(dir)?;
    let size = options.segment_bytes.max(64 << 10);
    if !load::exists(dir)? {
        create(&*medium, dir, size, &Shared::new(State::new(0))).map_err(Refusal::io(dir))?;
    }
    let mut loaded = load::load(dir)?;
    if loaded.torn {
        let file = loaded.last.path.display();
        tracing::info!(%file, offset = loaded.end, "removed a write that a crash had cut short; it was not acknowledged");
    }
    let expiries = std::mem::take(&mut loaded.expiries);
    let reserved = loaded.reserved;
    let (log, shared) = Log::resume(medium, dir, lock, size, loaded)?;
    Ok(Opened { log, shared, expiries, reserved })
}

/// Loads the store in `dir` as it is and changes nothing. Somebody else may have it open and write meanwhile.
pub(super) fn inspect(dir: &Path) -> Result<Loaded, Error> {
    let mut tries = INSPECTIONS;
    loop {
        let inspected = inspect_once(dir);
        match inspected {
            // Files come and go while a writer works; without one, what is wrong stays wrong.
            Err(Inspected { written: true, .. }) if tries > 0 => tries -= 1,
            inspected => return inspected.map_err(|inspected| Error::Unusable(inspected.refusal.to_string())),
        }
    }
}

struct Inspected {
    refusal: Refusal,
    written: bool,
}

fn inspect_once(dir: &Path) -> Result<Loaded, Inspected> {
    if !dir.is_dir() {
        return Err(Inspected { refusal: Refusal::Missing(dir.into()), written: false });
    }
    let (held, written) = match lock(dir) {
        Ok(held) => (Some(held), false),
        Err(Refusal::Locked(_)) => (None, true),
        Err(refusal) => return Err(Inspected { refusal, written: false }),
    };
    let loaded = load::exists(dir).and_then(|exists| match exists {
        true => load::load(dir),
        false => Err(Refusal::Missing(dir.into())),
    });
    drop(held);
    loaded.map_err(|refusal| Inspected { refusal, written })
}

/// Makes a store with these records in `dir`, which has none; its revision is that of `shared`.
pub(super) fn create_with(dir: &Path, shared: &Shared) -> Result<(), Error> {
    let created = || {
        create_dir(dir).map_err(Refusal::io(dir))?;
        let _lock = lock(dir)?;
        if load::exists(dir)? {
            return Err(Refusal::Exists(dir.into()));
        }
        create(&Disk, dir, Options::default().segment_bytes, shared).map_err(Refusal::io(dir))
    };
    created().map_err(|refusal| Error::Unusable(refusal.to_string()))
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

fn lock(dir: &Path) -> Result<File, Refusal> {
    let file = File::open(dir).map_err(Refusal::io(dir))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // A process that is just being started has all files of its parent until its program is loaded.
            Err(TryLockError::WouldBlock) if began.elapsed() < LETS_GO => thread::sleep(LETS_GO / 10),
            Err(TryLockError::WouldBlock) => return Err(Refusal::Locked(dir.into())),
            Err(TryLockError::Error(error)) => return Err(Refusal::io(dir)(error)),
        }
    }
}

/// Makes a store: its checkpoint is what makes it one, so that comes last.
fn create(medium: &dyn Medium, dir: &Path, size: u64, shared: &Shared) -> io::Result<()> {
    let id = identity();
    let revision = shared.read().revision();
    let file = segment::prepare(medium, dir, size)?;
    segment::adopt(medium, dir, &file, SegmentHead { id, number: 1, first: revision + 1, size })?;
    checkpoint::write(medium, dir, CheckpointHead { id, segment: 1, revision }, shared)?;
    Ok(())
}

/// A number that no other store has.
pub(super) fn identity() -> u64 {
    fastrand::u64(..)
}
