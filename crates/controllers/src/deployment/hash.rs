//! The pod template's hash: part of a ReplicaSet's name, label and selector.
//!
//! It need not equal upstream's, which hashes a dump of Go memory: ReplicaSets are found by comparing templates, and the
//! hash only has to be the same for the same template, and to look like upstream's.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Letters and digits without vowels and look-alikes, so that no words appear.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a template; `collisions` makes another one when the first is taken.
pub(super) fn of(template: &PodTemplateSpec, collisions: Option<i32>) -> Result<String, serde_json::Error> {
    let mut hash = Fnv32a::default();
    hash.write(&serde_json::to_vec(template)?);
    if let Some(collisions) = collisions {
        hash.write(&i64::from(collisions).to_le_bytes());
    }
    let digits = hash.0.to_string();
    Ok(digits.bytes().map(|digit| char::from(SAFE[usize::from(digit) % SAFE.len()])).collect())
}

/// The 32-bit FNV-1a hash.
struct Fnv32a(u32);

impl Default for Fnv32a {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv32a {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        let spec = json!({"containers": [{"name": "web", "image": image}]});
        serde_json::from_value(json!({"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": spec})).unwrap()
    }

    #[test]
    fn fnv_is_fnv() {
        let mut hash = Fnv32a::default();
        hash.write(b"foobar");
        assert_eq!(hash.0, 0xbf9c_f968);
    }

    #[test]
    fn the_hash_is_stable_and_tells_templates_apart() {
        let first = of(&template("nginx"), None).unwrap();
        assert_eq!(first, "794674bf94");
        assert_eq!(of(&template("nginx"), None).unwrap(), first);
        assert_ne!(of(&template("nginx:2"), None).unwrap(), first);
        assert_ne!(of(&template("nginx"), Some(1)).unwrap(), first);
    }
}
