//! Ensures that a container's image exists, according to its pull policy.

use std::time::Instant;

use base64::Engine;
use k8s_openapi::{
    api::core::v1::{Container, Pod, Secret},
    jiff::Timestamp,
};
use runtime::cri::types::{AuthConfig, Image, PodSandboxConfig};

use crate::{
    backoff::KeyedBackoff,
    context::{self, KubeletContext, container_reference},
    pod_status::WaitingReason,
};

/// Finds or pulls the image of `container`; otherwise returns the waiting reason.
pub async fn ensure_image_exists(
    kubelet: &KubeletContext,
    pod: &Pod,
    container: &Container,
    backoffs: &KeyedBackoff,
    sandbox: &PodSandboxConfig,
) -> Result<Image, WaitingReason> {
    let image = container.image.as_deref().unwrap_or_default();
    let about = || container_reference(pod, container);
    if !is_valid_reference(image) {
        let message = format!(
            "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: invalid reference format"
        );
        kubelet.recorder.record_warning(about(), "InspectFailed", message.clone());
        kubelet.recorder.record_warning(about(), "Failed", "Error: InvalidImageName");
        return Err(WaitingReason { reason: "InvalidImageName", message });
    }
    let present = kubelet.cri.image_status(&with_default_tag(image)).await.map_err(|error| WaitingReason {
        reason: "ImageInspectError",
        message: format!("Failed to inspect image {image:?}: {}", error.message()),
    })?;
    // Defaulted by the API server.
    let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
    match (policy, present) {
        ("Always", _) | ("IfNotPresent", None) => pull_image(kubelet, pod, container, backoffs, sandbox).await,
        (_, Some(present)) => {
            let message =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            kubelet.recorder.record_normal(about(), "Pulled", message);
            Ok(present)
        }
        (_, None) => {
            let message = format!("Container image {image:?} is not present with pull policy of Never");
            kubelet.recorder.record_warning(about(), "ErrImageNeverPull", message.clone());
            kubelet.recorder.record_warning(about(), "Failed", "Error: ErrImageNeverPull");
            Err(WaitingReason { reason: "ErrImageNeverPull", message })
        }
    }
}

async fn pull_image(
    kubelet: &KubeletContext,
    pod: &Pod,
    container: &Container,
    backoffs: &KeyedBackoff,
    sandbox: &PodSandboxConfig,
) -> Result<Image, WaitingReason> {
    let image = container.image.as_deref().unwrap_or_default();
    let about = || container_reference(pod, container);
    let key = format!("pull {image}");
    let now = Timestamp::now();
    if backoffs.last_update(&key).is_some_and(|failed| backoffs.remaining_delay(&key, failed, now).is_some()) {
        kubelet.recorder.record_normal(about(), "BackOff", format!("Back-off pulling image {image:?}"));
        kubelet.recorder.record_warning(about(), "Failed", "Error: ImagePullBackOff");
        let message = format!("Back-off pulling image {image:?}: {}", backoffs.last_cause(&key));
        return Err(WaitingReason { reason: "ImagePullBackOff", message });
    }
    kubelet.recorder.record_normal(about(), "Pulling", format!("Pulling image {image:?}"));
    let started = Instant::now();
    let full = with_default_tag(image);
    let auth = pull_credentials(kubelet, pod, &full).await;
    let pulled = match kubelet.cri.pull_image(&full, auth, Some(sandbox.clone())).await {
        Ok(reference) => kubelet.cri.image_status(&reference).await.map(Option::unwrap_or_default),
        Err(error) => Err(error),
    };
    match pulled {
        Ok(pulled) => {
            backoffs.forget(&key);
            let took = format!("{}ms", started.elapsed().as_millis());
            let size = pulled.size;
            let message = format!(
                "Successfully pulled image {image:?} in {took} ({took} including waiting). Image size: {size} bytes."
            );
            kubelet.recorder.record_normal(about(), "Pulled", message);
            Ok(pulled)
        }
        Err(error) => {
            let message = error.message();
            backoffs.record_retry_with_cause(&key, now, Timestamp::now(), format!("ErrImagePull: {message}"));
            kubelet.recorder.record_warning(about(), "Failed", format!("Failed to pull image {image:?}: {message}"));
            kubelet.recorder.record_warning(about(), "Failed", "Error: ErrImagePull");
            Err(WaitingReason { reason: "ErrImagePull", message })
        }
    }
}

