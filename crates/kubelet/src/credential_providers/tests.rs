//! Credential providers that are shell scripts.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

/// A directory with the program `provider`, which counts its runs in the file `runs` and answers with `response`.
fn directory(response: &Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "#!/bin/sh\ncd {}\necho run >> runs\ncat > request\necho \"$1 $NAME\" > given\ncat <<'END'\n{response}\nEND\n",
        dir.path().display()
    );
    let program = dir.path().join("provider");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn response(key: &str, duration: Option<&str>) -> Value {
    let auth = json!({ "*.example.com": { "username": "me", "password": "secret" } });
    let mut response =
        json!({ "kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": key, "auth": auth });
    if let Some(duration) = duration {
        response["cacheDuration"] = duration.into();
    }
    response
}

fn providers(dir: &Path, default_cache: &str) -> CredentialProviders {
    let config = json!({ "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [
        { "name": "provider", "apiVersion": V1, "matchImages": ["*.example.com", "quay.io/team"],
          "defaultCacheDuration": default_cache, "args": ["word"], "env": [{ "name": "NAME", "value": "value" }] }] });
    let file = dir.join("config.yaml");
    fs::write(&file, config.to_string()).unwrap();
    CredentialProviders::new(dir, &read_credential_providers(&file).unwrap())
}

async fn users(providers: &CredentialProviders, image: &str) -> Vec<String> {
    let mut keyring = ImageKeyring::default();
    providers.add_credentials(image, &mut keyring).await;
    keyring.lookup(image).into_iter().map(|auth| auth.username).collect()
}

fn runs(dir: &tempfile::TempDir) -> usize {
    fs::read_to_string(dir.path().join("runs")).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn program_is_asked_about_images_that_match() {
    let dir = directory(&response("Image", Some("0s")));
    let providers = providers(dir.path(), "1h");
    assert_eq!(users(&providers, "a.example.com/x/y:1").await, ["me"]);
    let request: Value = serde_json::from_slice(&fs::read(dir.path().join("request")).unwrap()).unwrap();
    let expected = json!({ "kind": "CredentialProviderRequest", "apiVersion": V1, "image": "a.example.com/x/y" });
    assert_eq!(request, expected);
    assert_eq!(fs::read_to_string(dir.path().join("given")).unwrap(), "word value\n");
    assert!(users(&providers, "nginx").await.is_empty() && users(&providers, "quay.io/other").await.is_empty());
    assert_eq!(runs(&dir), 1);
    // Nothing is kept for a duration of zero.
    users(&providers, "a.example.com/x/y:1").await;
    assert_eq!(runs(&dir), 2);
}

#[tokio::test]
async fn answers_are_kept_by_image_by_registry_or_for_all() {
    for (key, expected) in [("Image", 3), ("Registry", 2), ("Global", 1)] {
        let dir = directory(&response(key, None));
        let providers = providers(dir.path(), "1h");
        for image in ["a.example.com/x:1", "a.example.com/x:2", "a.example.com/y", "b.example.com/x"] {
            assert_eq!(users(&providers, image).await, ["me"], "{image}");
        }
        assert_eq!(runs(&dir), expected, "{key}");
    }
}

#[tokio::test]
async fn program_that_fails_gives_no_credentials() {
    for bad in [json!("text"), response("Nothing", None), json!({ "apiVersion": "v0" })] {
        let dir = directory(&bad);
        assert!(users(&providers(dir.path(), "0s"), "a.example.com/x").await.is_empty(), "{bad}");
    }
    let dir = directory(&response("Image", None));
    let providers = providers(dir.path(), "0s");
    fs::remove_file(dir.path().join("provider")).unwrap();
    assert!(users(&providers, "a.example.com/x").await.is_empty());
}

#[test]
fn faults_of_the_configuration_name_the_field() {
    let check = |changes: Value, message: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut provider = json!({ "name": "p", "apiVersion": V1, "matchImages": ["a"], "defaultCacheDuration": "0s" });
        provider.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let config = json!({ "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
            "providers": [provider] });
        fs::write(dir.path().join("a.json"), config.to_string()).unwrap();
        let error = read_credential_providers(dir.path()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    check(json!({ "name": "../p" }), "providers.name: Invalid value");
    check(json!({ "apiVersion": "v9" }), "providers.apiVersion: Unsupported value: \"v9\"");
    check(json!({ "matchImages": [] }), "providers.matchImages: Required value");
    check(json!({ "defaultCacheDuration": "-1s" }), "providers.defaultCacheDuration: Invalid value");
    check(json!({ "tokenAttributes": {} }), "providers.tokenAttributes is not supported");
    let empty = tempfile::tempdir().unwrap();
    assert!(read_credential_providers(empty.path()).unwrap_err().to_string().contains("no configuration files"));
}
