//! Gates of table lines: a line that ends with `gate(name)` applies only after that gate was opened, for APIs that
//! Kubernetes has removed. Tables are parsed once per process; gates are opened before.

use std::sync::{Mutex, PoisonError};

/// The error of opening a gate after the tables were parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gate {0:?} is opened too late: the tables of the API are in use")]
pub struct GateOpenedTooLate(&'static str);

struct GateRegistry {
    open: Vec<&'static str>,
    /// The tables were parsed.
    frozen: bool,
}

static GATES: Mutex<GateRegistry> = Mutex::new(GateRegistry { open: Vec::new(), frozen: false });

/// Opens a gate for the lifetime of the process; opening it again has no effect.
pub fn open_gate(name: &'static str) -> Result<(), GateOpenedTooLate> {
    let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    match (gates.open.contains(&name), gates.frozen) {
        (true, _) => Ok(()),
        (false, true) => Err(GateOpenedTooLate(name)),
        (false, false) => {
            gates.open.push(name);
            Ok(())
        }
    }
}

/// Returns the open gates and rejects later opening.
pub(super) fn freeze_open_gates() -> Vec<&'static str> {
    let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    gates.frozen = true;
    gates.open.clone()
}

/// Strips the gate from a line; `None` if the gate is closed.
pub(super) fn strip_gate(line: &'static str, open: &[&'static str]) -> Option<&'static str> {
    let Some((text, gate)) = line.split_once(" gate(") else { return Some(line) };
    open.contains(&gate.trim_end().trim_end_matches(')')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_behind_closed_gate_is_dropped() {
        assert_eq!(strip_gate("  name: 1 string", &[]), Some("  name: 1 string"));
        assert_eq!(strip_gate("  name: 1 string gate(old)", &[]), None);
        assert_eq!(strip_gate("  name: 1 string gate(old)", &["old"]), Some("  name: 1 string"));
        assert_eq!(strip_gate("Old: # gate(old)", &["new"]), None);
    }

    #[test]
    fn gate_opened_after_parsing_is_rejected() {
        super::super::schema();
        assert_eq!(open_gate("initializers"), Err(GateOpenedTooLate("initializers")));
        assert!(!super::super::schema().has_gate("initializers"));
    }
}
