//! Single JSON patch operations with the semantics and messages of upstream's library: `replace` may add, and indexes
//! may be negative.

use json_patch::PatchOperation;

use crate::Value;

/// An operation that does not apply.
#[derive(Debug, PartialEq, Eq)]
pub enum OperationError {
    /// A `test` operation failed.
    TestFailed(String),
    /// Any other error.
    Other(String),
}

type OperationResult<T> = Result<T, OperationError>;

fn operation_error<T>(message: String) -> OperationResult<T> {
    Err(OperationError::Other(message))
}

/// Returns the value at a JSON pointer.
pub fn resolve_pointer<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    pointer_tokens(path).try_fold(object, |within, step| match within {
        Value::Array(list) => list.get(parse_index(&step, list.len()).ok()?),
        within => within.get(&step),
    })
}

fn pointer_tokens(path: &str) -> impl Iterator<Item = String> {
    path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
}

/// Applies one operation.
pub fn apply_operation(object: &mut Value, operation: &PatchOperation) -> OperationResult<()> {
    match operation {
        PatchOperation::Add(add) => {
            let path = add.path.as_str();
            let missing = format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
            let place = PointerTarget::find(object, path, missing)?;
            place.add(add.value.clone(), |why| format!("error in add for path: '{path}': {why}"))
        }
        PatchOperation::Remove(remove) => {
            let path = remove.path.as_str();
            let missing = format!("remove operation does not apply: doc is missing path: \"{path}\": missing value");
            let place = PointerTarget::find(object, path, missing)?;
            place.remove(|why| format!("error in remove for path: '{path}': {why}")).map(drop)
        }
        PatchOperation::Replace(replace) => self::replace_value(object, replace.path.as_str(), &replace.value),
        PatchOperation::Move(moved) => {
            let (from, path) = (moved.from.as_str(), moved.path.as_str());
            let missing = format!("move operation does not apply: doc is missing from path: {from}: missing value");
            let place = PointerTarget::find(object, from, missing)?;
            let key = place.key.clone();
            let value = place.remove(|why| format!("error in move for path: '{key}': {why}"))?;
            let missing =
                format!("move operation does not apply: doc is missing destination path: {path}: missing value");
            let place = PointerTarget::find(object, path, missing)?;
            place.add(value, |why| format!("error in move for path: '{path}': {why}"))
        }
        PatchOperation::Copy(copy) => {
            let (from, path) = (copy.from.as_str(), copy.path.as_str());
            let missing = format!("copy operation does not apply: doc is missing from path: {from}: missing value");
            let place = PointerTarget::find(object, from, missing)?;
            let value = place.get(|why| format!("error in copy for from: '{from}': {why}"))?.clone();
            let missing =
                format!("copy operation does not apply: doc is missing destination path: {path}: missing value");
            let place = PointerTarget::find(object, path, missing)?;
            place.add(value, |why| format!("error while adding value during copy: {why}"))
        }
        PatchOperation::Test(test) => self::test_value(object, test.path.as_str(), &test.value),
    }
}

fn replace_value(object: &mut Value, path: &str, value: &Value) -> OperationResult<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return operation_error("replace operation value must be object or array".to_owned());
        }
        *object = value.clone();
        return Ok(());
    }
    let missing = format!("replace operation does not apply: doc is missing path: {path}: missing value");
    let place = PointerTarget::find(object, path, missing)?;
    let lacks = |_| format!("replace operation does not apply: doc is missing key: {path}: missing value");
    match place.parent {
        Value::Array(list) => {
            let at = parse_index(&place.key, list.len()).map_err(|why| OperationError::Other(lacks(why)))?;
            list[at] = value.clone();
        }
        Value::Object(map) => drop(map.insert(place.key, value.clone())),
        _ => return operation_error(lacks(String::new())),
    }
    Ok(())
}

fn test_value(object: &mut Value, path: &str, value: &Value) -> OperationResult<()> {
    let failed = || Err(OperationError::TestFailed(format!("testing value {path} failed: test failed")));
    if path.is_empty() {
        return if object == value { Ok(()) } else { failed() };
    }
    let missing = format!("test operation does not apply: is missing path: {path}: missing value");
    let place = PointerTarget::find(object, path, missing)?;
    let found = place.get(|why| format!("error in test for path: '{path}': {why}"))?;
    if found == value { Ok(()) } else { failed() }
}

/// A key of an object or an index of a list, present or not.
struct PointerTarget<'a> {
    parent: &'a mut Value,
    key: String,
}

impl<'a> PointerTarget<'a> {
    fn find(object: &'a mut Value, path: &str, missing: String) -> OperationResult<Self> {
        let mut steps: Vec<String> = pointer_tokens(path).collect();
        let Some(key) = steps.pop() else { return operation_error(missing) };
        let mut within = object;
        for step in steps {
            let next = match within {
                Value::Object(map) => map.get_mut(&step),
                Value::Array(list) => match parse_index(&step, list.len()) {
                    Ok(at) => list.get_mut(at),
                    Err(_) => None,
                },
                _ => None,
            };
            match next.filter(|next| next.is_object() || next.is_array()) {
                Some(next) => within = next,
                None => return operation_error(missing),
            }
        }
        Ok(Self { parent: within, key })
    }

