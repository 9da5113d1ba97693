//! Writes volume files atomically: a container sees either all old or all new files.
//!
//! The files are in a directory of their own; `..data` links to it, and every visible name links through `..data`. An
//! update writes a new directory and renames one symlink.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Component, Path, PathBuf},
};

const DATA_LINK: &str = "..data";

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// The content.
    pub data: Vec<u8>,
    /// The permission bits.
    pub mode: u32,
}

/// Volume files by relative path.
pub type VolumeFiles = BTreeMap<String, VolumeFile>;

/// Makes `target` contain exactly `files`, owned by `group` if given; a no-op if unchanged.
pub fn write_files(target: &Path, files: &VolumeFiles, group: Option<u32>) -> io::Result<()> {
    for path in files.keys() {
        check_path(path)?;
    }
    if is_up_to_date(target, files) {
        return Ok(());
    }
    let old = fs::read_link(target.join(DATA_LINK)).ok();
    let fresh = write_new_dir(target, files, group)?;
    let pointer = target.join("..data_tmp");
    remove_if_exists(&pointer)?;
    symlink(&fresh, &pointer)?;
    fs::rename(&pointer, target.join(DATA_LINK))?;
    link_names(target, files)?;
    match old {
        Some(old) if old != fresh => fs::remove_dir_all(target.join(old)),
        _ => Ok(()),
    }
}

/// Rejects paths outside the volume and the writer's own names.
fn check_path(path: &str) -> io::Result<()> {
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !inside || path.starts_with("..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the path {path:?} leaves the volume")));
    }
    Ok(())
}

/// Whether the volume has these files.
fn is_up_to_date(target: &Path, files: &VolumeFiles) -> bool {
    let data = target.join(DATA_LINK);
    let same = |(path, file): (&String, &VolumeFile)| {
        let mode = fs::metadata(data.join(path)).map(|meta| meta.permissions().mode() & 0o777);
        mode.is_ok_and(|mode| mode & file.mode == file.mode)
            && fs::read(data.join(path)).is_ok_and(|old| old == file.data)
    };
    data.is_dir() && count_files(&data) == files.len() && files.iter().all(same)
}

fn count_files(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count_files(&entry.path()) } else { 1 }).sum()
}

/// Writes the files into a new directory and returns its name.
fn write_new_dir(target: &Path, files: &VolumeFiles, group: Option<u32>) -> io::Result<PathBuf> {
    let name = PathBuf::from(format!("..{}", uuid::Uuid::new_v4().simple()));
    let dir = target.join(&name);
    create_dir(&dir, group)?;
    for (path, file) in files {
        let path = Path::new(path);
        let mut parent = dir.clone();
        for part in path.parent().into_iter().flat_map(Path::components) {
            parent.push(part);
            create_dir(&parent, group)?;
        }
        let full = dir.join(path);
        fs::write(&full, &file.data)?;
        chown(&full, None, group)?;
        // Files of an fsGroup are readable by it.
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        fs::set_permissions(&full, fs::Permissions::from_mode(mode))?;
    }
    Ok(name)
}

fn create_dir(dir: &Path, group: Option<u32>) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    chown(dir, None, group)?;
    let mode = if group.is_some() { 0o2775 } else { 0o755 };
    fs::set_permissions(dir, fs::Permissions::from_mode(mode))
}

/// Creates the visible symlinks and removes stale ones.
fn link_names(target: &Path, files: &VolumeFiles) -> io::Result<()> {
    let first = |path: &String| path.split('/').next().unwrap_or_default().to_string();
    let names: BTreeSet<String> = files.keys().map(first).collect();
    for entry in fs::read_dir(target)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !names.contains(&name) {
            remove_if_exists(&entry.path())?;
        }
    }
    for name in names {
        let link = target.join(&name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA_LINK).join(&name), link)?;
        }
    }
    Ok(())
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> VolumeFiles {
        let file = |data: &str| VolumeFile { data: data.into(), mode: 0o644 };
        list.iter().map(|(path, data)| (path.to_string(), file(data))).collect()
    }

    #[test]
    fn update_replaces_all_files_and_removes_the_old_directory() {
        let dir = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(dir.path().join(path)).ok();
        write_files(dir.path(), &files(&[("a", "1"), ("b/c", "2"), ("b/d", "3")]), None).unwrap();
        assert_eq!((read("a").as_deref(), read("b/c").as_deref()), (Some("1"), Some("2")));
        let before = fs::read_link(dir.path().join(DATA_LINK)).unwrap();
        write_files(dir.path(), &files(&[("a", "1"), ("b/c", "2"), ("b/d", "3")]), None).unwrap();
        assert_eq!(fs::read_link(dir.path().join(DATA_LINK)).unwrap(), before, "nothing changed");
        write_files(dir.path(), &files(&[("b/c", "new"), ("e", "4")]), None).unwrap();
        assert_eq!((read("a"), read("b/c").as_deref(), read("b/d")), (None, Some("new"), None));
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| !name.to_string_lossy().starts_with(".."));
        names.sort();
        assert_eq!(names, ["b", "e"]);
        assert!(!dir.path().join(before).exists());
    }

    #[test]
    fn paths_outside_the_volume_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x", "..data", ""] {
            assert!(write_files(dir.path(), &files(&[(path, "x")]), None).is_err(), "{path}");
        }
    }
}
