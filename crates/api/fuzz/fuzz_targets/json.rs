//! Decodes JSON as any type: the first byte picks the type.
#![no_main]

use api::{
    decode::{self, FieldValidation},
    json,
    schema::schema,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else { return };
    let resources = schema().resources();
    let ty = resources[usize::from(*first) % resources.len()].ty;
    let _ = json::type_meta(text);
    let _ = json::parse(text);
    let _ = decode::decode_json(ty, text, FieldValidation::Strict);
    if let Ok((object, _)) = decode::decode_json(ty, text, FieldValidation::Ignore) {
        let again = decode::canonicalize(ty, object.clone()).expect("a canonical object is of its type").object;
        assert_eq!(again, object);
    }
});
