//! `kubectl auth whoami` with every kind of credential.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ferry_tests::{CommandOutput, TestApiServer, eventually, run_command};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair as CertificateKey};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::{Value, json};

/// An OpenID issuer: files that Python's own server serves over TLS.
struct OidcIssuer {
    child: Child,
    url: String,
    pair: EcdsaKeyPair,
}

impl Drop for OidcIssuer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SERVER: &str = "import http.server, ssl, sys
server = http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('server.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()";

impl OidcIssuer {
    fn start(dir: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, CertificateKey::generate().unwrap()).unwrap();
        let key = CertificateKey::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        fs::create_dir_all(dir.join("issuer/.well-known")).unwrap();
        fs::write(dir.join("issuer-ca.crt"), authority.pem()).unwrap();
        fs::write(dir.join("issuer/server.pem"), leaf.pem() + &key.serialize_pem()).unwrap();
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("https://127.0.0.1:{port}");
        let described = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
        fs::write(dir.join("issuer/.well-known/openid-configuration"), described.to_string()).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "x": text(x), "y": text(y)}]});
        fs::write(dir.join("issuer/keys"), keys.to_string()).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", SERVER, &port.to_string()]).current_dir(dir.join("issuer"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let issuer = Self { child, url, pair };
        eventually("the issuer listens", || {
            TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        });
        issuer
    }

    fn token(&self, changed: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims =
            json!({"iss": self.url, "aud": "ferry", "exp": now + 600, "sub": "joe", "groups": ["devs"], "jti": "j-1"});
        claims.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "k"})), part(&claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

struct AuthenticationTest {
    server: TestApiServer,
    issuer: OidcIssuer,
    _dir: tempfile::TempDir,
}

impl AuthenticationTest {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let issuer = OidcIssuer::start(dir.path());
        let file = |name: &str, text: String| {
            fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name).display().to_string()
        };
        let key = CertificateKey::generate().unwrap();
        let tokens = file("tokens", "t-1,ted,7,\"ops,devs\"\n".into());
        let passwords = file("passwords", "secret,pat,8\n".into());
        let policy =
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, omitStages: [RequestReceived]}]\n";
        let flags = [
            format!("--token-auth-file={tokens}"),
            format!("--basic-auth-file={passwords}"),
            format!("--service-account-signing-key-file={}", file("signing.key", key.serialize_pem())),
            format!("--service-account-key-file={}", file("verifying.key", key.public_key_pem())),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--authorization-mode=Node,RBAC".into(),
            format!("--oidc-issuer-url={}", issuer.url),
            "--oidc-client-id=ferry".into(),
            format!("--oidc-ca-file={}", dir.path().join("issuer-ca.crt").display()),
            "--oidc-signing-algs=ES256".into(),
            "--oidc-username-prefix=oidc:".into(),
            "--oidc-groups-claim=groups".into(),
            format!("--audit-policy-file={}", file("policy.yaml", policy.into())),
            format!("--audit-log-path={}", dir.path().join("audit.log").display()),
        ];
        let server = TestApiServer::start_with(&flags);
        Self { server, issuer, _dir: dir }
    }

    /// Runs kubectl without a client certificate.
    fn kubectl(&self, args: &[&str]) -> CommandOutput {
        let mut all = vec!["--kubeconfig", "stranger.kubeconfig"];
        all.extend(args);
        run_command(&mut self.server.prepared("kubectl", &all), None)
    }

    fn whoami(&self, args: &[&str]) -> Value {
        let told = self.kubectl(&[args, &["auth", "whoami", "-o", "json"]].concat()).expect_success();
        serde_json::from_str::<Value>(&told).unwrap()["status"]["userInfo"].take()
    }

    fn audit(&self) -> String {
        fs::read_to_string(self._dir.path().join("audit.log")).unwrap()
    }
}

const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

