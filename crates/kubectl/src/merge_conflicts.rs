//! Conflicts between two strategic merge patches: fields that both change, differently.

use api::{
    Value,
    schema::{FieldType, StructField, TypeId, schema},
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";

/// Whether two strategic merge patches of a type change the same field to different values.
pub fn patches_conflict(ty: TypeId, left: &Value, right: &Value) -> bool {
    maps_conflict(Some(ty), left, right)
}

fn maps_conflict(ty: Option<TypeId>, left: &Value, right: &Value) -> bool {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else { return false };
    left.iter().filter(|(key, _)| ![DIRECTIVE, RETAIN_KEYS].contains(&key.as_str())).any(|(key, value)| {
        let field = ty.and_then(|ty| schema().get(ty).field(key));
        right.get(key).is_some_and(|other| values_conflict(field, value, other))
    })
}

fn values_conflict(field: Option<&StructField>, left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(_), Value::Object(_)) => {
            let ty = field.and_then(|field| match field.ty {
                FieldType::Struct(id) => Some(id),
                _ => None,
            });
            // A directive is about the whole map.
            left.get(DIRECTIVE) != right.get(DIRECTIVE)
                || !field.is_some_and(|field| field.patch_strategy.replace) && maps_conflict(ty, left, right)
        }
        (Value::Array(left), Value::Array(right)) => lists_conflict(field, left, right),
        (left, right) => left != right,
    }
}

fn lists_conflict(field: Option<&StructField>, left: &[Value], right: &[Value]) -> bool {
    let are_objects = left.iter().chain(right).all(Value::is_object);
    let ty = field.and_then(|field| field.ty.element_struct());
    let elements_conflict =
        |left: &Value, right: &Value| left.get(DIRECTIVE) != right.get(DIRECTIVE) || maps_conflict(ty, left, right);
    if let Some(merge_key) = field.and_then(|field| field.patch_strategy.merge_key) {
        // Lists of scalars that are merged have no conflicts.
        return are_objects
            && left.iter().any(|item| {
                let mut same = right.iter().filter(|other| other.get(merge_key) == item.get(merge_key));
                same.any(|other| elements_conflict(item, other))
            });
    }
    if left.len() != right.len() {
        return true;
    }
    if are_objects {
        return left.iter().zip(right).any(|(left, right)| elements_conflict(left, right));
    }
    let sorted = |items: &[Value]| {
        let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
        texts.sort();
        texts.dedup();
        texts
    };
    sorted(left) != sorted(right)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(left: Value, right: Value, wanted: bool) {
        let ty = schema().type_named("apps/v1.Deployment").unwrap();
        assert_eq!(patches_conflict(ty, &left, &right), wanted, "{left} {right}");
    }

    #[test]
    fn only_fields_that_both_change_conflict() {
        check(json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 2}}), true);
        check(json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 1, "paused": true}}), false);
        let containers = |name: &str, image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": name, "image": image}]}}}});
        check(containers("a", "x"), containers("a", "y"), true);
        check(containers("a", "x"), containers("b", "y"), false);
        check(json!({"spec": {"strategy": {"$patch": "replace"}}}), json!({"spec": {"strategy": {"type": "x"}}}), true);
    }
}
