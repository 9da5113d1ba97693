//! Engines that could carry the store's log, measured doing its one hot operation: make a batch of changes durable.
//!
//! Each batch is 64 entries of 1 KiB under growing revisions, as many as 64 waiting writers give.

use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

const BATCH: u64 = 64;
const ENTRY: usize = 1024;
const SEGMENT: usize = 16 << 20;

type Outcome = Result<f64, Box<dyn Error>>;
type MeasureFn = fn(&Path, Duration) -> Outcome;

/// Measures each candidate in a directory of its own under `dir` and prints entries per second.
pub fn compare(dir: &Path, lasts: Duration) -> Result<(), Box<dyn Error>> {
    println!("durable batches of {BATCH} entries of {ENTRY} bytes, entries/s:");
    let candidates: [(&str, MeasureFn); 4] =
        [("redb 4", redb), ("fjall 3", fjall), ("log, appended", appended), ("log, zero-filled segments", segments)];
    for (name, measure) in candidates {
        let dir = tempfile::tempdir_in(dir)?;
        println!("  {name:<28} {:>10.0}", measure(dir.path(), lasts)?);
    }
    Ok(())
}

/// Calls `commit` with the first revision of each batch until the time is up.
fn rate(lasts: Duration, mut commit: impl FnMut(u64) -> Result<(), Box<dyn Error>>) -> Outcome {
    let start = Instant::now();
    let mut revision = 1;
    while start.elapsed() < lasts {
        commit(revision)?;
        revision += BATCH;
    }
    Ok((revision - 1) as f64 / start.elapsed().as_secs_f64())
}

fn redb(dir: &Path, lasts: Duration) -> Outcome {
    let table = redb::TableDefinition::<u64, &[u8]>::new("revisions");
    let db = redb::Builder::new().set_cache_size(8 << 20).create(dir.join("store.redb"))?;
    let entry = [b'x'; ENTRY];
    rate(lasts, |first| {
        let transaction = db.begin_write()?;
        let mut revisions = transaction.open_table(table)?;
        for revision in first..first + BATCH {
            revisions.insert(revision, entry.as_slice())?;
        }
        drop(revisions);
        Ok(transaction.commit()?)
    })
}

fn fjall(dir: &Path, lasts: Duration) -> Outcome {
    let db = fjall::Database::builder(dir).open()?;
    let revisions = db.keyspace("revisions", fjall::KeyspaceCreateOptions::default)?;
    let entry = [b'x'; ENTRY];
    rate(lasts, |first| {
        let mut batch = db.batch().durability(Some(fjall::PersistMode::SyncData));
        for revision in first..first + BATCH {
            batch.insert(&revisions, revision.to_be_bytes(), entry);
        }
        Ok(batch.commit()?)
    })
}

/// A file that grows with each batch.
fn appended(dir: &Path, lasts: Duration) -> Outcome {
    let mut file = File::create_new(dir.join("log"))?;
    let batch = vec![b'x'; ENTRY * BATCH as usize];
    rate(lasts, |_| {
        file.write_all(&batch)?;
        Ok(file.sync_data()?)
    })
}

/// Segments that are filled with zeros before they are written, so that a commit changes no length.
fn segments(dir: &Path, lasts: Duration) -> Outcome {
    let batch = vec![b'x'; ENTRY * BATCH as usize];
    let mut file: Option<File> = None;
    let mut offset = SEGMENT;
    rate(lasts, |first| {
        if offset + batch.len() > SEGMENT {
            let path = dir.join(first.to_string());
            let new = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            new.write_all_at(&vec![0; SEGMENT], 0)?;
            new.sync_all()?;
            (file, offset) = (Some(new), 0);
        }
        let Some(file) = &file else { return Ok(()) };
        file.write_all_at(&batch, offset as u64)?;
        offset += batch.len();
        Ok(file.sync_data()?)
    })
}