#[test]
fn every_credential_says_who_i_am() {
    let world = AuthenticationTest::start();
    let kubectl = |line: &str| world.server.kubectl(line).expect_success();

    let own: Value = serde_json::from_str(&kubectl("auth whoami -o json")).unwrap();
    let info = &own["status"]["userInfo"];
    assert_eq!(
        (&info["username"], &info["groups"]),
        (&json!("admin"), &json!(["system:masters", "system:authenticated"]))
    );
    assert!(info["extra"][CREDENTIAL][0].as_str().unwrap().starts_with("X509SHA256="), "{info}");

    let ted = json!({"username": "ted", "uid": "7", "groups": ["ops", "devs", "system:authenticated"]});
    assert_eq!(world.whoami(&["--token=t-1"]), ted);
    let pat = json!({"username": "pat", "uid": "8", "groups": ["system:authenticated"]});
    assert_eq!(world.whoami(&["--username=pat", "--password=secret"]), pat);

    kubectl("create serviceaccount robot");
    let token = kubectl("create token robot");
    let robot = world.whoami(&[&format!("--token={}", token.trim())]);
    assert_eq!(robot["username"], "system:serviceaccount:default:robot");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(robot["groups"], json!(groups));
    assert!(robot["extra"][CREDENTIAL][0].as_str().unwrap().starts_with("JTI="), "{robot}");

    let good = world.issuer.token(&json!({}));
    let joe = eventually("the issuer is known", || {
        let told = world.kubectl(&[&format!("--token={good}"), "auth", "whoami", "-o", "json"]);
        if told.code == 0 { Ok(told.stdout) } else { Err(told.stderr) }
    });
    let joe = serde_json::from_str::<Value>(&joe).unwrap()["status"]["userInfo"].take();
    let want = json!({
        "username": "oidc:joe", "groups": ["devs", "system:authenticated"], "extra": {CREDENTIAL: ["JTI=j-1"]},
    });
    assert_eq!(joe, want);

    let acting = world.server.kubectl("--as=jane --as-group=devs auth whoami -o json").expect_success();
    let acting = serde_json::from_str::<Value>(&acting).unwrap()["status"]["userInfo"].take();
    assert_eq!(acting, json!({"username": "jane", "groups": ["devs", "system:authenticated"]}));

    // Who is known may ask what they may do, and is told what they may not.
    let told = world.kubectl(&["--token=t-1", "get", "namespaces"]).expect_failure();
    let want = "Error from server (Forbidden): namespaces is forbidden: User \"ted\" cannot list resource \"namespaces\" in API \
                group \"\" at the cluster scope";
    assert!(told.contains(want), "{told}");
    // Nobody puts `view` together here: the API server is alone.
    kubectl("create clusterrolebinding devs --clusterrole=system:aggregate-to-view --group=devs");
    for who in ["--token=t-1", &format!("--token={good}")] {
        assert!(world.kubectl(&[who, "get", "namespaces"]).expect_success().contains("kube-system"));
        let list = world.kubectl(&[who, "auth", "can-i", "--list"]).expect_success();
        assert!(list.contains("selfsubjectreviews.authentication.k8s.io") && list.contains("configmaps"), "{list}");
    }
    let told = world.kubectl(&["--username=pat", "--password=secret", "auth", "can-i", "get", "pods"]).expect_failure();
    assert!(told.is_empty() || told.contains("no"), "{told}");

    let refused = "You must be logged in to the server";
    for args in [
        &["--token=t-2"][..],
        &["--username=pat", "--password=wrong"],
        &[&format!("--token={}", world.issuer.token(&json!({"aud": "other"})))],
        &[&format!("--token={}", world.issuer.token(&json!({"exp": 1})))],
    ] {
        let told = world.kubectl(&[args, &["get", "namespaces"]].concat()).expect_failure();
        assert!(told.contains(refused), "{args:?}: {told}");
    }
    // A token ends with its account.
    kubectl("delete serviceaccount robot");
    let other = kubectl("create serviceaccount robot");
    assert!(other.contains("created"));
    eventually("the token of the account that is gone is refused", || {
        let told = world.kubectl(&[&format!("--token={}", token.trim()), "auth", "whoami"]);
        if told.code != 0 && told.stderr.contains(refused) { Ok(()) } else { Err(told.stdout) }
    });

    let audit = world.audit();
    assert!(audit.contains("\"username\":\"ted\"") && audit.contains("\"impersonatedUser\":{"), "{audit}");
    for secret in ["t-1", "secret\"", good.as_str(), token.trim()] {
        assert!(!audit.contains(&format!("Bearer {secret}")) && !audit.contains(&good), "a credential is in the log");
    }
}
