//! Approval of kubelets' serving certificates, which kube-controller-manager leaves to others.
//!
//! A request is approved when it is for the node that sent it, and every name and address in it is one that the Node object
//! has. Any other one stays pending for an administrator.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use client::{ResourceEvent, SharedInformer};
use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::Node};
use kube::{Api, Client, ResourceExt, api::PostParams, runtime::watcher};
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer,
};

const SIGNER: &str = "kubernetes.io/kubelet-serving";
const RETRY: Duration = Duration::from_secs(1);
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

/// Approves requests until `shutdown`.
pub async fn run_serving_approver(client: Client, shutdown: CancellationToken) {
    let signer = watcher::Config::default().fields(&format!("spec.signerName={SIGNER}"));
    let requests: SharedInformer<CertificateSigningRequest> =
        SharedInformer::start(Api::all(client.clone()), signer, shutdown.clone());
    let nodes: SharedInformer<Node> =
        SharedInformer::start(Api::all(client.clone()), watcher::Config::default(), shutdown.clone());
    let changed: Arc<Notify> = Arc::default();
    let notify = changed.clone();
    requests.add_event_handler(move |_: &ResourceEvent<CertificateSigningRequest>| notify.notify_one());
    let notify = changed.clone();
    // A request may arrive before its Node has addresses.
    nodes.add_event_handler(move |event: &ResourceEvent<Node>| {
        if !matches!(event, ResourceEvent::Updated { old, new } if node_names(old) == node_names(new)) {
            notify.notify_one();
        }
    });
    let work = async {
        requests.wait_for_cache_sync().await;
        nodes.wait_for_cache_sync().await;
        loop {
            let mut failed = false;
            for request in requests.list().iter().filter(|request| is_pending(request)) {
                let Some(node) = sender_of(request).and_then(|name| nodes.get("", name)) else { continue };
                if is_legitimate(request, &node) {
                    failed |= approve(&client, request).await.is_err();
                }
            }
            if failed { tokio::time::sleep(RETRY).await } else { changed.notified().await }
        }
    };
    shutdown.run_until_cancelled(work).await;
}

async fn approve(client: &Client, request: &CertificateSigningRequest) -> kube::Result<()> {
    let mut approved = request.clone();
    let condition = json!({
        "type": "Approved", "status": "True", "reason": "AutoApproved",
        "message": "Auto approving kubelet serving certificate: its names are those of the node.",
    });
    let status = approved.status.get_or_insert_default();
    status.conditions.get_or_insert_default().extend(serde_json::from_value(condition).ok());
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let name = request.name_any();
    match api.replace_subresource("approval", &name, &PostParams::default(), &approved).await {
        Ok(_) => Ok(()),
        Err(error) if client::ApiErrorExt::is_conflict(&error) || client::ApiErrorExt::is_not_found(&error) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, name, "serving certificates: request was not approved, retrying");
            Err(error)
        }
    }
}

fn is_pending(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_none_or(|conditions| conditions.is_empty())
}

/// The name of the node that sent the request.
fn sender_of(request: &CertificateSigningRequest) -> Option<&str> {
    request.spec.username.as_deref()?.strip_prefix("system:node:")
}

/// The names and addresses of a node.
fn node_names(node: &Node) -> BTreeSet<String> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.map(|address| address.address.clone()).chain([node.name_any()]).collect()
}

/// Whether the request is for `node` itself, for serving, with names that the node has.
fn is_legitimate(request: &CertificateSigningRequest, node: &Node) -> bool {
    let name = node.name_any();
    let is_member = request.spec.groups.iter().flatten().any(|group| group == "system:nodes");
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    let is_serving = usages.iter().any(|usage| usage == "server auth");
    let usages_fit = usages.iter().all(|usage| USAGES.contains(&usage.as_str()));
    let names = requested_names(&request.spec.request.0, &name);
    let owned = node_names(node);
    let names_fit = names.is_some_and(|names| !names.is_empty() && names.iter().all(|name| owned.contains(name)));
    sender_of(request) == Some(name.as_str()) && is_member && is_serving && usages_fit && names_fit
}

/// The names and addresses that a request asks for; `None` unless its subject is that of the node.
fn requested_names(pem: &[u8], node_name: &str) -> Option<Vec<String>> {
    let der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(pem).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&der).ok()?;
    request.verify_signature().ok()?;
    let subject = &request.certification_request_info.subject;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().map(str::to_owned).ok();
    let organizations: Vec<_> = subject.iter_organization().filter_map(text).collect();
    let common_names: Vec<_> = subject.iter_common_name().filter_map(text).collect();
    if organizations != ["system:nodes"] || common_names != [format!("system:node:{node_name}")] {
        return None;
    }
    let mut names = Vec::new();
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(alternatives) = extension else { continue };
        for name in &alternatives.general_names {
            names.push(match name {
                GeneralName::DNSName(name) => (*name).to_owned(),
                GeneralName::IPAddress(bytes) => address_text(bytes)?,
                _ => return None,
            });
        }
    }
    Some(names)
}

fn address_text(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(|ip| ip.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn request(sender: &str, subject: &str, ip: &str) -> CertificateSigningRequest {
        let mut params = CertificateParams::new(vec!["node-2".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress(ip.parse().unwrap()));
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, subject);
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut request = CertificateSigningRequest::default();
        request.spec.request.0 = pem.into_bytes();
        request.spec.username = Some(sender.into());
        request.spec.groups = Some(vec!["system:nodes".into()]);
        request.spec.usages = Some(vec!["digital signature".into(), "server auth".into()]);
        request
    }

    fn node() -> Node {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-2" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.2" }] },
        }))
        .unwrap()
    }

    #[test]
    fn node_gets_a_certificate_for_its_own_names_only() {
        let (own, other) = ("system:node:node-2", "system:node:node-3");
        assert!(is_legitimate(&request(own, own, "192.0.2.2"), &node()));
        assert!(!is_legitimate(&request(own, own, "192.0.2.3"), &node()), "another host's address");
        assert!(!is_legitimate(&request(own, other, "192.0.2.2"), &node()), "another node's subject");
        assert!(!is_legitimate(&request(other, own, "192.0.2.2"), &node()), "another sender");
        let mut client = request(own, own, "192.0.2.2");
        client.spec.usages = Some(vec!["server auth".into(), "client auth".into()]);
        assert!(!is_legitimate(&client, &node()), "a client certificate");
        client.spec.request.0 = b"not a request".to_vec();
        assert!(!is_legitimate(&client, &node()));
    }
}
