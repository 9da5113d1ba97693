//! CertificateSubjectRestriction; and what NodeRestriction says of nodes' requests.

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use crate::admission::world::World;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All";

fn request(signer: &str, name: &str, organizations: &[&str]) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    let key = KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    json!({"metadata": {"name": "x"}, "spec": {"request": BASE64_STANDARD.encode(pem), "signerName": signer,
        "usages": ["digital signature", "client auth"]}})
}

#[tokio::test]
async fn nobody_asks_to_be_everybodys_master() {
    let world = World::new(&[]).await;
    let client = "kubernetes.io/kube-apiserver-client";
    let why = "certificatesigningrequests.certificates.k8s.io \"x\" is forbidden: use of kubernetes.io/kube-apiserver-client signer \
               with system:masters group is not allowed";
    for (signer, groups, want) in [
        (client, &[][..], (201, "")),
        (client, &["devs"][..], (201, "")),
        (client, &["system:masters"][..], (403, why)),
        ("e.com/x", &["system:masters"][..], (201, "")),
        (client, &["system:nodes"][..], (201, "")),
        (client, &["system:master"][..], (201, "")),
        (client, &["System:masters"][..], (201, "")),
        (client, &["system:masters "][..], (201, "")),
        (client, &["masters"][..], (201, "")),
        ("e.com/x", &[][..], (201, "")),
        ("e.com/y", &["system:masters"][..], (201, "")),
        ("kubernetes.io/kube-apiserver-client-kubelet", &["system:masters"][..], (201, "")),
        ("kubernetes.io/kube-apiserver-client-x", &["system:masters"][..], (201, "")),
    ] {
        world.check("POST", REQUESTS, request(signer, "jane", groups), want).await;
    }
}

#[tokio::test]
async fn nodes_ask_for_their_own_certificates() {
    let world = World::new(&["NodeRestriction"]).await;
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    let groups = ["system:nodes", "system:masters"];
    for (name, want) in [
        ("system:node:n1", (201, "")),
        (
            "system:node:n2",
            (
                403,
                "certificatesigningrequests.certificates.k8s.io \"x\" is forbidden: can only create a node CSR with \
                 CN=system:node:n1",
            ),
        ),
    ] {
        let body = request(kubelet, name, &["system:nodes"]);
        world.send_as("system:node:n1", &groups, "POST", REQUESTS, &body).await.is(want, name);
    }
}
