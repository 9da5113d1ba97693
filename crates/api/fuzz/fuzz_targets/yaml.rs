//! YAML: what can be read can be written and read again.
#![no_main]

use api::{json, yaml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(parsed) = yaml::parse(data) else { return };
    let written = yaml::write(&parsed.value);
    // Line breaks that only YAML 1.1 knows are none when they are read.
    if written.len() < json::MAX_SIZE && !written.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        assert_eq!(yaml::parse(written.as_bytes()).map(|parsed| parsed.value), Ok(parsed.value));
    }
});
