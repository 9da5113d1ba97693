//! `hostPath` volumes: a path of the node, checked or made as its type says.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

/// Makes sure that the path is what its type says.
pub fn prepare(source: &HostPathVolumeSource) -> io::Result<()> {
    let path = Path::new(&source.path);
    match source.type_.as_deref().unwrap_or_default() {
        "" => Ok(()),
        "DirectoryOrCreate" if !path.exists() => make_dir(path),
        "FileOrCreate" if !path.exists() => {
            fs::File::options().create(true).append(true).open(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o644))
        }
        "Directory" | "DirectoryOrCreate" => check(path, "a directory", |kind| kind.is_dir()),
        "File" | "FileOrCreate" => check(path, "a file", |kind| kind.is_file()),
        "Socket" => check(path, "a socket file", |kind| kind.is_socket()),
        "CharDevice" => check(path, "a character device", |kind| kind.is_char_device()),
        "BlockDevice" => check(path, "a block device", |kind| kind.is_block_device()),
        other => Err(failed(format!("{other} is an invalid volume type"))),
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn check(path: &Path, what: &str, is: impl Fn(fs::FileType) -> bool) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if is(meta.file_type()) => Ok(()),
        _ => Err(failed(format!("{} is not {what}", path.display()))),
    }
}

fn failed(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("hostPath type check failed: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked_or_made() {
        let dir = tempfile::tempdir().unwrap();
        let source = |name: &str, kind: &str| HostPathVolumeSource {
            path: dir.path().join(name).display().to_string(),
            type_: Some(kind.into()),
        };
        prepare(&source("d", "DirectoryOrCreate")).unwrap();
        prepare(&source("d", "Directory")).unwrap();
        prepare(&source("f", "FileOrCreate")).unwrap();
        prepare(&source("f", "File")).unwrap();
        prepare(&source("absent", "")).unwrap();
        let error = prepare(&source("f", "Directory")).unwrap_err().to_string();
        assert!(error.starts_with("hostPath type check failed:") && error.ends_with("is not a directory"), "{error}");
        assert!(prepare(&source("absent", "Socket")).is_err());
    }
}
