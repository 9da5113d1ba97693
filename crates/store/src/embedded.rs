//! The embedded engine (contract only; to be written).

use std::{path::Path, time::Duration};

use crate::Error;

/// How much history the embedded engine keeps.
#[derive(Clone, Debug)]
pub struct Options {
    /// History younger than this is kept.
    pub keep_for: Duration,
    /// At least this many of the newest revisions are kept.
    pub keep_revisions: u64,
}

/// A store in one file of a directory, in this process.
pub struct Embedded {}

impl Embedded {
    /// Opens the store in `dir`, creating it if the directory is empty or absent. Refuses a damaged or locked file and
    /// changes nothing then.
    pub async fn open(_dir: &Path, _options: Options) -> Result<Self, Error> {
        Err(Error::Unusable("contract only".into()))
    }
}
