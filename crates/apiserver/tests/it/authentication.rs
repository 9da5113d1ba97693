//! Credentials as they come over TLS: who is served, what the others are told, and what reviews say.

use crate::wire::{Client, Wire};
use ferry_apiserver::{AuthenticationConfig, AuthorizationMode, ServerOptions, UserTable};
use serde_json::{Value, json};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn start(anonymous: bool) -> Wire {
    let tokens = Some(UserTable::from_token_file("t-1,ted,7,ops\n").unwrap());
    let passwords = Some(UserTable::from_password_file("secret,pat,8\n").unwrap());
    let authentication = AuthenticationConfig { anonymous, tokens, passwords, ..AuthenticationConfig::default() };
    let mut settings = ServerOptions { authentication, ..ServerOptions::default() };
    settings.authorization.modes = vec![AuthorizationMode::Rbac];
    Wire::start_with(settings).await
}

fn refused() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
        "reason": "Unauthorized", "code": 401,
    })
}

async fn who(client: &Client) -> Value {
    let (code, review) = client.post(WHO, &json!({})).await;
    assert_eq!(code, 201, "{review}");
    review["status"]["userInfo"].clone()
}

#[tokio::test]
async fn whoever_shows_something_wrong_is_told_nothing() {
    let wire = start(true).await;
    for value in ["Bearer t-2", "bearer x.y.z", "Basic cGF0Ondyb25n", "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0."] {
        let client = wire.stranger().await.with("authorization", value);
        for path in ["/api/v1/namespaces", "/healthz", "/none"] {
            // A new connection for each: nobody who is unknown keeps one.
            let client =
                if client.is_closed() { wire.stranger().await.with("authorization", value) } else { client.clone() };
            assert_eq!(client.get(path).await, (401, refused()), "{value} {path}");
        }
    }
}

#[tokio::test]
async fn credentials_say_who() {
    let wire = start(true).await;
    let ted = wire.stranger().await.with("authorization", "Bearer t-1");
    assert_eq!(who(&ted).await, json!({"username": "ted", "uid": "7", "groups": ["ops", "system:authenticated"]}));
    let pat = wire.stranger().await.with("authorization", "Basic cGF0OnNlY3JldA==");
    assert_eq!(who(&pat).await, json!({"username": "pat", "uid": "8", "groups": ["system:authenticated"]}));
    let admin = who(&wire.client().await).await;
    assert_eq!(admin["groups"], json!(["system:masters", "system:authenticated"]));
    let (code, answer) = ted.get("/api/v1/namespaces").await;
    let want = "namespaces is forbidden: User \"ted\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope";
    assert_eq!((code, answer["message"].as_str()), (403, Some(want)));
}

#[tokio::test]
async fn nobody_in_particular_is_served_little_or_nothing() {
    let open = start(true).await;
    let client = open.stranger().await;
    assert_eq!(client.get("/version").await.0, 200);
    let (code, answer) = open.stranger().await.get("/api/v1/namespaces").await;
    let want = "namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in API group \"\" at the \
                cluster scope";
    assert_eq!((code, answer["message"].as_str()), (403, Some(want)));
    let closed = start(false).await;
    assert_eq!(closed.stranger().await.get("/version").await, (401, refused()));
}

#[tokio::test]
async fn a_connection_of_nobody_ends_with_its_request() {
    let wire = start(true).await;
    let nobody = wire.stranger().await;
    assert_eq!(nobody.get("/version").await.0, 200);
    while !nobody.is_closed() {
        tokio::task::yield_now().await;
    }
    let ted = wire.stranger().await.with("authorization", "Bearer t-1");
    for _ in 0..20 {
        assert_eq!(ted.get("/version").await.0, 200);
    }
    assert!(!ted.is_closed());
}

#[tokio::test]
async fn somebody_else_is_acted_as_where_that_is_allowed() {
    let wire = start(true).await;
    let admin = wire.client().await;
    let jane = admin.with("impersonate-user", "jane").with("impersonate-group", "devs");
    assert_eq!(who(&jane).await, json!({"username": "jane", "groups": ["devs", "system:authenticated"]}));
    let ted = wire.stranger().await.with("authorization", "Bearer t-1");
    let (code, answer) = ted.with("impersonate-user", "admin").get("/api/v1/namespaces/default/pods").await;
    let want = "pods is forbidden: User \"ted\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the \
                namespace \"default\"";
    assert_eq!((code, answer["message"].as_str()), (403, Some(want)));
    let (code, answer) = ted.with("impersonate-group", "system:masters").get("/version").await;
    assert_eq!((code, &answer["reason"]), (400, &json!("BadRequest")));
}

/// Returns the status of a TokenReview.
async fn review(client: &Client, token: &str, audiences: Value) -> Value {
    let (code, review) = client.post(REVIEW, &json!({"spec": {"token": token, "audiences": audiences}})).await;
    assert_eq!(code, 201, "{review}");
    review["status"].clone()
}

#[tokio::test]
async fn reviews_know_tokens_and_whom_they_are_for() {
    let wire = start(true).await;
    let admin = wire.client().await;
    let account = "/api/v1/namespaces/default/serviceaccounts";
    let (code, robot) = admin.post(account, &json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(code, 201, "{robot}");
    let token = async |spec: Value| {
        let (code, token) = admin.post(&format!("{account}/robot/token"), &json!({"spec": spec})).await;
        assert_eq!(code, 201, "{token}");
        token["status"]["token"].as_str().unwrap().to_owned()
    };
    let (own, vault) = (token(json!({})).await, token(json!({"audiences": ["vault"]})).await);
    let issuer = "https://kubernetes.default.svc";
    let status = review(&admin, &own, json!([])).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!([issuer])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(status["user"]["uid"], robot["metadata"]["uid"]);
    let status = review(&admin, &vault, json!(["vault", "other"])).await;
    assert_eq!(status["audiences"], json!(["vault"]));
    let want = format!("token audiences [\"vault\"] is invalid for the target audiences [\"{issuer}\"]");
    assert_eq!(review(&admin, &vault, json!([])).await, json!({"user": {}, "error": want}));
    assert_eq!(review(&admin, "x", json!([])).await, json!({"user": {}, "error": "invalid bearer token"}));
    let (code, answer) = admin.post(REVIEW, &json!({"spec": {}})).await;
    let want = "token is required for TokenReview in authentication";
    assert_eq!((code, answer["message"].as_str()), (400, Some(want)));
    // Over the wire the token for somebody else is nobody's.
    let client = wire.stranger().await.with("authorization", &format!("Bearer {vault}"));
    assert_eq!(client.get("/version").await, (401, refused()));
    let client = wire.stranger().await.with("authorization", &format!("Bearer {own}"));
    assert_eq!(who(&client).await["username"], "system:serviceaccount:default:robot");
}
