//! Text that several kinds print: labels, selectors, lists that are cut.

use crate::{Value, meta, selector};

const NONE: &str = "<none>";

/// `a=1,b=2`, or `<none>`.
pub(super) fn labels(labels: Option<&Value>) -> String {
    let mut pairs: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

/// A selector, or `<none>` for one of everything.
pub(super) fn selector_or_none(value: &Value) -> String {
    Some(selector::text(value)).filter(|text| !text.is_empty()).unwrap_or_else(|| NONE.to_owned())
}

/// Names and images of containers.
pub(super) fn containers(containers: &[Value]) -> [Value; 2] {
    ["name", "image"].map(|field| {
        containers.iter().map(|container| meta::text(container, &[field])).collect::<Vec<_>>().join(",").into()
    })
}

/// The first `max` of a list and how many more there are; `count` is the length where it is more than the list's.
pub(super) fn cut(list: &[String], max: usize, count: usize, separator: &str) -> String {
    let shown = list[..list.len().min(max)].join(separator);
    if list.len() > max { format!("{shown} + {} more...", count - max) } else { shown }
}

/// Three of a list and how many more there are, or `<unset>`.
pub(super) fn some(list: &[String]) -> String {
    Some(cut(list, 3, list.len(), ",")).filter(|text| !text.is_empty()).unwrap_or_else(|| "<unset>".to_owned())
}

/// The texts of a list.
pub(super) fn texts(list: &[Value]) -> Vec<String> {
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// `resource.group`, or the resource alone in the core group.
pub(super) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let list = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(some(&list(5)), "0,1,2 + 2 more...");
        assert_eq!(some(&list(3)), "0,1,2");
        assert_eq!(some(&[]), "<unset>");
    }
}
