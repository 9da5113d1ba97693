//! The pause image: one static binary that holds a pod's namespaces and reaps its orphans. (contract only)

/// The name under which the image is loaded and that sandboxes ask for.
pub const IMAGE: &str = "ferry.local/pause:1";

/// The image as a docker archive, for `ctr images import`.
pub fn archive() -> Vec<u8> {
    Vec::new()
}
