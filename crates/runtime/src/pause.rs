//! The pause image: a static binary that holds a pod's namespaces and reaps orphans.
//!
//! The binary is compiled with this crate and the image is built in memory, so that sandboxes need no registry.

use serde_json::json;
use sha2::{Digest, Sha256};

/// Name of the loaded image, used by sandboxes.
pub const PAUSE_IMAGE: &str = "ferry.local/pause:1";

/// The static program that holds a shared PID namespace.
pub(crate) static PAUSE_BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// Builds the image as a docker archive for `ctr images import`.
pub fn build_image_archive() -> Vec<u8> {
    let layer = build_tar(&[("pause", PAUSE_BINARY, 0o755)]);
    let diff_id = sha256_hex(&layer);
    let config = json!({
        "architecture": oci_architecture(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": { "Entrypoint": ["/pause"], "User": "65535:65535", "WorkingDir": "/" },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff_id}")] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "ferry" }],
    })
    .to_string();
    let config_name = format!("{}.json", sha256_hex(config.as_bytes()));
    let layer_name = format!("{diff_id}.tar");
    let manifest = json!([{ "Config": config_name, "RepoTags": [PAUSE_IMAGE], "Layers": [layer_name] }]).to_string();
    build_tar(&[
        (&layer_name, &layer, 0o644),
        (&config_name, config.as_bytes(), 0o644),
        ("manifest.json", manifest.as_bytes(), 0o644),
    ])
}

/// Returns the architecture as in image manifests.
fn oci_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn sha256_hex(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Builds a reproducible tar of regular files owned by root.
fn build_tar(files: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        tar.append_data(&mut header, name, *content).expect("writing to memory with short names");
    }
    tar.into_inner().expect("writing to memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn archive_manifest_matches_its_contents() {
        let archive = build_image_archive();
        let mut entries = std::collections::HashMap::new();
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            entries.insert(entry.path().unwrap().display().to_string(), content);
        }
        let manifest: serde_json::Value = serde_json::from_slice(&entries["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], PAUSE_IMAGE);
        let config: serde_json::Value =
            serde_json::from_slice(&entries[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        let layer = &entries[manifest[0]["Layers"][0].as_str().unwrap()];
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256_hex(layer)));
    }

    #[test]
    fn binary_is_small_and_static() {
        assert!(PAUSE_BINARY.starts_with(b"\x7fELF"));
        assert!(PAUSE_BINARY.len() < 64 << 10, "{} bytes", PAUSE_BINARY.len());
        assert!(!PAUSE_BINARY.windows(8).any(|window| window == b"ld-linux"), "it asks for a dynamic linker");
    }
}
