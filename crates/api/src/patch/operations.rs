//! JSON patch: operations one by one, with bounds on their number, on what they copy, and on how deep they nest.

use json_patch::{Patch, PatchOperation};
use serde::Deserialize;

use super::{
    Error,
    step::{self, Fault},
};
use crate::{Value, decode::MAX_DEPTH};

/// How many operations a JSON patch may have.
const MAX_OPERATIONS: usize = 10_000;
/// How many bytes a JSON patch may copy within the object.
const MAX_COPIED: usize = 3 << 20;
/// How many values may be looked at to know how deep they are.
const MAX_VISITED: usize = 4 << 20;

/// The object after the patch.
pub fn apply(object: &Value, patch: &Value) -> Result<Value, Error> {
    if let Some(count) = patch.as_array().map(Vec::len).filter(|count| *count > MAX_OPERATIONS) {
        let message = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(Error::Malformed(message));
    }
    let operations =
        Patch::deserialize(patch).map_err(|error| Error::Malformed(format!("error decoding patch: {error}")))?;
    let mut out = object.clone();
    let mut bounds = Bounds { copied: 0, visited: 0 };
    for operation in &operations.0 {
        bounds.check(&out, operation)?;
        step::apply(&mut out, operation).map_err(|fault| match fault {
            Fault::Test(why) => Error::Inapplicable { why, test: true },
            Fault::Other(why) => Error::Inapplicable { why, test: false },
        })?;
    }
    Ok(out)
}

struct Bounds {
    copied: usize,
    visited: usize,
}

impl Bounds {
    fn check(&mut self, object: &Value, operation: &PatchOperation) -> Result<(), Error> {
        match operation {
            PatchOperation::Add(add) => self.nest(add.path.as_str(), &add.value),
            PatchOperation::Replace(replace) => self.nest(replace.path.as_str(), &replace.value),
            // What is not there the operation itself tells.
            PatchOperation::Move(moved) => match step::pointed(object, moved.from.as_str()) {
                Some(value) => self.nest(moved.path.as_str(), value),
                None => Ok(()),
            },
            PatchOperation::Copy(copy) => {
                let Some(value) = step::pointed(object, copy.from.as_str()) else { return Ok(()) };
                self.nest(copy.path.as_str(), value)?;
                self.copied += value.to_string().len();
                if self.copied > MAX_COPIED {
                    let message = format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED}",
                        self.copied
                    );
                    return Err(Error::Unprocessable(message));
                }
                Ok(())
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => Ok(()),
        }
    }

    /// Whether a value may be put at a path: an object that is nested without bound could not even be dropped.
    fn nest(&mut self, path: &str, value: &Value) -> Result<(), Error> {
        let depth = path.matches('/').count();
        if depth > MAX_DEPTH || !self.fits(value, MAX_DEPTH - depth) {
            return Err(Error::Unprocessable(format!("the patch nests the object more than {MAX_DEPTH} levels deep")));
        }
        Ok(())
    }

    fn fits(&mut self, value: &Value, levels: usize) -> bool {
        self.visited += 1;
        if self.visited > MAX_VISITED {
            return false;
        }
        match value {
            Value::Array(items) => levels > 0 && items.iter().all(|item| self.fits(item, levels - 1)),
            Value::Object(map) => levels > 0 && map.values().all(|item| self.fits(item, levels - 1)),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_change_the_object_in_order() {
        let patch = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "move", "from": "/a", "path": "/c"}, {"op": "add", "path": "/l/-", "value": 2}, {"op": "remove", "path": "/c"}]);
        assert_eq!(apply(&json!({"a": 1, "l": []}), &patch).unwrap(), json!({"b": 1, "l": [2]}));
        apply(&json!({}), &json!([{"op": "remove", "path": "/x"}])).unwrap_err();
        apply(&json!({}), &json!({"op": "remove"})).unwrap_err();
    }

    #[test]
    fn a_small_patch_cannot_make_a_large_or_deep_object() {
        let grow = vec![json!({"op": "copy", "from": "", "path": "/a"}); 100];
        let object = json!({"x": "x".repeat(10_000)});
        assert!(apply(&object, &json!(grow)).is_err());
        let double = vec![json!({"op": "copy", "from": "/l/-1", "path": "/l/-1/x"}); 1000];
        assert!(apply(&json!({"l": [{"x": "x".repeat(10_000)}]}), &json!(double)).is_err());
        let deeper = json!([{"op": "add", "path": "/b", "value": {}}, {"op": "move", "from": "/a", "path": "/b/a"},
            {"op": "move", "from": "/b", "path": "/a"}]);
        let deeper: Vec<Value> = deeper.as_array().unwrap().iter().cycle().take(3000).cloned().collect();
        assert!(apply(&json!({"a": {}}), &json!(deeper)).is_err());
        assert!(apply(&json!({}), &json!(vec![json!({}); MAX_OPERATIONS + 1])).is_err());
    }
}
