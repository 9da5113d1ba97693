//! Hashes of templates and revisions: FNV sums in an alphabet without vowels.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Alphabet without vowels and look-alikes, as upstream's `SafeEncodeString`.
const SAFE_ALPHANUMERICS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// Hashes a template for a name, label or selector; `collisions` varies the hash when the name is taken.
///
/// It differs from upstream's `ComputeHash`, which hashes a dump of Go memory: objects are matched by template, and the
/// hash only has to be stable and to look like upstream's.
pub(crate) fn compute_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> Result<String, serde_json::Error> {
    let mut bytes = serde_json::to_vec(template)?;
    bytes.extend(collisions.into_iter().flat_map(|count| i64::from(count).to_le_bytes()));
    Ok(safe_encode(fnv_1a(&bytes)))
}

/// Hashes the data of a ControllerRevision, as upstream's `HashControllerRevision`.
pub(crate) fn hash_revision_data(data: &str, collisions: Option<i32>) -> String {
    let probe = collisions.map(|count| count.to_string()).unwrap_or_default();
    safe_encode(fnv_1(format!("{data}{probe}").as_bytes()))
}

/// Replaces the decimal digits of a sum by letters.
fn safe_encode(sum: u32) -> String {
    let digits = sum.to_string();
    digits.bytes().map(|digit| char::from(SAFE_ALPHANUMERICS[usize::from(digit) % SAFE_ALPHANUMERICS.len()])).collect()
}

/// 32-bit FNV-1a.
fn fnv_1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// 32-bit FNV-1.
fn fnv_1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(FNV_OFFSET, |hash, byte| hash.wrapping_mul(FNV_PRIME) ^ u32::from(*byte))
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
    fn sums_match_the_reference_values() {
        assert_eq!((fnv_1a(b"foobar"), fnv_1(b"foobar")), (0xbf9c_f968, 0x31f0_b262));
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
