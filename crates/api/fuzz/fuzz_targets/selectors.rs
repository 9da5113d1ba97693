//! Parses label and field selectors.
#![no_main]

use api::{
    schema::schema,
    selector::{FieldSelector, LabelSelector},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let Some(pods) = schema().resource("", "v1", "pods") else { return };
    let object = api::Value::default();
    if let Ok(selector) = LabelSelector::parse(&text) {
        selector.matches(&object);
    }
    if let Ok(selector) = FieldSelector::parse(&text, pods) {
        selector.matches(&object);
    }
});
