//! Applies a patch: the first byte picks the patch type, the rest of the line is the object, then follows the patch.
#![no_main]

use api::{decode, json, patch::PatchType, schema::schema};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, data)) = data.split_first() else { return };
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let types = [PatchType::Json, PatchType::Merge, PatchType::Strategic];
    let patch_type = types[usize::from(*first) % types.len()];
    let (Ok((object, _)), Ok(patch)) = (json::parse(&data[..end]), patch_type.decode_patch(&data[end..])) else { return };
    let Some(ty) = schema().type_named("core/v1.Pod") else { return };
    if let Ok(patched) = patch_type.apply_patch(ty, &object, &patch) {
        let _ = decode::canonicalize(ty, patched);
    }
});
