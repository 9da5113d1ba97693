//! Documents that are cut, of wrong types, huge, or no documents at all.

use fastrand::Rng;
use serde_json::{Value, json};

/// Breaks a document.
pub fn break_document(document: &Value, random: &mut Rng) -> Vec<u8> {
    let mut text = document.to_string().into_bytes();
    match random.u8(..10) {
        0 => text.truncate(random.usize(..=text.len())),
        1 => return junk(random),
        2 => return repeated(document, random).to_string().into_bytes(),
        3 | 4 => mutate_bytes(&mut text, random),
        _ => {
            let mut broken = document.clone();
            for _ in 0..random.usize(1..6) {
                replace_value(&mut broken, random);
            }
            return broken.to_string().into_bytes();
        }
    }
    text
}

fn mutate_bytes(text: &mut Vec<u8>, random: &mut Rng) {
    let tokens: [&[u8]; 12] =
        [b"{", b"}", b"[", b"]", b"\"", b",", b":", b"null", b"1e999", b"\\ud800", b"\xff", b"\x1b[2J"];
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=text.len());
        let to = (at + random.usize(..9)).min(text.len());
        let token = tokens[random.usize(..tokens.len())];
        text.splice(at..to, token.iter().copied());
    }
}

fn junk(random: &mut Rng) -> Vec<u8> {
    match random.u8(..11) {
        0 => Vec::new(),
        1 => b"null".to_vec(),
        2 => b"[]".to_vec(),
        3 => b"\"text\"".to_vec(),
        4 => b"-0.5e7".to_vec(),
        5 => b"<html><body>Bad gateway</body></html>".to_vec(),
        6 => vec![b'['; 1 << random.u32(..19)],
        7 => b"{\"items\":".repeat(1 << random.u32(..16)),
        8 => vec![b'a'; 1 << random.u32(..21)],
        9 => (0..random.usize(..4096)).map(|_| random.u8(..)).collect(),
        _ => b"k8s\0\n\x04\n\x00".to_vec(),
    }
}

/// The document with one of its lists repeated.
fn repeated(document: &Value, random: &mut Rng) -> Value {
    let mut document = document.clone();
    for field in ["items", "rows", "resources", "groups"] {
        if let Some(list) = document.get_mut(field).and_then(Value::as_array_mut) {
            *list = list.iter().cycle().take(list.len() * random.usize(..100)).cloned().collect();
        }
    }
    document
}

/// Replaces a random value below a value by one of any type.
fn replace_value(value: &mut Value, random: &mut Rng) {
    let children = match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    if children == 0 || random.u8(..5) == 0 {
        *value = wrong_value(random);
        return;
    }
    let at = random.usize(..children);
    match value {
        Value::Array(items) => replace_value(&mut items[at], random),
        Value::Object(fields) => {
            if let Some((_, child)) = fields.iter_mut().nth(at) {
                replace_value(child, random);
            }
        }
        _ => {}
    }
}

fn wrong_value(random: &mut Rng) -> Value {
    match random.u8(..18) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(i64::MAX),
        4 => json!(u64::MAX),
        5 => json!(i64::MIN),
        6 => json!(1e300),
        7 => json!(""),
        8 => json!("\u{1b}]0;x\u{7}\r\n\t\0"),
        9 => json!("é".repeat(1 << random.u32(..12))),
        10 => json!([]),
        11 => json!({}),
        12 => json!([[], {}, null, "a", 1]),
        13 => json!({"": {"": []}, "a": 1}),
        14 => json!("9999-99-99T99:99:99Z"),
        15 => json!("0001-01-01T00:00:00Z"),
        16 => json!("1e9999Ki"),
        _ => (0..random.usize(..120)).fold(json!(1), |inner, _| json!([inner])),
    }
}
