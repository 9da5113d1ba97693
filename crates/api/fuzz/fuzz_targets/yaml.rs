//! Parses YAML and round-trips the result.
#![no_main]

use api::{json, yaml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(parsed) = yaml::parse(data) else { return };
    let written = yaml::write(&parsed.value);
    // Line breaks of YAML 1.1 only are normalized.
    if written.len() < json::MAX_SIZE && !written.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        assert_eq!(yaml::parse(written.as_bytes()).map(|parsed| parsed.value), Ok(parsed.value));
    }
});
