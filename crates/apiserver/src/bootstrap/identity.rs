//! The identity lease of this server, renewed while it serves.

use std::time::Duration;

use api::{Value, meta, status::Status};
use apiserver_core::{
    clock, document,
    loopback::{self, LoopbackClient, ObjectKey},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use store::ListOptions;
use tokio_util::sync::CancellationToken;

use crate::{Server, ServerOptions};

const NAMESPACE: &str = "kube-system";
const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const RENEW_PERIOD: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 3600;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Renews the lease until `shutdown`.
pub async fn run_identity_lease(server: &Server, shutdown: &CancellationToken) {
    let settings = &server.shared.options;
    let name = server_identity(&settings.host_name);
    let holder = format!("{name}_{}", uuid::Uuid::new_v4());
    // Without a shared store no other server reads it: renewing every half lease duration is enough.
    let period = if settings.shared_store { RENEW_PERIOD } else { Duration::from_secs(u64::from(LEASE_SECONDS) / 2) };
    loop {
        if let Err(status) = renew_lease(server, &name, &holder).await {
            tracing::warn!(error = status.message, "bootstrap: renewing the identity lease failed, retrying");
        }
        if let Err(status) = delete_expired_leases(server).await {
            tracing::warn!(error = status.message, "bootstrap: deleting expired identity leases failed, retrying");
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(period)).await.is_none() {
            return;
        }
    }
}

async fn renew_lease(server: &Server, name: &str, holder: &str) -> Result<(), Status> {
    let system = LoopbackClient::new(&**server.registry());
    let resource = loopback::find_resource("coordination.k8s.io", "v1", "leases")?;
    let place = ObjectKey { resource, namespace: NAMESPACE, name };
    let spec =
        json!({"holderIdentity": holder, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": clock::now_in_micros()});
    match system.read_object(place).await? {
        None => super::create_missing(system, place, &lease_object(&server.shared.options, name, spec)).await.map(drop),
        Some(mut current) => {
            current["spec"] = spec;
            system.update_object(place, &current).await.map(drop)
        }
    }
}

/// Deletes the leases of servers that stopped renewing them.
async fn delete_expired_leases(server: &Server) -> Result<(), Status> {
    let resource = loopback::find_resource("coordination.k8s.io", "v1", "leases")?;
    let range = ListOptions { prefix: document::storage_key(resource, NAMESPACE, "apiserver-"), ..Default::default() };
    let page = server.registry().store().list(range).await.map_err(Status::internal_error)?;
    for record in &page.records {
        let lease = document::decode_record(record).map_err(Status::internal_error)?;
        let ours = lease["metadata"]["labels"][IDENTITY] == "kube-apiserver";
        if ours && is_expired(&lease) {
            let place = ObjectKey { resource, namespace: NAMESPACE, name: meta::name(&lease) };
            LoopbackClient::new(&**server.registry()).delete_object(place).await?;
        }
    }
    Ok(())
}

fn is_expired(lease: &Value) -> bool {
    let renewed = meta::string_at(lease, &["spec", "renewTime"]).parse::<jiff::Timestamp>();
    let life =
        jiff::SignedDuration::from_secs(meta::integer_at(lease, &["spec", "leaseDurationSeconds"]).clamp(0, 1 << 31));
    renewed.is_ok_and(|renewed| clock::now().duration_since(renewed) > life)
}

fn lease_object(settings: &ServerOptions, name: &str, spec: Value) -> Value {
    let labels = json!({IDENTITY: "kube-apiserver", "kubernetes.io/hostname": settings.host_name});
    let mut metadata = json!({"name": name, "namespace": "kube-system", "labels": labels});
    if let Some((ip, port)) = settings.advertise {
        let address = std::net::SocketAddr::new(ip, port).to_string();
        metadata["annotations"] = json!({"kubernetes.io/peer-advertise-address": address});
    }
    json!({"metadata": metadata, "spec": spec})
}

/// The server identity of a host: base 32 of half a SHA-256, as upstream computes it.
pub fn server_identity(host: &str) -> String {
    let mut hashed = Vec::new();
    for part in [host, "kube-apiserver"] {
        hashed.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        hashed.extend(part.bytes());
    }
    let digest = Sha256::digest(hashed);
    let mut text = String::from("apiserver-");
    let (mut bits, mut count) = (0_u32, 0);
    for byte in &digest[..16] {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(ALPHABET[(bits >> count & 31) as usize] as char);
        }
    }
    text.push(ALPHABET[(bits << (5 - count) & 31) as usize] as char);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_matches_upstream() {
        assert_eq!(server_identity("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    }
}