    /// Returns the value; null for a missing key of an object.
    fn get(self, words: impl Fn(String) -> String) -> OperationResult<&'a Value> {
        match self.parent {
            Value::Array(list) => {
                let at = parse_index(&self.key, list.len()).map_err(|why| OperationError::Other(words(why)))?;
                Ok(&list[at])
            }
            within => Ok(within.get(&self.key).unwrap_or(&Value::Null)),
        }
    }

    fn add(self, value: Value, words: impl Fn(String) -> String) -> OperationResult<()> {
        match self.parent {
            Value::Array(list) if self.key == "-" => list.push(value),
            Value::Array(list) => {
                if self.key.parse::<i64>().is_err() {
                    let key = &self.key;
                    let why = format!("value was not a proper array index: '{key}': {}", not_an_integer(key));
                    return operation_error(words(why));
                }
                let at = parse_index(&self.key, list.len() + 1).map_err(|why| OperationError::Other(words(why)))?;
                list.insert(at, value);
            }
            Value::Object(map) => drop(map.insert(self.key, value)),
            _ => return operation_error(words("unknown object type".to_owned())),
        }
        Ok(())
    }

    fn remove(self, words: impl Fn(String) -> String) -> OperationResult<Value> {
        match self.parent {
            Value::Array(list) => {
                let at = parse_index(&self.key, list.len()).map_err(|why| OperationError::Other(words(why)))?;
                Ok(list.remove(at))
            }
            Value::Object(map) => match map.remove(&self.key) {
                Some(value) => Ok(value),
                None => {
                    operation_error(words(format!("Unable to remove nonexistent key: {}: missing value", self.key)))
                }
            },
            _ => operation_error(words("unknown object type".to_owned())),
        }
    }
}

/// Parses an index below `length`; negative indexes count from the end.
fn parse_index(key: &str, length: usize) -> Result<usize, String> {
    let at: i64 = key.parse().map_err(|_| not_an_integer(key))?;
    let counted = if at < 0 { at + length as i64 } else { at };
    match usize::try_from(counted) {
        Ok(counted) if counted < length => Ok(counted),
        _ => Err(format!("Unable to access invalid index: {at}: invalid index referenced")),
    }
}

fn not_an_integer(key: &str) -> String {
    format!("strconv.Atoi: parsing {key:?}: invalid syntax")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn check(operation: Value, want: Result<Value, &str>) {
        let mut object = json!({"a": {"b~/c": 1}, "l": [1, 2, 3], "n": null});
        let parsed = PatchOperation::deserialize(&operation).unwrap();
        let outcome = apply_operation(&mut object, &parsed);
        match want {
            Ok(changed) => {
                assert_eq!(outcome, Ok(()), "{operation}");
                for (name, value) in changed.as_object().unwrap() {
                    assert_eq!(object[name], *value, "{operation}");
                }
            }
            Err(why) => {
                let (OperationError::TestFailed(told) | OperationError::Other(told)) = outcome.unwrap_err();
                assert_eq!(told, why, "{operation}");
            }
        }
    }

    #[test]
    fn operations_match_upstream() {
        check(json!({"op": "add", "path": "/l/1", "value": 9}), Ok(json!({"l": [1, 9, 2, 3]})));
        check(json!({"op": "add", "path": "/l/-", "value": 9}), Ok(json!({"l": [1, 2, 3, 9]})));
        check(json!({"op": "add", "path": "/l/-1", "value": 9}), Ok(json!({"l": [1, 2, 3, 9]})));
        check(json!({"op": "replace", "path": "/a/new", "value": 2}), Ok(json!({"a": {"b~/c": 1, "new": 2}})));
        check(json!({"op": "replace", "path": "/l/-1", "value": 9}), Ok(json!({"l": [1, 2, 9]})));
        check(json!({"op": "remove", "path": "/a/b~0~1c"}), Ok(json!({"a": {}})));
        check(json!({"op": "move", "from": "/l/0", "path": "/l/-"}), Ok(json!({"l": [2, 3, 1]})));
        check(json!({"op": "copy", "from": "/a", "path": "/l/0"}), Ok(json!({"l": [{"b~/c": 1}, 1, 2, 3]})));
        check(json!({"op": "test", "path": "/nothing", "value": null}), Ok(json!({})));
    }

    #[test]
    fn operation_errors_have_upstreams_wording() {
        let no = |operation: Value, why: &str| check(operation, Err(why));
        no(
            json!({"op": "add", "path": "/x/y", "value": 1}),
            "add operation does not apply: doc is missing path: \"/x/y\": missing value",
        );
        no(
            json!({"op": "remove", "path": "/a/x"}),
            "error in remove for path: '/a/x': Unable to remove nonexistent key: x: missing value",
        );
        no(
            json!({"op": "replace", "path": "/l/7", "value": 1}),
            "replace operation does not apply: doc is missing key: /l/7: missing value",
        );
        no(
            json!({"op": "add", "path": "/l/7", "value": 1}),
            "error in add for path: '/l/7': Unable to access invalid index: 7: invalid index referenced",
        );
        no(
            json!({"op": "add", "path": "/l/x", "value": 1}),
            "error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
        );
        no(json!({"op": "test", "path": "/l/0", "value": 2}), "testing value /l/0 failed: test failed");
        no(
            json!({"op": "move", "from": "/x/y", "path": "/a"}),
            "move operation does not apply: doc is missing from path: /x/y: missing value",
        );
    }
}
