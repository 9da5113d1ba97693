//! Ensures that a container's image exists, according to its pull policy.

use std::time::Instant;

use k8s_openapi::{
    api::core::v1::{Container, Pod, Secret},
    jiff::Timestamp,
};
use runtime::cri::{
    CriError,
    types::{AuthConfig, Image, PodSandboxConfig},
};

use crate::{
    backoff::KeyedBackoff,
    blocking::run_blocking,
    context::{self, KubeletContext, container_reference},
    image_credentials::ImageKeyring,
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
    let credentials = pull_credentials(kubelet, pod, &full).await;
    let pulled = match pull_with_credentials(kubelet, &full, credentials, sandbox).await {
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

/// Returns the credentials for an image from the pod's `imagePullSecrets` and the node; missing secrets are skipped.
async fn pull_credentials(kubelet: &KubeletContext, pod: &Pod, image: &str) -> Vec<AuthConfig> {
    let mut keyring = ImageKeyring::default();
    let secrets: kube::Api<Secret> = kube::Api::namespaced(kubelet.client.clone(), context::pod_namespace(pod));
    let mut missing = Vec::new();
    for reference in pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten()) {
        match secrets.get_opt(&reference.name).await {
            Ok(Some(secret)) => keyring.add_secret(&secret),
            _ => missing.push(reference.name.clone()),
        }
    }
    if !missing.is_empty() {
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
        kubelet.recorder.record_warning(context::pod_reference(pod), "FailedToRetrieveImagePullSecret", message);
    }
    let root_dir = kubelet.root_dir.clone();
    let keyring = run_blocking(move || {
        keyring.add_node_config(&root_dir);
        keyring
    });
    let mut keyring = keyring.await;
    kubelet.credential_providers.add_credentials(image, &mut keyring).await;
    keyring.lookup(image)
}

/// Pulls with each of the credentials until one works; without any, anonymously.
async fn pull_with_credentials(
    kubelet: &KubeletContext,
    image: &str,
    credentials: Vec<AuthConfig>,
    sandbox: &PodSandboxConfig,
) -> Result<String, CriError> {
    let mut attempts = credentials.into_iter().map(Some);
    let mut next = attempts.next().flatten();
    loop {
        let pulled = kubelet.cri.pull_image(image, next, Some(sandbox.clone())).await;
        match (pulled, attempts.next()) {
            (Err(_), Some(another)) => next = another,
            (pulled, _) => return pulled,
        }
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
    }
}
