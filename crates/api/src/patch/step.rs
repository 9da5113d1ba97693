//! One operation of a JSON patch, with the library's semantics and words that upstream uses: what is replaced need not be
//! there, and indexes may count from the end.

use json_patch::PatchOperation;

use crate::Value;

/// Why an operation does not apply.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// A test failed.
    Test(String),
    /// Something else is wrong.
    Other(String),
}

type Outcome<T> = Result<T, Fault>;

fn other<T>(message: String) -> Outcome<T> {
    Err(Fault::Other(message))
}

/// What a path leads to.
pub fn pointed<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    steps(path).try_fold(object, |within, step| match within {
        Value::Array(list) => list.get(index(&step, list.len()).ok()?),
        within => within.get(&step),
    })
}

fn steps(path: &str) -> impl Iterator<Item = String> {
    path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
}

/// Applies an operation.
pub fn apply(object: &mut Value, operation: &PatchOperation) -> Outcome<()> {
    match operation {
        PatchOperation::Add(add) => {
            let path = add.path.as_str();
            let missing = format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
            let place = Place::find(object, path, missing)?;
            place.add(add.value.clone(), |why| format!("error in add for path: '{path}': {why}"))
        }
        PatchOperation::Remove(remove) => {
            let path = remove.path.as_str();
            let missing = format!("remove operation does not apply: doc is missing path: \"{path}\": missing value");
            let place = Place::find(object, path, missing)?;
            place.remove(|why| format!("error in remove for path: '{path}': {why}")).map(drop)
        }
        PatchOperation::Replace(replace) => self::replace(object, replace.path.as_str(), &replace.value),
        PatchOperation::Move(moved) => {
            let (from, path) = (moved.from.as_str(), moved.path.as_str());
            let missing = format!("move operation does not apply: doc is missing from path: {from}: missing value");
            let place = Place::find(object, from, missing)?;
            let key = place.key.clone();
            let value = place.remove(|why| format!("error in move for path: '{key}': {why}"))?;
            let missing =
                format!("move operation does not apply: doc is missing destination path: {path}: missing value");
            let place = Place::find(object, path, missing)?;
            place.add(value, |why| format!("error in move for path: '{path}': {why}"))
        }
        PatchOperation::Copy(copy) => {
            let (from, path) = (copy.from.as_str(), copy.path.as_str());
            let missing = format!("copy operation does not apply: doc is missing from path: {from}: missing value");
            let place = Place::find(object, from, missing)?;
            let value = place.get(|why| format!("error in copy for from: '{from}': {why}"))?.clone();
            let missing =
                format!("copy operation does not apply: doc is missing destination path: {path}: missing value");
            let place = Place::find(object, path, missing)?;
            place.add(value, |why| format!("error while adding value during copy: {why}"))
        }
        PatchOperation::Test(test) => self::test(object, test.path.as_str(), &test.value),
    }
}

fn replace(object: &mut Value, path: &str, value: &Value) -> Outcome<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return other("replace operation value must be object or array".to_owned());
        }
        *object = value.clone();
        return Ok(());
    }
    let missing = format!("replace operation does not apply: doc is missing path: {path}: missing value");
    let place = Place::find(object, path, missing)?;
    let lacks = |_| format!("replace operation does not apply: doc is missing key: {path}: missing value");
    match place.within {
        Value::Array(list) => {
            let at = index(&place.key, list.len()).map_err(|why| Fault::Other(lacks(why)))?;
            list[at] = value.clone();
        }
        Value::Object(map) => drop(map.insert(place.key, value.clone())),
        _ => return other(lacks(String::new())),
    }
    Ok(())
}

fn test(object: &mut Value, path: &str, value: &Value) -> Outcome<()> {
    let failed = || Err(Fault::Test(format!("testing value {path} failed: test failed")));
    if path.is_empty() {
        return if object == value { Ok(()) } else { failed() };
    }
    let missing = format!("test operation does not apply: is missing path: {path}: missing value");
    let place = Place::find(object, path, missing)?;
    let found = place.get(|why| format!("error in test for path: '{path}': {why}"))?;
    if found == value { Ok(()) } else { failed() }
}

/// A key in an object, or an index in a list, where something may be or not.
struct Place<'a> {
    within: &'a mut Value,
    key: String,
}

impl<'a> Place<'a> {
    fn find(object: &'a mut Value, path: &str, missing: String) -> Outcome<Self> {
        let mut steps: Vec<String> = steps(path).collect();
        let Some(key) = steps.pop() else { return other(missing) };
        let mut within = object;
        for step in steps {
            let next = match within {
                Value::Object(map) => map.get_mut(&step),
                Value::Array(list) => match index(&step, list.len()) {
                    Ok(at) => list.get_mut(at),
                    Err(_) => None,
                },
                _ => None,
            };
            match next.filter(|next| next.is_object() || next.is_array()) {
                Some(next) => within = next,
                None => return other(missing),
            }
        }
        Ok(Self { within, key })
    }

    /// What is there; in an object, null for nothing.
    fn get(self, words: impl Fn(String) -> String) -> Outcome<&'a Value> {
        match self.within {
            Value::Array(list) => {
                let at = index(&self.key, list.len()).map_err(|why| Fault::Other(words(why)))?;
                Ok(&list[at])
            }
            within => Ok(within.get(&self.key).unwrap_or(&Value::Null)),
        }
    }

    fn add(self, value: Value, words: impl Fn(String) -> String) -> Outcome<()> {
        match self.within {
            Value::Array(list) if self.key == "-" => list.push(value),
            Value::Array(list) => {
                if self.key.parse::<i64>().is_err() {
                    let key = &self.key;
                    let why = format!("value was not a proper array index: '{key}': {}", no_number(key));
                    return other(words(why));
                }
                let at = index(&self.key, list.len() + 1).map_err(|why| Fault::Other(words(why)))?;
                list.insert(at, value);
            }
            Value::Object(map) => drop(map.insert(self.key, value)),
            _ => return other(words("unknown object type".to_owned())),
        }
        Ok(())
    }

    fn remove(self, words: impl Fn(String) -> String) -> Outcome<Value> {
        match self.within {
            Value::Array(list) => {
                let at = index(&self.key, list.len()).map_err(|why| Fault::Other(words(why)))?;
                Ok(list.remove(at))
            }
            Value::Object(map) => match map.remove(&self.key) {
                Some(value) => Ok(value),
                None => other(words(format!("Unable to remove nonexistent key: {}: missing value", self.key))),
            },
            _ => other(words("unknown object type".to_owned())),
        }
    }
}

/// An index among so many; negative ones count from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let at: i64 = key.parse().map_err(|_| no_number(key))?;
    let counted = if at < 0 { at + length as i64 } else { at };
    match usize::try_from(counted) {
        Ok(counted) if counted < length => Ok(counted),
        _ => Err(format!("Unable to access invalid index: {at}: invalid index referenced")),
    }
}

fn no_number(key: &str) -> String {
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
        let outcome = apply(&mut object, &parsed);
        match want {
            Ok(changed) => {
                assert_eq!(outcome, Ok(()), "{operation}");
                for (name, value) in changed.as_object().unwrap() {
                    assert_eq!(object[name], *value, "{operation}");
                }
            }
            Err(why) => {
                let (Fault::Test(told) | Fault::Other(told)) = outcome.unwrap_err();
                assert_eq!(told, why, "{operation}");
            }
        }
    }

    #[test]
    fn operations_mean_what_they_mean_upstream() {
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
    fn what_does_not_apply_is_told_in_upstreams_words() {
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
