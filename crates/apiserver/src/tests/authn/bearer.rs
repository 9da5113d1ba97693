//! Bearer tokens in the header and in the subprotocols of a WebSocket.

use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header;

use super::*;

async fn world() -> World {
    let tokens = Some(UserTable::from_token_file("t1,joe,1\n").unwrap());
    World::new(AuthenticationConfig { tokens, ..AuthenticationConfig::default() }).await
}

#[tokio::test]
async fn tokens_are_in_the_header() {
    let world = world().await;
    let nothing = "system:anonymous/ system:unauthenticated";
    for (value, want) in [
        ("Bearer t1", "joe/1 system:authenticated"),
        ("bearer t1", "joe/1 system:authenticated"),
        ("  BEARER t1  ", "joe/1 system:authenticated"),
        ("Bearer t1 more", "joe/1 system:authenticated"),
        ("Bearer t2", "401 invalid bearer token"),
        ("Bearer t1x", "401 invalid bearer token"),
        ("Bearer", nothing),
        ("Bearer ", nothing),
        ("Bearer  t1", nothing),
        ("Token t1", nothing),
        ("t1", nothing),
        ("", nothing),
    ] {
        world.check(&[("authorization", value)], None, want).await;
    }
    let (_, headers) = world.who(&[("authorization", "Bearer t1"), ("accept", "*/*")], None, "/").await;
    assert_eq!(headers.len(), 1, "the token goes no further");
}

#[tokio::test]
async fn tokens_are_among_subprotocols() {
    let world = world().await;
    let token = |text: &str| format!("base64url.bearer.authorization.k8s.io.{}", BASE64_URL_SAFE_NO_PAD.encode(text));
    let nothing = "system:anonymous/ system:unauthenticated";
    for (value, want) in [
        (format!("{}, v4.channel.k8s.io", token("t1")), "joe/1 system:authenticated"),
        (format!("v4.channel.k8s.io,{}", token("t1")), "joe/1 system:authenticated"),
        (format!("{}, v4.channel.k8s.io", token("t2")), "401 invalid bearer token"),
        (token("t1"), "401 missing additional subprotocol"),
        (format!("{}, {}, x", token("t1"), token("t1")), "401 multiple base64.bearer.authorization tokens specified"),
        ("base64url.bearer.authorization.k8s.io.?, x".into(), "401 invalid base64.bearer.authorization token encoding"),
        ("base64url.bearer.authorization.k8s.io._w, x".into(), "401 invalid base64.bearer.authorization token"),
        ("base64url.bearer.authorization.k8s.io., x".into(), nothing),
        ("v4.channel.k8s.io".into(), nothing),
    ] {
        let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", &value)];
        world.check(&upgrade, None, want).await;
        // Without a WebSocket it is a header like any other.
        world.check(&[("sec-websocket-protocol", &value)], None, nothing).await;
    }
    let value = format!("a, {}, b", token("t1"));
    let upgrade = [("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket"), ("sec-websocket-protocol", &value)];
    let (_, headers) = world.who(&upgrade, None, "/").await;
    assert_eq!(headers["sec-websocket-protocol"], "a,b");
}

#[tokio::test]
async fn a_space_too_many_is_told_of() {
    let world = world().await;
    let mut headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer  t1"))]);
    let mut shown = AuthenticationRequest {
        headers: &mut headers,
        peer: None,
        path: "/",
        audiences: &[],
        notes: AuthenticationNotes::default(),
    };
    world.server.authenticator().authenticate_request(&mut shown).await.unwrap();
    let want = "the provided Authorization header contains extra space before the bearer token, and is ignored";
    assert_eq!(shown.notes.warnings, [want]);
}
