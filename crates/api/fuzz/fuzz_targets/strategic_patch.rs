//! Applies a strategic merge patch: the first line is the object, the rest the patch.
#![no_main]

use api::{decode, json, patch, schema::schema};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok((object, _)), Ok(patch)) = (json::parse(&data[..end]), patch::parse_patch(&data[end..])) else { return };
    let Some(ty) = schema().type_named("core/v1.Pod") else { return };
    if let Ok(patched) = patch::Kind::Strategic.apply(ty, &object, &patch) {
        let _ = decode::canonical(ty, patched);
    }
});
