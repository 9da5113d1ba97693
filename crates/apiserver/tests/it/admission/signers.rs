//! CertificateApproval, CertificateSigning and ClusterTrustBundleAttest: only who may do it for a signer does.

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::admission::world::World;

const CERTIFICATES: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNERS: [&str; 3] = ["e.com/x", "e.com/y", "f.com/x"];
/// Users, the signers that their roles name, and for whom that is enough.
const USERS: [(&str, &[&str], [bool; 3]); 5] = [
    ("nobody", &[], [false, false, false]),
    ("one", &["e.com/x"], [true, false, false]),
    ("domain", &["e.com/*"], [true, true, false]),
    ("two", &["e.com/y", "f.com/x"], [false, true, true]),
    ("all", &["*"], [true, true, true]),
];

/// A server where users have a verb for signers, and every right to the objects themselves.
async fn world(verb: &str) -> World {
    let world = World::under_roles(&[]).await;
    let objects = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["*"], "resources": ["certificatesigningrequests",
        "certificatesigningrequests/approval", "certificatesigningrequests/status", "clustertrustbundles"]});
    for (user, names, _) in USERS {
        let mut signers = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": [verb]});
        if names != ["*"] {
            signers["resourceNames"] = json!(names);
        }
        let rules = if names.is_empty() { json!([objects]) } else { json!([objects, signers]) };
        world.grant(user, rules).await;
    }
    world
}

async fn check(world: &World, made: impl Fn(&str) -> (&'static str, String, Value), why: &str) {
    for (user, _, allowed) in USERS {
        for (signer, allowed) in SIGNERS.into_iter().zip(allowed) {
            let (method, path, body) = made(signer);
            let answer = world.send_as(user, &["system:authenticated"], method, &path, &body).await;
            let said = answer.body["message"].as_str().unwrap_or_default();
            let refused = format!("is forbidden: {why} {signer:?}");
            let fits = if allowed { answer.code < 300 } else { answer.code == 403 && said.ends_with(&refused) };
            assert!(fits, "{user} {signer}: {} {said}", answer.code);
        }
    }
}

/// A request for each signer.
async fn requests(world: &World) {
    for signer in SIGNERS {
        let pem = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let spec = json!({"request": BASE64_STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"]});
        world.create(CERTIFICATES, json!({"metadata": {"name": named(signer)}, "spec": spec})).await;
    }
}

fn named(signer: &str) -> String {
    signer.replace('/', ".")
}

fn condition(kind: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": "True", "reason": "r", "message": "m"}]}})
}

#[tokio::test]
async fn who_approves_may_approve_for_the_signer() {
    let world = world("approve").await;
    requests(&world).await;
    let approve = |signer: &str| {
        let path = format!("{CERTIFICATES}/{}/approval?dryRun=All", named(signer));
        ("PATCH", path, condition("Approved"))
    };
    check(&world, approve, "user not permitted to approve requests with signerName").await;
}

#[tokio::test]
async fn who_signs_may_sign_for_the_signer() {
    let world = world("sign").await;
    requests(&world).await;
    let sign =
        |signer: &str| ("PATCH", format!("{CERTIFICATES}/{}/status?dryRun=All", named(signer)), condition("Failed"));
    check(&world, sign, "user not permitted to sign requests with signerName").await;
    for (user, _, _) in USERS {
        let path = format!("{CERTIFICATES}/e.com.x/status?dryRun=All");
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        let answer = world.send_as(user, &["system:authenticated"], "PATCH", &path, &labels).await;
        assert_eq!(answer.code, 200, "{user}: nothing is signed");
    }
}

#[tokio::test]
async fn who_vouches_may_attest_for_the_signer() {
    let world = world("attest").await;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let bundles = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    let spec = |signer: &str| json!({"signerName": signer, "trustBundle": root.trim_end()});
    let attest = |signer: &str| {
        let body = json!({"metadata": {"name": format!("{}:a", signer.replace('/', ":"))}, "spec": spec(signer)});
        ("POST", format!("{bundles}?dryRun=All"), body)
    };
    check(&world, attest, "user not permitted to attest for signerName").await;
    let anybodys = json!({"metadata": {"name": "plain"}, "spec": {"trustBundle": root.trim_end()}});
    world.create(bundles, anybodys).await;
    world.create(bundles, json!({"metadata": {"name": "e.com:x:a"}, "spec": spec("e.com/x")})).await;
    for (name, patch, code) in [
        ("plain", json!({"metadata": {"labels": {"a": "b"}}}), 200),
        ("e.com:x:a", json!({"metadata": {"labels": {"a": "b"}}}), 403),
        ("e.com:x:a", json!({"metadata": {"finalizers": ["e.com/f"]}}), 200),
    ] {
        let path = format!("{bundles}/{name}?dryRun=All");
        let answer = world.send_as("nobody", &["system:authenticated"], "PATCH", &path, &patch).await;
        assert_eq!(answer.code, code, "{name} {patch}: {}", answer.body);
    }
}
