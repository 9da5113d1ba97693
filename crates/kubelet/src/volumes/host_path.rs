//! `hostPath` volumes: checks or creates the path according to its type.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

/// Checks or creates the path.
pub fn prepare_host_path(source: &HostPathVolumeSource) -> io::Result<()> {
    let path = Path::new(&source.path);
    match source.type_.as_deref().unwrap_or_default() {
        "" => Ok(()),
        "DirectoryOrCreate" if !path.exists() => create_dir(path),
        "FileOrCreate" if !path.exists() => {
            fs::File::options().create(true).append(true).open(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o644))
        }
        "Directory" | "DirectoryOrCreate" => check_type(path, "a directory", |kind| kind.is_dir()),
        "File" | "FileOrCreate" => check_type(path, "a file", |kind| kind.is_file()),
        "Socket" => check_type(path, "a socket file", |kind| kind.is_socket()),
        "CharDevice" => check_type(path, "a character device", |kind| kind.is_char_device()),
        "BlockDevice" => check_type(path, "a block device", |kind| kind.is_block_device()),
        other => Err(type_check_error(format!("{other} is an invalid volume type"))),
    }
}

fn create_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn check_type(path: &Path, what: &str, is: impl Fn(fs::FileType) -> bool) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if is(meta.file_type()) => Ok(()),
        _ => Err(type_check_error(format!("{} is not {what}", path.display()))),
    }
}

fn type_check_error(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("hostPath type check failed: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_path_types_are_checked_or_created() {
        let dir = tempfile::tempdir().unwrap();
        let source = |name: &str, kind: &str| HostPathVolumeSource {
            path: dir.path().join(name).display().to_string(),
            type_: Some(kind.into()),
        };
        prepare_host_path(&source("d", "DirectoryOrCreate")).unwrap();
        prepare_host_path(&source("d", "Directory")).unwrap();
        prepare_host_path(&source("f", "FileOrCreate")).unwrap();
        prepare_host_path(&source("f", "File")).unwrap();
        prepare_host_path(&source("absent", "")).unwrap();
        let error = prepare_host_path(&source("f", "Directory")).unwrap_err().to_string();
        assert!(error.starts_with("hostPath type check failed:") && error.ends_with("is not a directory"), "{error}");
        assert!(prepare_host_path(&source("absent", "Socket")).is_err());
    }
}
