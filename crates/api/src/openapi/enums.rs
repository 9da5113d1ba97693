//! Enumerations of string fields, from `schema/enums.txt`.

use std::collections::HashMap;

const ENUM_TABLE: &str = include_str!("../../schema/enums.txt");

/// A value of an enumeration and its description.
pub(super) type EnumValue = (&'static str, &'static str);

/// The enumerations by type and field, such as `core/v1.Container.imagePullPolicy`.
pub(super) fn parse_enums() -> HashMap<&'static str, Vec<EnumValue>> {
    let lines: Vec<&str> = ENUM_TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let blocks = lines.chunk_by(|_, line| line.starts_with("  "));
    let fields = |block: &[&'static str]| {
        let values: Vec<EnumValue> = block[1..].iter().map(|line| parse_value(line.trim_start())).collect();
        block[0].trim_end_matches(':').split(' ').map(move |field| (field, values.clone())).collect::<Vec<_>>()
    };
    blocks.flat_map(fields).collect()
}

fn parse_value(line: &'static str) -> EnumValue {
    let (value, text) = line.split_once('\t').unwrap_or((line, ""));
    (value.trim_matches('"'), text)
}

/// The paragraph about the values in a field's description.
pub(super) fn describe_values(values: &[EnumValue]) -> String {
    let line = |(value, text): &EnumValue| format!("\n - `{value:?}` {text}").trim_end().to_owned();
    format!("\n\nPossible enum values:{}", values.iter().map(line).collect::<String>())
}
