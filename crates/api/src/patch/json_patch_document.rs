//! JSON patch: applies operations in order, bounding their number, copied bytes and nesting depth.

use json_patch::{Patch, PatchOperation};
use serde::Deserialize;

use super::{
    PatchError,
    json_patch_operation::{self, OperationError},
};
use crate::{Value, decode::MAX_DEPTH};

/// The maximum number of operations.
const MAX_OPERATIONS: usize = 10_000;
/// The maximum of bytes copied within the object.
const MAX_COPIED: usize = 3 << 20;
/// The maximum of values visited to compute depths.
const MAX_VISITED: usize = 4 << 20;

/// Applies the patch.
pub fn apply_json_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    if let Some(count) = patch.as_array().map(Vec::len).filter(|count| *count > MAX_OPERATIONS) {
        let message = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(PatchError::Malformed(message));
    }
    let operations =
        Patch::deserialize(patch).map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
    let mut out = object.clone();
    let mut bounds = PatchBounds { copied: 0, visited: 0 };
    for operation in &operations.0 {
        bounds.check_operation(&out, operation)?;
        json_patch_operation::apply_operation(&mut out, operation).map_err(|fault| match fault {
            OperationError::TestFailed(why) => PatchError::Inapplicable { why, test: true },
            OperationError::Other(why) => PatchError::Inapplicable { why, test: false },
        })?;
    }
    Ok(out)
}

struct PatchBounds {
    copied: usize,
    visited: usize,
}

impl PatchBounds {
    fn check_operation(&mut self, object: &Value, operation: &PatchOperation) -> Result<(), PatchError> {
        match operation {
            PatchOperation::Add(add) => self.check_depth(add.path.as_str(), &add.value),
            PatchOperation::Replace(replace) => self.check_depth(replace.path.as_str(), &replace.value),
            // The operation itself reports a missing source.
            PatchOperation::Move(moved) => match json_patch_operation::resolve_pointer(object, moved.from.as_str()) {
                Some(value) => self.check_depth(moved.path.as_str(), value),
                None => Ok(()),
            },
            PatchOperation::Copy(copy) => {
                let Some(value) = json_patch_operation::resolve_pointer(object, copy.from.as_str()) else {
                    return Ok(());
                };
                self.check_depth(copy.path.as_str(), value)?;
                self.copied += value.to_string().len();
                if self.copied > MAX_COPIED {
                    let message = format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED}",
                        self.copied
                    );
                    return Err(PatchError::Unprocessable(message));
                }
                Ok(())
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => Ok(()),
        }
    }

    /// Checks the nesting depth of a value at a path: unbounded nesting overflows the stack when dropped.
    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), PatchError> {
        let depth = path.matches('/').count();
        if depth > MAX_DEPTH || !self.fits_depth(value, MAX_DEPTH - depth) {
            return Err(PatchError::Unprocessable(format!(
                "the patch nests the object more than {MAX_DEPTH} levels deep"
            )));
        }
        Ok(())
    }

    fn fits_depth(&mut self, value: &Value, levels: usize) -> bool {
        self.visited += 1;
        if self.visited > MAX_VISITED {
            return false;
        }
        match value {
            Value::Array(items) => levels > 0 && items.iter().all(|item| self.fits_depth(item, levels - 1)),
            Value::Object(map) => levels > 0 && map.values().all(|item| self.fits_depth(item, levels - 1)),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_apply_in_order() {
        let patch = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "move", "from": "/a", "path": "/c"}, {"op": "add", "path": "/l/-", "value": 2}, {"op": "remove", "path": "/c"}]);
        assert_eq!(apply_json_patch(&json!({"a": 1, "l": []}), &patch).unwrap(), json!({"b": 1, "l": [2]}));
        apply_json_patch(&json!({}), &json!([{"op": "remove", "path": "/x"}])).unwrap_err();
        apply_json_patch(&json!({}), &json!({"op": "remove"})).unwrap_err();
    }

    #[test]
    fn copies_and_depth_are_bounded() {
        let grow = vec![json!({"op": "copy", "from": "", "path": "/a"}); 100];
        let object = json!({"x": "x".repeat(10_000)});
        assert!(apply_json_patch(&object, &json!(grow)).is_err());
        let double = vec![json!({"op": "copy", "from": "/l/-1", "path": "/l/-1/x"}); 1000];
        assert!(apply_json_patch(&json!({"l": [{"x": "x".repeat(10_000)}]}), &json!(double)).is_err());
        let deeper = json!([{"op": "add", "path": "/b", "value": {}}, {"op": "move", "from": "/a", "path": "/b/a"},
            {"op": "move", "from": "/b", "path": "/a"}]);
        let deeper: Vec<Value> = deeper.as_array().unwrap().iter().cycle().take(3000).cloned().collect();
        assert!(apply_json_patch(&json!({"a": {}}), &json!(deeper)).is_err());
        assert!(apply_json_patch(&json!({}), &json!(vec![json!({}); MAX_OPERATIONS + 1])).is_err());
    }
}
