//! Applies a configuration by one manager, then another: the first line is the object, the rest the configuration.
#![no_main]

use api::{apply, json, schema::schema};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok((live, _)), Ok((config, _))) = (json::parse(&data[..end]), json::parse(&data[end..])) else { return };
    let Some(pods) = schema().resource("", "v1", "pods") else { return };
    let writer = |manager| apply::ApplyRequest { target: apply::ApplyTarget::for_resource(pods, ""), manager, now: "2026-01-01T00:00:00Z" };
    if let Ok(object) = apply::apply_config(&writer("a"), Some(&live), &config, true) {
        let _ = apply::apply_config(&writer("b"), Some(&object), &config, false);
    }
});
