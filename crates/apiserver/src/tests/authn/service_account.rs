//! Tokens of service accounts on a server with accounts, pods, secrets and nodes.

use ::authn::{tokens::BAD_SIGNATURE, *};
use api::Value;
use apiserver_core::{
    clock,
    loopback::{self, LoopbackClient, ObjectKey},
};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::json;

use super::World;

const ISSUER: &str = "https://issuer";

/// A server, and the key that its tokens are signed with.
struct Bench {
    world: World,
    pair: EcdsaKeyPair,
}

impl Bench {
    async fn new() -> Self {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random).unwrap();
        let text = BASE64_STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
        let tokens = TokenIssuer::new(ISSUER, &pem).unwrap().with_issuers(["https://old".to_owned()]);
        Self { world: World::with(AuthenticationConfig::default(), Some(tokens)).await, pair }
    }

    async fn create(&self, resource: &str, object: Value) -> Value {
        let resource = loopback::find_resource("", "v1", resource).unwrap();
        let (namespace, name) = (api::meta::namespace(&object).to_owned(), api::meta::name(&object).to_owned());
        let place = ObjectKey { resource, namespace: &namespace, name: &name };
        LoopbackClient::new(&**self.world.server.registry()).create_object(place, &object).await.unwrap()
    }

    async fn delete(&self, resource: &str, name: &str) {
        let place =
            ObjectKey { resource: loopback::find_resource("", "v1", resource).unwrap(), namespace: "default", name };
        assert!(LoopbackClient::new(&**self.world.server.registry()).delete_object(place).await.unwrap());
    }

    async fn account(&self, name: &str) -> String {
        let account = self.create("serviceaccounts", json!({"metadata": {"name": name, "namespace": "default"}})).await;
        api::meta::uid(&account).to_owned()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "ES256"}), claims)
    }

    async fn check(&self, claims: &Value, want: &str) {
        self.world.check_token(&self.token(claims), want).await;
    }
}

/// Claims of a bound token, with some changed.
fn bound(uid: &str, own: Value, more: Value) -> Value {
    let now = clock::now().as_second();
    let mut claims = json!({
        "iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:default:robot", "iat": now, "nbf": now,
        "exp": now + 600, "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}},
    });
    claims.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    let details = claims["kubernetes.io"].as_object_mut().unwrap();
    details.extend(more.as_object().unwrap().clone());
    claims
}

const ROBOT: &str = "system:serviceaccount:default:robot";
const GROUPS: &str = "system:serviceaccounts system:serviceaccounts:default system:authenticated";

#[tokio::test]
async fn bound_tokens_count_while_they_should() {
    let bench = Bench::new().await;
    let uid = bench.account("robot").await;
    let now = clock::now().as_second();
    let own = |more: Value| {
        bound(&uid, json!({"jti": ""}), json!({}))
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .chain(more.as_object().unwrap().clone())
            .collect::<serde_json::Map<_, _>>()
    };
    let robot = format!("{ROBOT}/{uid} {GROUPS}");
    for (changed, want) in [
        (json!({}), robot.clone()),
        (json!({"jti": "x"}), format!("{robot} authentication.kubernetes.io/credential-id=JTI=x")),
        (json!({"aud": ["other", ISSUER]}), robot.clone()),
        (json!({"aud": "https://old"}), robot.clone()),
        (json!({"iss": "https://old"}), robot.clone()),
        (json!({"exp": now - 30}), robot.clone()),
        (json!({"nbf": now + 30, "iat": now + 30}), robot.clone()),
        (json!({"exp": now - 90}), "401 service account token has expired".into()),
        (json!({"nbf": now + 90}), "401 service account token is not valid yet".into()),
        (json!({"iat": now + 90}), "401 service account token is issued in the future".into()),
        (
            json!({"aud": ["x", "y"]}),
            "401 token audiences [\"x\" \"y\"] is invalid for the target audiences [\"https://issuer\" \"https://old\"]"
                .into(),
        ),
        (json!({"iss": "https://elsewhere"}), "401 invalid bearer token".into()),
        (
            json!({"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "gone", "uid": "1"}}}),
            "401 serviceaccounts \"gone\" not found".into(),
        ),
        (
            json!({"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": "1"}}}),
            format!("401 service account UID ({uid}) does not match claim (1)"),
        ),
    ] {
        bench.check(&Value::Object(own(changed)), &want).await;
    }
    let claims = bound(&uid, json!({}), json!({}));
    let unknown = bench.sign(&json!({"alg": "ES256", "kid": "x"}), &claims);
    bench.world.check_token(&unknown, "401 invalid signature, no keys found").await;
    for header in [json!({"alg": "RS256"}), json!({"alg": "none"}), json!({"alg": "ES256", "crit": ["x"]})] {
        bench.world.check_token(&bench.sign(&header, &claims), &format!("401 {BAD_SIGNATURE}")).await;
    }
    let other = Bench::new().await;
    bench.world.check_token(&other.token(&claims), &format!("401 {BAD_SIGNATURE}")).await;
}

