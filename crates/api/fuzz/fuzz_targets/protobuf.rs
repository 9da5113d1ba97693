//! Decodes protobuf, in an envelope and as any type: the first byte picks the type.
#![no_main]

use api::{protobuf, schema::schema};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = protobuf::decode_object(data);
    let _ = protobuf::decode_watch_event(data);
    let Some((first, message)) = data.split_first() else { return };
    let resources = schema().resources();
    let ty = resources[usize::from(*first) % resources.len()].ty;
    if let Ok(object) = protobuf::decode_as(ty, message) {
        assert_eq!(protobuf::decode_as(ty, &protobuf::encode_as(ty, &object)), Ok(object));
    }
});
