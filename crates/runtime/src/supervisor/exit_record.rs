//! The exit of a container, kept on disk by the supervisor.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use crate::state_file::{read_state, write_state};

/// The end of a container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ExitRecord {
    /// The exit code; 128 and the signal's number if a signal ended it.
    pub exit_code: i32,
    /// Nanoseconds since 1970.
    pub finished_at: i64,
    /// Nanoseconds since 1970.
    pub started_at: i64,
    /// Whether the kernel killed for want of memory.
    pub out_of_memory: bool,
}

impl ExitRecord {
    /// Writes the record; it is on disk when this returns.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_state(path, self)
    }

    /// Reads a record; `None` if there is none.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        read_state(path)
    }
}