/// Returns the credentials for the image's registry from the pod's `imagePullSecrets`; missing secrets are skipped.
async fn pull_credentials(kubelet: &KubeletContext, pod: &Pod, image: &str) -> Option<AuthConfig> {
    let host = registry_host(image);
    let secrets: kube::Api<Secret> = kube::Api::namespaced(kubelet.client.clone(), context::pod_namespace(pod));
    for reference in pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten()) {
        let Ok(Some(secret)) = secrets.get_opt(&reference.name).await else { continue };
        let data = secret.data.unwrap_or_default();
        let config = data.get(".dockerconfigjson").and_then(|data| serde_json::from_slice(&data.0).ok());
        if let Some(auth) = config.as_ref().and_then(|config| find_auth(config, host)) {
            return Some(auth);
        }
    }
    None
}

/// Returns the entry for `host` of a docker config.
fn find_auth(config: &serde_json::Value, host: &str) -> Option<AuthConfig> {
    let auths = config.get("auths")?.as_object()?;
    let bare =
        |key: &str| key.trim_start_matches("https://").trim_start_matches("http://").split('/').next() == Some(host);
    let docker = |key: &str| host == "docker.io" && key.contains("index.docker.io");
    let (_, entry) = auths.iter().find(|(key, _)| bare(key) || docker(key))?;
    let text = |name: &str| entry.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_string();
    let decoded = base64::engine::general_purpose::STANDARD.decode(text("auth")).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let (user, password) = decoded.split_once(':').unwrap_or_default();
    let or = |given: String, other: &str| if given.is_empty() { other.to_string() } else { given };
    Some(AuthConfig {
        username: or(text("username"), user),
        password: or(text("password"), password),
        ..Default::default()
    })
}

/// Returns the registry host of an image reference.
fn registry_host(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

/// Appends `:latest` if the reference has neither tag nor digest.
fn with_default_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or_default();
    if last.contains(':') || image.contains('@') { image.into() } else { format!("{image}:latest") }
}

/// Whether the image reference is well-formed.
fn is_valid_reference(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let word = |text: &str, extra: &[char]| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(&c))
    };
    let mut parts = path.split('/');
    let host = parts.next().unwrap_or_default();
    let has_path = path.contains('/');
    let lower = |part: &str| word(part, &['.', '_', '-']) && !part.chars().any(|c| c.is_ascii_uppercase());
    let host_valid = if has_path { word(host, &['.', '-', ':', '_']) } else { lower(host) };
    host_valid
        && parts.all(lower)
        && tag.is_none_or(|tag| tag.len() <= 128 && word(tag, &['.', '_', '-']))
        && digest.is_none_or(|digest| digest.split_once(':').is_some_and(|(_, hex)| hex.len() >= 32 && word(hex, &[])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_get_a_default_tag_and_are_validated() {
        assert_eq!(with_default_tag("nginx"), "nginx:latest");
        assert_eq!(with_default_tag("localhost:5000/a"), "localhost:5000/a:latest");
        assert_eq!(with_default_tag("a:1"), "a:1");
        for good in [
            "nginx",
            "nginx:1.2",
            "quay.io/a/b_c:v1",
            "localhost:5000/a/b",
            "a@sha256:0123456789abcdef0123456789abcdef",
        ] {
            assert!(is_valid_reference(good), "{good}");
        }
        for bad in ["", "Nginx", "a b", "a/", "a:", "a/B", "a@sha256:xyz", "/a"] {
            assert!(!is_valid_reference(bad), "{bad}");
        }
        assert_eq!(
            [
                registry_host("nginx:1"),
                registry_host("a/b"),
                registry_host("quay.io/a"),
                registry_host("localhost:5/a")
            ],
            ["docker.io", "docker.io", "quay.io", "localhost:5"]
        );
    }

    #[test]
    fn credentials_are_selected_by_registry_host() {
        let auth = base64::engine::general_purpose::STANDARD.encode("me:secret");
        let config = serde_json::json!({ "auths": { "https://index.docker.io/v1/": { "auth": auth }, "quay.io": { "username": "u", "password": "p" } } });
        let found = |host: &str| find_auth(&config, host).map(|auth| (auth.username, auth.password));
        assert_eq!(found("docker.io"), Some(("me".into(), "secret".into())));
        assert_eq!(found("quay.io"), Some(("u".into(), "p".into())));
        assert_eq!(found("ghcr.io"), None);
    }
}
