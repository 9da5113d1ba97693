//! Gates: lines of the tables that end with `gate(name)` are there only once that gate was opened, for what Kubernetes no
//! longer has. The tables are read once in a process, so gates are opened before.

use std::sync::{Mutex, PoisonError};

/// The tables were read before a gate in them was opened.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gate {0:?} is opened too late: the tables of the API are in use")]
pub struct TooLate(&'static str);

struct Gates {
    open: Vec<&'static str>,
    /// The tables were read.
    used: bool,
}

static GATES: Mutex<Gates> = Mutex::new(Gates { open: Vec::new(), used: false });

/// Opens a gate for as long as the process lives. To open it again is no fault.
pub fn open_gate(name: &'static str) -> Result<(), TooLate> {
    let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    match (gates.open.contains(&name), gates.used) {
        (true, _) => Ok(()),
        (false, true) => Err(TooLate(name)),
        (false, false) => {
            gates.open.push(name);
            Ok(())
        }
    }
}

/// The gates that are open; no more are opened from now on.
pub(super) fn all_open() -> Vec<&'static str> {
    let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    gates.used = true;
    gates.open.clone()
}

/// A line without the name of its gate; `None` if that is shut.
pub(super) fn passed(line: &'static str, open: &[&'static str]) -> Option<&'static str> {
    let Some((text, gate)) = line.split_once(" gate(") else { return Some(line) };
    open.contains(&gate.trim_end().trim_end_matches(')')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_behind_gates() {
        assert_eq!(passed("  name: 1 string", &[]), Some("  name: 1 string"));
        assert_eq!(passed("  name: 1 string gate(old)", &[]), None);
        assert_eq!(passed("  name: 1 string gate(old)", &["old"]), Some("  name: 1 string"));
        assert_eq!(passed("Old: # gate(old)", &["new"]), None);
    }

    #[test]
    fn tables_in_use_do_not_change() {
        super::super::schema();
        assert_eq!(open_gate("initializers"), Err(TooLate("initializers")));
        assert!(!super::super::schema().has_gate("initializers"));
    }
}
