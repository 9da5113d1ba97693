//! A backend that lets redb open a file, and even repair it, without changing it.
//!
//! redb writes to a file as soon as it opens it, before anybody knows whether the contents can be used. So a file is
//! first opened through a [`Rehearsal`], which keeps all writes in memory and is then thrown away.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;

const BLOCK: u64 = 4096;

/// A file as it is on disk, with changes that are only in memory.
#[derive(Debug)]
pub(super) struct Rehearsal {
    file: File,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    /// The length that redb sees.
    len: u64,
    /// How much of the file still shows through.
    visible: u64,
    /// Whole blocks, by their number.
    blocks: HashMap<u64, Vec<u8>>,
}

impl Rehearsal {
    pub fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, changes: Mutex::new(Changes { len, visible: len, blocks: HashMap::new() }) })
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the file alone; zeros where it no longer shows through.
    fn read_file(&self, visible: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let readable = (visible.saturating_sub(offset) as usize).min(out.len());
        self.file.read_exact_at(&mut out[..readable], offset)?;
        out[readable..].fill(0);
        Ok(())
    }
}

impl StorageBackend for Rehearsal {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > changes.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_file(changes.visible, offset, out)?;
        for (block, start, part) in blocks(offset, out.len()) {
            if let Some(changed) = changes.blocks.get(&block) {
                let len = part.len();
                out[part].copy_from_slice(&changed[start..start + len]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes();
        changes.visible = changes.visible.min(len);
        changes.len = len;
        changes.blocks.retain(|block, _| block * BLOCK < len);
        if let Some(last) = changes.blocks.get_mut(&(len / BLOCK)) {
            last[(len % BLOCK) as usize..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes();
        changes.len = changes.len.max(offset + data.len() as u64);
        let visible = changes.visible;
        for (block, start, part) in blocks(offset, data.len()) {
            let contents = match changes.blocks.entry(block) {
                Entry::Occupied(changed) => changed.into_mut(),
                Entry::Vacant(unchanged) => {
                    let mut contents = vec![0; BLOCK as usize];
                    self.read_file(visible, block * BLOCK, &mut contents)?;
                    unchanged.insert(contents)
                }
            };
            contents[start..start + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }
}

/// Splits a stretch at block borders: block number, where it begins in the block, and which part of the stretch it is.
fn blocks(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let start = (at % BLOCK) as usize;
        let end = len.min(done + BLOCK as usize - start);
        let part = (done < len).then_some((at / BLOCK, start, done..end));
        done = end;
        part
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn rehearsal(contents: &[u8]) -> Rehearsal {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        Rehearsal::new(file).unwrap()
    }

    fn read(rehearsal: &Rehearsal, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        StorageBackend::read(rehearsal, offset, &mut out).unwrap();
        out
    }

    #[test]
    fn writes_show_and_the_file_stays() {
        let contents: Vec<u8> = (0..10_000).map(|byte| byte as u8).collect();
        let rehearsal = rehearsal(&contents);
        let mut expected = contents.clone();
        expected[4000..9000].fill(7);
        StorageBackend::write(&rehearsal, 4000, &[7; 5000]).unwrap();
        assert_eq!(read(&rehearsal, 0, 10_000), expected);
        assert_eq!(read(&rehearsal, 4090, 20), expected[4090..4110]);
        let mut on_disk = vec![0; 10_000];
        rehearsal.file.read_exact_at(&mut on_disk, 0).unwrap();
        assert_eq!(on_disk, contents);
    }

    #[test]
    fn what_is_cut_off_comes_back_as_zeros() {
        let rehearsal = rehearsal(&[1; 9000]);
        StorageBackend::write(&rehearsal, 5000, &[2; 10]).unwrap();
        rehearsal.set_len(5005).unwrap();
        rehearsal.set_len(9000).unwrap();
        assert_eq!(read(&rehearsal, 4999, 10), [1, 2, 2, 2, 2, 2, 0, 0, 0, 0]);
        assert_eq!(read(&rehearsal, 8990, 10), [0; 10]);
        assert!(StorageBackend::read(&rehearsal, 8999, &mut [0; 2]).is_err());
    }
}
