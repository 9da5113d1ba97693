//! A real issuer on loopback: it describes itself, publishes keys and changes them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::Response;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::json;

mod expressions;

use ::authn::*;
use apiserver_core::clock;

use super::{World, listener::Listener};

/// A key that an issuer signs with.
struct Signing {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Signing {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random).unwrap();
        Self { pair, id }
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": text(x), "y": text(y)})
    }

    fn token(&self, algorithm: &str, claims: &Value) -> String {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": algorithm, "kid": self.id})), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

/// An issuer whose keys can be changed.
struct Issuer {
    listener: Listener,
    keys: Arc<Mutex<Vec<Value>>>,
    read: Arc<AtomicUsize>,
}

impl Issuer {
    async fn new(keys: &[&Signing], cache: &'static str) -> Self {
        let keys = Arc::new(Mutex::new(keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()));
        let read = Arc::new(AtomicUsize::new(0));
        let (published, count) = (keys.clone(), read.clone());
        let listener = Listener::start(move |sent| {
            let url = format!("https://{}", sent.headers["host"].to_str().unwrap());
            match sent.path.as_str() {
                "/.well-known/openid-configuration" => {
                    Response::new(json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string())
                }
                "/keys" => {
                    count.fetch_add(1, Ordering::Relaxed);
                    let body = json!({"keys": *published.lock().unwrap()}).to_string();
                    Response::builder().header("cache-control", cache).body(body).unwrap()
                }
                _ => Response::builder().status(404).body(String::new()).unwrap(),
            }
        })
        .await;
        Self { listener, keys, read }
    }

    fn settings(&self) -> JwtIssuer {
        JwtIssuer {
            url: self.listener.url.clone(),
            authority: Some(self.listener.authority.clone()),
            audiences: vec!["client".into()],
            username: ClaimMapping { claim: "sub".into(), prefix: "oidc:".into() },
            groups: Some(ClaimMapping { claim: "groups".into(), prefix: "g:".into() }),
            uid: None,
            algorithms: vec!["ES256".into(), "RS256".into()],
            ..JwtIssuer::default()
        }
    }

    /// Claims that are good, with some of them changed; null takes one away.
    fn claims(&self, changed: Value) -> Value {
        let soon = clock::now().as_second() + 600;
        let mut claims = json!({"iss": self.listener.url, "aud": "client", "exp": soon, "sub": "joe"});
        for (name, value) in changed.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        claims
    }
}

async fn world(issuers: Vec<JwtIssuer>) -> World {
    let world = World::new(AuthenticationConfig { issuers, ..AuthenticationConfig::default() }).await;
    // The issuer is asked in the background.
    let unknown = "x.eyJpc3MiOiJ4In0.x";
    world.check_token(unknown, "401 invalid bearer token").await;
    world
}

/// Asks until the issuer is known.
async fn who(world: &World, token: &str) -> String {
    loop {
        let told = world.who(&[("authorization", &format!("Bearer {token}"))], None, "/").await.0;
        if told != "401 oidc: authenticator not initialized" {
            return told;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn claims_name_users() {
    let key = Signing::new("k1");
    let issuer = Issuer::new(&[&key], "max-age=3600").await;
    let world = world(vec![issuer.settings()]).await;
    let verify = "401 oidc: verify token: ";
    let now = clock::now().as_second();
    for (changed, want) in [
        (json!({}), "oidc:joe/ system:authenticated".to_owned()),
        (json!({"groups": "devs"}), "oidc:joe/ g:devs system:authenticated".into()),
        (json!({"groups": ["a", "b"]}), "oidc:joe/ g:a g:b system:authenticated".into()),
        (json!({"groups": []}), "oidc:joe/ system:authenticated".into()),
        (json!({"aud": ["x", "client"]}), "oidc:joe/ system:authenticated".into()),
        (
            json!({"jti": "id-1"}),
            "oidc:joe/ system:authenticated authentication.kubernetes.io/credential-id=JTI=id-1".into(),
        ),
        (json!({"nbf": now + 30}), "oidc:joe/ system:authenticated".into()),
        (json!({"aud": "other"}), format!("{verify}oidc: expected audience \"client\" got [\"other\"]")),
        (json!({"aud": null}), format!("{verify}oidc: expected audience \"client\" got []")),
        (
            json!({"exp": 1_000_000_000}),
            format!("{verify}oidc: token is expired (Token Expiry: 2001-09-09 01:46:40 +0000 UTC)"),
        ),
        (json!({"exp": null}), format!("{verify}oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)")),
        (json!({"sub": null}), "401 oidc: parse username claims \"sub\": claim not present".into()),
        (
            json!({"sub": 7}),
            "401 oidc: parse username claims \"sub\": json: cannot unmarshal number into Go value of type string"
                .into(),
        ),
        (
            json!({"groups": [1]}),
            "401 oidc: parse groups claim \"groups\": json: cannot unmarshal number into Go value of type string"
                .into(),
        ),
        (
            json!({"groups": {"a": 1}}),
            "401 oidc: parse groups claim \"groups\": json: cannot unmarshal object into Go value of type string"
                .into(),
        ),
        (
            json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": "https://x"}}}),
            "401 oidc: could not expand distributed claims: they are not supported".into(),
        ),
        (json!({"iss": "https://elsewhere"}), "401 invalid bearer token".into()),
    ] {
        let token = key.token("ES256", &issuer.claims(changed.clone()));
        assert_eq!(who(&world, &token).await, want, "{changed}");
    }
    let early = key.token("ES256", &issuer.claims(json!({"nbf": now + 600})));
    assert!(who(&world, &early).await.contains("before the nbf (not before) time: "));
}

#[tokio::test]
async fn settings_say_what_claims_mean() {
    let key = Signing::new("k1");
    let issuer = Issuer::new(&[&key], "max-age=3600").await;
    let settings = JwtIssuer {
        username: ClaimMapping { claim: "email".into(), prefix: String::new() },
        groups: None,
        uid: Some("oid".into()),
        required: vec![("hd".into(), "acme.com".into())],
        audiences: vec!["b".into(), "a".into()],
        ..issuer.settings()
    };
    let world = world(vec![settings]).await;
    let good = json!({"email": "joe@acme.com", "oid": "7", "hd": "acme.com", "aud": "a", "groups": ["x"]});
    let with = |more: Value| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claims
    };
    let joe = "joe@acme.com/7 system:authenticated";
    for (changed, want) in [
        (good.clone(), joe),
        (with(json!({"email_verified": true})), joe),
        (with(json!({"email_verified": false})), "401 oidc: email not verified"),
        (
            with(json!({"email_verified": "yes"})),
            "401 oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool",
        ),
        (with(json!({"email": null})), "401 oidc: parse username claims \"email\": claim not present"),
        (with(json!({"oid": null})), "401 oidc: parse uid claim \"oid\": claim not present"),
        (with(json!({"hd": null})), "401 oidc: required claim hd not present in ID token"),
        (
            with(json!({"hd": "evil.com"})),
            "401 oidc: required claim hd value does not match. Got = evil.com, want = acme.com",
        ),
        (
            with(json!({"hd": 1})),
            "401 oidc: parse claim hd: json: cannot unmarshal number into Go value of type string",
        ),
        (with(json!({"aud": "c"})), "401 oidc: verify token: oidc: expected audience in [\"a\" \"b\"] got [\"c\"]"),
    ] {
        let token = key.token("ES256", &issuer.claims(changed.clone()));
        assert_eq!(who(&world, &token).await, want, "{changed}");
    }
}

#[tokio::test]
async fn only_the_issuers_keys_sign() {
    let (key, thief) = (Signing::new("k1"), Signing::new("k1"));
    let issuer = Issuer::new(&[&key], "max-age=3600").await;
    let world = world(vec![issuer.settings()]).await;
    let claims = issuer.claims(json!({}));
    let verify = "401 oidc: verify token: ";
    let failed = format!("{verify}failed to verify signature: failed to verify id token signature");
    assert_eq!(who(&world, &thief.token("ES256", &claims)).await, failed);
    let unsupported =
        format!("{verify}oidc: id token signed with unsupported algorithm, expected [\"ES256\" \"RS256\"] got ");
    for algorithm in ["HS256", "none", "ES384", ""] {
        let want = format!("{unsupported}{algorithm:?}");
        assert_eq!(who(&world, &key.token(algorithm, &claims)).await, want);
    }
    assert_eq!(who(&world, &key.token("RS256", &claims)).await, failed, "the key is of another kind");
    let good = key.token("ES256", &claims);
    assert_eq!(who(&world, &good).await, "oidc:joe/ system:authenticated");
    let (signed, _) = good.rsplit_once('.').unwrap();
    assert_eq!(who(&world, &format!("{signed}.")).await, failed);
    assert_eq!(who(&world, signed).await, "401 invalid bearer token");
}

#[tokio::test]
async fn keys_are_read_again_when_they_may_have_changed() {
    let (old, new) = (Signing::new("old"), Signing::new("new"));
    // Nothing says how long keys count: they are read for every key that is not known.
    let issuer = Issuer::new(&[&old], "no-store").await;
    let world = world(vec![issuer.settings()]).await;
    let claims = issuer.claims(json!({}));
    let good = "oidc:joe/ system:authenticated";
    assert_eq!(who(&world, &old.token("ES256", &claims)).await, good);
    let read = issuer.read.load(Ordering::Relaxed);
    *issuer.keys.lock().unwrap() = vec![new.jwk()];
    assert_eq!(who(&world, &new.token("ES256", &claims)).await, good);
    assert_eq!(issuer.read.load(Ordering::Relaxed), read + 1);
    assert!(
        who(&world, &old.token("ES256", &issuer.claims(json!({"x": 1})))).await.starts_with("401"),
        "it was taken back"
    );
}

#[tokio::test]
async fn keys_that_count_are_not_read_again() {
    let (old, new) = (Signing::new("old"), Signing::new("new"));
    let issuer = Issuer::new(&[&old], "max-age=3600").await;
    let world = world(vec![issuer.settings()]).await;
    let claims = issuer.claims(json!({}));
    assert_eq!(who(&world, &old.token("ES256", &claims)).await, "oidc:joe/ system:authenticated");
    *issuer.keys.lock().unwrap() = vec![new.jwk()];
    assert!(who(&world, &new.token("ES256", &claims)).await.starts_with("401"));
    assert_eq!(issuer.read.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn issuers_are_told_apart() {
    let (one, two) = (Signing::new("k"), Signing::new("k"));
    let (first, second) = (Issuer::new(&[&one], "no-store").await, Issuer::new(&[&two], "no-store").await);
    let other =
        JwtIssuer { username: ClaimMapping { claim: "sub".into(), prefix: "two:".into() }, ..second.settings() };
    let world = world(vec![first.settings(), other]).await;
    assert_eq!(who(&world, &one.token("ES256", &first.claims(json!({})))).await, "oidc:joe/ system:authenticated");
    assert_eq!(who(&world, &two.token("ES256", &second.claims(json!({})))).await, "two:joe/ system:authenticated");
    assert!(who(&world, &one.token("ES256", &second.claims(json!({})))).await.starts_with("401 oidc: verify token"));
}

mod file {
    use ::authn::AuthenticationFile;

    fn check(more: &str, want: &str) {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{more}");
        let got = AuthenticationFile::parse(&text, &["https://own".to_owned()]).map(|_| ()).map_err(|e| e.to_string());
        let got = got.err().unwrap_or_default();
        assert!(got.contains(want) && got.is_empty() == want.is_empty(), "{more}\n{got}");
    }

    fn jwt(issuer: &str, rest: &str) -> String {
        format!("jwt:\n- issuer: {{{issuer}}}\n  {rest}\n")
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = "url: https://a, audiences: [x]";
        let user = "claimMappings: {username: {claim: sub, prefix: ''}}";
        check(&jwt(good, user), "");
        check("anonymous: {enabled: true, conditions: [{path: /healthz}]}\n", "");
        check("anonymous: {enabled: false, conditions: [{path: /x}]}\n", "anonymous.conditions: Invalid value");
        check("jwts: []\n", "unknown field `jwts`");
        check(&jwt("audiences: [x]", user), "jwt[0].issuer.url: Required value");
        check(&jwt("url: http://a, audiences: [x]", user), "URL scheme must be https");
        check(&jwt("url: 'https://a?b', audiences: [x]", user), "URL must not contain a query");
        check(&jwt("url: 'https://u@a', audiences: [x]", user), "URL must not contain a username or password");
        check(&jwt("url: https://own, audiences: [x]", user), "URL must not overlap with disallowed issuers");
        check(&jwt("url: https://a", user), "jwt[0].issuer.audiences: Required value");
        check(&jwt("url: https://a, audiences: [x, x]", user), "jwt[0].issuer.audiences[1]: Duplicate value: \"x\"");
        check(&jwt("url: https://a, audiences: [x, z]", user), "audienceMatchPolicy must be MatchAny for multiple");
        check(&jwt("url: https://a, discoveryURL: 'https://a/', audiences: [x]", user), "must be different from URL");
        check(&jwt(good, "claimMappings: {username: {claim: sub}}"), "prefix is required when claim is set");
        check(&jwt(good, "claimMappings: {}"), "claimMappings.username: Required value");
        let twice = format!("jwt:\n- issuer: {{{good}}}\n  {user}\n- issuer: {{{good}}}\n  {user}\n");
        check(&twice, "jwt[1].issuer.url: Duplicate value: \"https://a\"");
    }

    #[test]
    fn it_must_be_of_its_kind() {
        let wrong = AuthenticationFile::parse("apiVersion: v1\nkind: Pod\n", &[]).unwrap_err();
        assert_eq!(wrong.to_string(), "no kind \"Pod\" is registered for version \"v1\"");
        assert!(AuthenticationFile::parse("{", &[]).is_err());
    }
}
