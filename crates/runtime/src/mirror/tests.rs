//! Tests over a socket with an image layout in a temporary directory.

use super::*;
use http_body_util::Empty;
use sha2::{Digest, Sha256};

fn digest(content: &str) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Mirror {
    _dir: tempfile::TempDir,
    address: std::net::SocketAddr,
    stop: CancellationToken,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts a mirror that has `docker.io/library/web:1` with this manifest.
async fn mirror(manifest: &str) -> Mirror {
    let dir = tempfile::tempdir().unwrap();
    let blobs = dir.path().join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join(digest(manifest)), manifest).unwrap();
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": OCI_MANIFEST, "digest": format!("sha256:{}", digest(manifest)), "size": manifest.len(),
        "annotations": { REF_NAME_ANNOTATION: "docker.io/library/web:1" } }] });
    std::fs::write(dir.path().join("index.json"), index.to_string()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(serve_mirror(listener, dir.path().into(), stop.clone()));
    Mirror { _dir: dir, address, stop }
}

async fn ask(mirror: &Mirror, method: Method, path: &str) -> (StatusCode, http::HeaderMap, String) {
    let stream = tokio::net::TcpStream::connect(mirror.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request =
        Request::builder().method(method).uri(path).header("Host", "mirror").body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (parts.status, parts.headers, body)
}

#[tokio::test]
async fn loaded_image_is_served_by_tag_and_by_digest() {
    let manifest = r#"{"schemaVersion":2,"layers":[]}"#;
    let mirror = mirror(manifest).await;
    assert_eq!(ask(&mirror, Method::GET, "/v2/").await.0, StatusCode::OK);

    let (status, headers, body) = ask(&mirror, Method::GET, "/v2/library/web/manifests/1?ns=docker.io").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, manifest));
    assert_eq!(headers["content-type"], OCI_MANIFEST);
    assert_eq!(headers["docker-content-digest"], format!("sha256:{}", digest(manifest)));

    let (status, headers, body) = ask(&mirror, Method::HEAD, "/v2/library/web/manifests/1?ns=docker.io").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, ""));
    assert_eq!(headers["content-length"], manifest.len().to_string());

    let by_digest = format!("/v2/library/web/manifests/sha256:{}?ns=docker.io", digest(manifest));
    assert_eq!(ask(&mirror, Method::GET, &by_digest).await.2, manifest);
    let blob = format!("/v2/library/web/blobs/sha256:{}?ns=docker.io", digest(manifest));
    assert_eq!(ask(&mirror, Method::GET, &blob).await.2, manifest);
}

#[tokio::test]
async fn missing_content_is_a_registry_404() {
    let mirror = mirror("{}").await;
    for (path, code) in [
        ("/v2/library/web/manifests/2?ns=docker.io", "MANIFEST_UNKNOWN"),
        ("/v2/library/web/manifests/1?ns=quay.io", "MANIFEST_UNKNOWN"),
        ("/v2/library/web/manifests/1", "MANIFEST_UNKNOWN"),
        ("/v2/library/web/blobs/sha256:../../secret", "DIGEST_INVALID"),
        ("/v2/library/web/blobs/sha256:..%2f..%2fsecret", "DIGEST_INVALID"),
        (&format!("/v2/library/web/blobs/sha256:{}", "0".repeat(64)), "BLOB_UNKNOWN"),
        ("/v2/library/web/tags/list", "NAME_UNKNOWN"),
        ("/secret", "NAME_UNKNOWN"),
    ] {
        let (status, _, body) = ask(&mirror, Method::GET, path).await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, body["errors"][0]["code"].as_str()), (StatusCode::NOT_FOUND, Some(code)), "{path}");
    }
    assert_eq!(ask(&mirror, Method::PUT, "/v2/library/web/manifests/1").await.0, StatusCode::METHOD_NOT_ALLOWED);
}
