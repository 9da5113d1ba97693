//! Decodes a request body in every format: the first byte picks the resource.
#![no_main]

use api::{
    decode::FieldValidation,
    request_body::{self, BodyFormat},
    schema::schema,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let resources = schema().resources();
    let resource = &resources[usize::from(*first) % resources.len()];
    for format in [BodyFormat::Json, BodyFormat::Yaml, BodyFormat::Protobuf] {
        let _ = request_body::decode_body(resource, format, body, FieldValidation::Strict);
    }
});