#[tokio::test]
async fn a_token_ends_with_its_account() {
    let bench = Bench::new().await;
    let uid = bench.account("robot").await;
    bench.delete("serviceaccounts", "robot").await;
    bench.check(&bound(&uid, json!({}), json!({})), "401 serviceaccounts \"robot\" not found").await;
    // Another of the same name is not the same.
    let new = bench.account("robot").await;
    let want = format!("401 service account UID ({new}) does not match claim ({uid})");
    bench.check(&bound(&uid, json!({}), json!({})), &want).await;
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let bench = Bench::new().await;
    let uid = bench.account("robot").await;
    let pod = json!({"metadata": {"name": "p", "namespace": "default"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    let pod = api::meta::uid(&bench.create("pods", pod).await).to_owned();
    let secret = json!({"metadata": {"name": "s", "namespace": "default"}});
    let secret = api::meta::uid(&bench.create("secrets", secret).await).to_owned();
    let node = api::meta::uid(&bench.create("nodes", json!({"metadata": {"name": "n"}})).await).to_owned();
    let robot = format!("{ROBOT}/{uid} {GROUPS}");
    let key = "authentication.kubernetes.io";
    let check = async |more: Value, want: &str| bench.check(&bound(&uid, json!({"jti": ""}), more), want).await;
    check(json!({"pod": {"name": "p", "uid": pod}}), &format!("{robot} {key}/pod-name=p {key}/pod-uid={pod}")).await;
    let with_node = json!({"pod": {"name": "p", "uid": pod}, "node": {"name": "gone", "uid": "9"}});
    let want = format!("{robot} {key}/node-name=gone {key}/node-uid=9 {key}/pod-name=p {key}/pod-uid={pod}");
    check(with_node, &want).await;
    check(json!({"secret": {"name": "s", "uid": secret}}), &robot).await;
    let want = format!("{robot} {key}/node-name=n {key}/node-uid={node}");
    check(json!({"node": {"name": "n", "uid": node}}), &want).await;
    for (kind, name, uid) in [("pod", "p", &pod), ("secret", "s", &secret), ("node", "n", &node)] {
        let want = format!("401 {kind} UID ({uid}) does not match service account {kind} ref claim (1)");
        check(json!({kind: {"name": name, "uid": "1"}}), &want).await;
        let gone = "401 service account token has been invalidated";
        check(json!({kind: {"name": "gone", "uid": uid}}), gone).await;
    }
    bench.delete("pods", "p").await;
    bench.delete("secrets", "s").await;
    let again = |more: Value| bound(&uid, json!({}), more);
    let gone = "401 service account token has been invalidated";
    bench.check(&again(json!({"pod": {"name": "p", "uid": pod}})), gone).await;
    bench.check(&again(json!({"secret": {"name": "s", "uid": secret}})), gone).await;
}

fn legacy(uid: &str, changed: Value) -> Value {
    let mut claims = json!({
        "iss": "kubernetes/serviceaccount", "sub": ROBOT, "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "s", "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    });
    claims.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
    claims
}

impl Bench {
    /// A secret that holds a token.
    async fn hold(&self, name: &str, token: &str, labels: Value) {
        let data = json!({"token": BASE64_STANDARD.encode(token)});
        let metadata = json!({"name": name, "namespace": "default", "labels": labels});
        self.create("secrets", json!({"metadata": metadata, "data": data})).await;
    }
}

#[tokio::test]
async fn old_tokens_count_while_their_secret_holds_them() {
    let bench = Bench::new().await;
    let uid = bench.account("robot").await;
    let claims = legacy(&uid, json!({}));
    let token = bench.token(&claims);
    bench.hold("s", &token, json!({})).await;
    bench.world.check_token(&token, &format!("{ROBOT}/{uid} {GROUPS}")).await;
    let secret = loopback::find_resource("", "v1", "secrets").unwrap();
    let noted = bench.world.server.registry().read_object(secret, "default", "s").await.unwrap().0;
    let today = clock::now_in_seconds()[..10].to_owned();
    assert_eq!(noted["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"], json!(today));
    let part = "kubernetes.io/serviceaccount";
    for (changed, want) in [
        (json!({"x": 1}), "401 Token does not match server's copy"),
        (json!({"sub": ""}), "401 sub claim is missing"),
        (json!({"sub": "system:serviceaccount:default:other"}), "401 sub claim is invalid"),
        (json!({"sub": "robot"}), "401 sub claim is invalid"),
        (json!({format!("{part}/namespace"): ""}), "401 namespace claim is missing"),
        (json!({format!("{part}/secret.name"): ""}), "401 secretName claim is missing"),
        (json!({format!("{part}/secret.name"): "gone"}), "401 Token has been invalidated"),
        (json!({format!("{part}/service-account.name"): ""}), "401 serviceAccountName claim is missing"),
        (json!({format!("{part}/service-account.uid"): ""}), "401 serviceAccountUID claim is missing"),
        (json!({"iss": "kubernetes"}), "401 invalid bearer token"),
        (
            json!({"aud": ["x"]}),
            "401 token audiences [\"x\"] is invalid for the target audiences [\"https://issuer\" \"https://old\"]",
        ),
    ] {
        bench.check(&legacy(&uid, changed), want).await;
    }
    let marked = legacy(&uid, json!({format!("{part}/secret.name"): "old"}));
    let token = bench.token(&marked);
    bench.hold("old", &token, json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"})).await;
    let want = "401 the token in secret default/old for service account default/robot has been marked invalid. Use tokens \
                from the TokenRequest API or manually created secret-based tokens, or remove the \
                'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token";
    bench.world.check_token(&token, want).await;
    let stale = legacy("1", json!({format!("{part}/secret.name"): "stale"}));
    let token = bench.token(&stale);
    bench.hold("stale", &token, json!({})).await;
    bench.world.check_token(&token, &format!("401 ServiceAccount UID ({uid}) does not match claim (1)")).await;
    bench.delete("secrets", "s").await;
    bench.check(&legacy(&uid, json!({"y": 1})), "401 Token has been invalidated").await;
}
