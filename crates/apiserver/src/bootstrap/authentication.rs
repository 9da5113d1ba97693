//! The config map `extension-apiserver-authentication`, by which extension API servers trust proxied requests, and the
//! start date of legacy token tracking.

use api::{Value, meta, status::Status};
use apiserver_core::{
    clock,
    loopback::{self, LoopbackClient, ObjectKey},
};
use authn::AuthenticationConfig;
use registry::Registry;
use serde_json::{Map, json};

use super::create_missing;

const NAMESPACE: &str = "kube-system";

/// Creates missing config maps and updates the CA bundles.
pub async fn reconcile_config_maps(registry: &Registry, authentication: &AuthenticationConfig) -> Result<(), Status> {
    let (system, resource) = (LoopbackClient::new(registry), loopback::find_resource("", "v1", "configmaps")?);
    let place = ObjectKey { resource, namespace: NAMESPACE, name: "extension-apiserver-authentication" };
    let data = config_map_data(authentication);
    let object = json!({"metadata": {"name": place.name, "namespace": NAMESPACE}, "data": data});
    match system.read_object(place).await? {
        Some(mut current) => {
            let stored = current["data"].as_object().cloned().unwrap_or_default();
            let mut merged = stored.clone();
            merged.extend(data);
            if stored != merged {
                meta::object_mut(&mut current).insert("data".into(), merged.into());
                system.update_object(place, &current).await?;
            }
        }
        None => drop(create_missing(system, place, &object).await?),
    }
    let tracking =
        ObjectKey { resource, namespace: NAMESPACE, name: "kube-apiserver-legacy-service-account-token-tracking" };
    let today = clock::now_in_seconds().chars().take(10).collect::<String>();
    let object = json!({"metadata": {"name": tracking.name, "namespace": NAMESPACE}, "data": {"since": today}});
    create_missing(system, tracking, &object).await.map(drop)
}

fn config_map_data(authentication: &AuthenticationConfig) -> Map<String, Value> {
    let mut data = Map::new();
    let mut put = |key: &str, value: String| drop(data.insert(key.to_owned(), value.into()));
    if let Some(authority) = &authentication.client_ca {
        put("client-ca-file", authority.pem().to_owned());
    }
    if let Some(authority) = &authentication.proxy_ca {
        put("requestheader-client-ca-file", authority.pem().to_owned());
        put("requestheader-allowed-names", json!(authentication.proxy_names).to_string());
        put("requestheader-extra-headers-prefix", json!(authentication.extra_prefixes).to_string());
        put("requestheader-group-headers", json!(authentication.group_headers).to_string());
        put("requestheader-uid-headers", json!(authentication.uid_headers).to_string());
        put("requestheader-username-headers", json!(authentication.user_headers).to_string());
    }
    data
}
