//! The pod-template-hash: part of a ReplicaSet's name, labels and selector.
//!
//! It differs from upstream's, which hashes a dump of Go memory: ReplicaSets are matched by template, and the hash only
//! has to be stable and to look like upstream's.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Alphabet without vowels and look-alikes, as upstream's `SafeEncodeString`.
const SAFE_ALPHANUMERICS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Hashes a template; `collisions` varies the hash when the name is taken.
pub(super) fn compute_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> Result<String, serde_json::Error> {
    let mut hash = FnvHasher::default();
    hash.write(&serde_json::to_vec(template)?);
    if let Some(collisions) = collisions {
        hash.write(&i64::from(collisions).to_le_bytes());
    }
    let digits = hash.0.to_string();
    Ok(digits
        .bytes()
        .map(|digit| char::from(SAFE_ALPHANUMERICS[usize::from(digit) % SAFE_ALPHANUMERICS.len()]))
        .collect())
}

/// 32-bit FNV-1a.
struct FnvHasher(u32);

impl Default for FnvHasher {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl FnvHasher {
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
    fn fnv_matches_the_reference_value() {
        let mut hash = FnvHasher::default();
        hash.write(b"foobar");
        assert_eq!(hash.0, 0xbf9c_f968);
    }

    #[test]
    fn hash_is_stable_and_depends_on_template_and_collisions() {
        let first = compute_hash(&template("nginx"), None).unwrap();
        assert_eq!(first, "794674bf94");
        assert_eq!(compute_hash(&template("nginx"), None).unwrap(), first);
        assert_ne!(compute_hash(&template("nginx:2"), None).unwrap(), first);
        assert_ne!(compute_hash(&template("nginx"), Some(1)).unwrap(), first);
    }
}
