//! Makes sure that a container's image is there, as its pull policy says.

use std::time::Instant;

use base64::Engine;
use k8s_openapi::{
    api::core::v1::{Container, Pod, Secret},
    jiff::Timestamp,
};
use runtime::cri::types::{AuthConfig, Image, PodSandboxConfig};

use crate::{
    agent::{self, Agent, container_reference},
    backoff::Backoffs,
    status::Waiting,
};

/// Finds or pulls the image of `container`; says why it is not there otherwise.
pub async fn ensure(
    agent: &Agent,
    pod: &Pod,
    container: &Container,
    backoffs: &Backoffs,
    sandbox: &PodSandboxConfig,
) -> Result<Image, Waiting> {
    let image = container.image.as_deref().unwrap_or_default();
    let about = || container_reference(pod, container);
    if !is_valid(image) {
        let message = format!(
            "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: invalid reference format"
        );
        agent.recorder.warning(about(), "InspectFailed", message.clone());
        agent.recorder.warning(about(), "Failed", "Error: InvalidImageName");
        return Err(Waiting { reason: "InvalidImageName", message });
    }
    let present = agent.cri.image(&with_tag(image)).await.map_err(|error| Waiting {
        reason: "ImageInspectError",
        message: format!("Failed to inspect image {image:?}: {}", error.message()),
    })?;
    // The API server fills it in.
    let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
    match (policy, present) {
        ("Always", _) | ("IfNotPresent", None) => pull(agent, pod, container, backoffs, sandbox).await,
        (_, Some(present)) => {
            let message =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            agent.recorder.normal(about(), "Pulled", message);
            Ok(present)
        }
        (_, None) => {
            let message = format!("Container image {image:?} is not present with pull policy of Never");
            agent.recorder.warning(about(), "ErrImageNeverPull", message.clone());
            agent.recorder.warning(about(), "Failed", "Error: ErrImageNeverPull");
            Err(Waiting { reason: "ErrImageNeverPull", message })
        }
    }
}

async fn pull(
    agent: &Agent,
    pod: &Pod,
    container: &Container,
    backoffs: &Backoffs,
    sandbox: &PodSandboxConfig,
) -> Result<Image, Waiting> {
    let image = container.image.as_deref().unwrap_or_default();
    let about = || container_reference(pod, container);
    let key = format!("pull {image}");
    let now = Timestamp::now();
    if backoffs.updated(&key).is_some_and(|failed| backoffs.waiting(&key, failed, now).is_some()) {
        agent.recorder.normal(about(), "BackOff", format!("Back-off pulling image {image:?}"));
        agent.recorder.warning(about(), "Failed", "Error: ImagePullBackOff");
        let message = format!("Back-off pulling image {image:?}: {}", backoffs.cause(&key));
        return Err(Waiting { reason: "ImagePullBackOff", message });
    }
    agent.recorder.normal(about(), "Pulling", format!("Pulling image {image:?}"));
    let started = Instant::now();
    let full = with_tag(image);
    let auth = credentials(agent, pod, &full).await;
    let pulled = match agent.cri.pull_image(&full, auth, Some(sandbox.clone())).await {
        Ok(reference) => agent.cri.image(&reference).await.map(Option::unwrap_or_default),
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
            agent.recorder.normal(about(), "Pulled", message);
            Ok(pulled)
        }
        Err(error) => {
            let message = error.message();
            backoffs.next_because(&key, now, Timestamp::now(), format!("ErrImagePull: {message}"));
            agent.recorder.warning(about(), "Failed", format!("Failed to pull image {image:?}: {message}"));
            agent.recorder.warning(about(), "Failed", "Error: ErrImagePull");
            Err(Waiting { reason: "ErrImagePull", message })
        }
    }
}

/// The credentials for the image's registry in the pod's `imagePullSecrets`. A missing secret is as good as none.
async fn credentials(agent: &Agent, pod: &Pod, image: &str) -> Option<AuthConfig> {
    let host = registry(image);
    let secrets: kube::Api<Secret> = kube::Api::namespaced(agent.client.clone(), agent::namespace(pod));
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

/// The entry for `host` of a docker configuration.
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

/// The host that an image name points to.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

/// The image with `:latest` if it has neither tag nor digest.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or_default();
    if last.contains(':') || image.contains('@') { image.into() } else { format!("{image}:latest") }
}

/// Whether this can be an image's name.
fn is_valid(image: &str) -> bool {
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
    fn names_get_a_tag_and_are_checked() {
        assert_eq!(with_tag("nginx"), "nginx:latest");
        assert_eq!(with_tag("localhost:5000/a"), "localhost:5000/a:latest");
        assert_eq!(with_tag("a:1"), "a:1");
        for good in [
            "nginx",
            "nginx:1.2",
            "quay.io/a/b_c:v1",
            "localhost:5000/a/b",
            "a@sha256:0123456789abcdef0123456789abcdef",
        ] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "Nginx", "a b", "a/", "a:", "a/B", "a@sha256:xyz", "/a"] {
            assert!(!is_valid(bad), "{bad}");
        }
        assert_eq!(
            [registry("nginx:1"), registry("a/b"), registry("quay.io/a"), registry("localhost:5/a")],
            ["docker.io", "docker.io", "quay.io", "localhost:5"]
        );
    }

    #[test]
    fn credentials_are_found_by_host() {
        let auth = base64::engine::general_purpose::STANDARD.encode("me:secret");
        let config = serde_json::json!({ "auths": { "https://index.docker.io/v1/": { "auth": auth }, "quay.io": { "username": "u", "password": "p" } } });
        let found = |host: &str| find_auth(&config, host).map(|auth| (auth.username, auth.password));
        assert_eq!(found("docker.io"), Some(("me".into(), "secret".into())));
        assert_eq!(found("quay.io"), Some(("u".into(), "p".into())));
        assert_eq!(found("ghcr.io"), None);
    }
}
