//! Files that flags name.

use std::{fs, path::PathBuf};

use anyhow::Context;

use crate::flags::ParsedFlags;

/// The file that a flag names.
pub fn flag_path(given: &ParsedFlags<'_>, name: &str) -> Option<PathBuf> {
    given.text(name).map(PathBuf::from)
}

/// Reads the file that a flag names; `None` if the flag is not set.
pub fn read_flag_file<T, E>(
    given: &ParsedFlags<'_>,
    flag: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> anyhow::Result<Option<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let Some(file) = flag_path(given, flag) else { return Ok(None) };
    let about = || format!("--{flag} {}", file.display());
    let text = fs::read_to_string(&file).with_context(about)?;
    parse(&text).with_context(about).map(Some)
}
