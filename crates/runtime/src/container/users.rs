//! Users and groups by the files of the image, which are not trusted: they are read bounded, and only if they are regular.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use rustix::fs::{FileType, Mode, OFlags};

use super::{ContainerError, spec::UserSpec};

/// Most bytes that are read of a file.
const LONGEST_FILE: u64 = 8 << 20;

/// User and groups as numbers, and the home directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedUser {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: Option<String>,
}

/// Resolves a user in the root directory `root`, which is `/` once the process is inside.
pub fn resolve_user(spec: &UserSpec, root: &Path) -> Result<ResolvedUser, ContainerError> {
    let users = read_lines(&root.join("etc/passwd"));
    let groups = read_lines(&root.join("etc/group"));
    let number = |text: &str| text.parse::<u32>().ok().filter(|id| *id <= i32::MAX as u32);
    let wanted = if spec.user.is_empty() { "0" } else { spec.user.as_str() };
    let row = users.iter().find(|row| {
        row.first().is_some_and(|name| name == wanted)
            || number(wanted).is_some_and(|uid| row.get(2).and_then(|text| number(text)) == Some(uid))
    });
    let uid = match (number(wanted), row.and_then(|row| number(row.get(2)?))) {
        (Some(uid), _) | (None, Some(uid)) => uid,
        (None, None) => {
            return Err(ContainerError::Invalid(format!(
                "unable to find user {wanted}: no matching entries in passwd file"
            )));
        }
    };
    let group_number = |name: &str| {
        let row = groups.iter().find(|row| row.first().is_some_and(|known| known == name));
        number(name).or_else(|| row.and_then(|row| number(row.get(2)?)))
    };
    let gid = match spec.group.as_deref().filter(|group| !group.is_empty()) {
        None => row.and_then(|row| number(row.get(3)?)).unwrap_or(0),
        Some(name) => group_number(name).ok_or_else(|| {
            ContainerError::Invalid(format!("unable to find group {name}: no matching entries in group file"))
        })?,
    };
    let mut all = vec![gid];
    all.extend(&spec.groups);
    if spec.adds_image_groups
        && let Some(name) = row.and_then(|row| row.first())
    {
        let member = |row: &&Vec<String>| row.get(3).is_some_and(|list| list.split(',').any(|one| one == name));
        all.extend(groups.iter().filter(member).filter_map(|row| number(row.get(2)?)));
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|group| seen.insert(*group));
    let home = row.and_then(|row| row.get(5)).filter(|home| !home.is_empty()).cloned();
    Ok(ResolvedUser { uid, gid, groups: all, home })
}

/// The fields of each line; none if the file is missing or is not a regular file.
fn read_lines(path: &Path) -> Vec<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Vec::new() };
    let regular =
        rustix::fs::fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !regular {
        return Vec::new();
    }
    let lines = BufReader::new(File::from(file).take(LONGEST_FILE)).split(b'\n').map_while(Result::ok);
    let fields = |line: Vec<u8>| -> Option<Vec<String>> {
        let line = String::from_utf8(line).ok()?;
        let line = line.trim();
        (!line.is_empty() && !line.starts_with('#')).then(|| line.split(':').map(str::to_owned).collect())
    };
    lines.filter_map(fields).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_resolved_by_the_files_of_the_image() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102::/srv:/bin/sh\nbad\n:::::\n";
        std::fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        std::fs::write(root.path().join("etc/group"), "root:x:0:\nweb:x:102:\nlog:x:7:web,other\n").unwrap();
        let resolve = |user: &str, group: Option<&str>| {
            let spec = UserSpec {
                user: user.into(),
                group: group.map(str::to_owned),
                groups: vec![9],
                adds_image_groups: true,
            };
            resolve_user(&spec, root.path()).map(|found| (found.uid, found.gid, found.groups))
        };
        assert_eq!(resolve("web", None).unwrap(), (101, 102, vec![102, 9, 7]));
        assert_eq!(resolve("101", Some("log")).unwrap(), (101, 7, vec![7, 9]));
        assert_eq!(resolve("5000", None).unwrap(), (5000, 0, vec![0, 9]));
        assert_eq!(resolve("", None).unwrap(), (0, 0, vec![0, 9]));
        assert!(resolve("nobody", None).is_err() && resolve("0", Some("none")).is_err());
    }

    #[test]
    fn files_that_are_not_regular_are_not_read() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("etc/passwd"),
            FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        assert_eq!(resolve_user(&UserSpec::default(), root.path()).unwrap().uid, 0);
    }
}
