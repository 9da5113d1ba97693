//! An API server, a remote one, and what it takes to introduce them.

use std::{sync::Arc, time::Duration};

use ferry_apiserver::{AggregationOptions, AuditOptions, AuthorizationMode, ServerOptions, UserTable};
use http::Method;
use http_body_util::BodyExt;
use rustls::{
    client::ResolvesClientCert,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};
use serde_json::{Value, json};
use store::{Precondition, WriteRequest};

use crate::{
    aggregate::remote::{GROUP, Remote},
    fixture,
    wire::{Call, Client, JSON, Wire},
};

pub const SERVICES: &str = "/api/v1/namespaces/default/services";
pub const APIS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub const NAME: &str = "v1.remote.example.com";

/// An API server, and another one that it leads to.
pub struct World {
    pub wire: Wire,
    pub admin: Client,
    pub remote: Remote,
}

impl World {
    /// With a remote that nobody knows of yet.
    pub async fn new() -> Self {
        Self::audited(AuditOptions::default()).await
    }

    /// With word of what is done.
    pub async fn audited(audit: AuditOptions) -> Self {
        let remote = Remote::start().await;
        let (chain, key) = remote.certificate();
        let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let certified = CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()).unwrap();
        let certificate: Option<Arc<dyn ResolvesClientCert>> = Some(Arc::new(SingleCertAndKey::from(certified)));
        let mut settings = ServerOptions {
            admission: fixture::without_accounts(),
            audit,
            aggregation: AggregationOptions { certificate, ..AggregationOptions::default() },
            ..ServerOptions::default()
        };
        settings.authentication.tokens = Some(UserTable::from_token_file("t-1,ted,7,\"ops,dev\"\n").unwrap());
        settings.authorization.modes = vec![AuthorizationMode::Rbac];
        let wire = Wire::start_with(settings).await;
        let admin = wire.client().await;
        Self { wire, admin, remote }
    }

    /// With a remote that is available.
    pub async fn ready() -> Self {
        Self::new().await.registered().await
    }

    pub async fn registered(self) -> Self {
        self.service().await;
        self.slice().await;
        self.api(json!({})).await;
        self.until("Passed", "all checks passed").await;
        self
    }

    pub async fn post(&self, path: &str, object: Value) -> Value {
        let (code, answer) = self.admin.post(path, &object).await;
        assert_eq!(code, 201, "{answer}");
        answer
    }

    /// Changes a registration.
    pub async fn change(&self, name: &str, spec: Value) {
        let (path, patch) = (format!("{APIS}/{name}"), json!({"spec": spec}));
        let (code, answer) = self.admin.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await;
        assert_eq!(code, 200, "{answer}");
    }

    /// Has the other server answer for a registration.
    pub async fn give(&self, name: &str) {
        let service = json!({"namespace": "default", "name": "remote"});
        self.change(name, json!({"caBundle": self.remote.bundle(), "service": service})).await;
    }

    /// Takes that back.
    pub async fn take_back(&self, name: &str) {
        self.change(name, json!({"caBundle": null, "service": null})).await;
    }

    pub async fn service(&self) {
        let spec = json!({"clusterIP": "None", "ports": [{"name": "https", "port": 443}]});
        self.post(SERVICES, json!({"metadata": {"name": "remote"}, "spec": spec})).await;
    }

    /// Loopback is not an address that a slice may have, so it does not come through the API.
    pub async fn slice(&self) {
        let slice = format!(
            r#"{{"metadata":{{"name":"remote-1","namespace":"default","labels":{{"kubernetes.io/service-name":"remote"}}}},"addressType":"IPv4","endpoints":[{{"addresses":["127.0.0.1"],"conditions":{{"ready":true}}}}],"ports":[{{"name":"https","port":{},"protocol":"TCP"}}],"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice"}}"#,
            self.remote.port
        );
        let key = "/registry/discovery.k8s.io/endpointslices/default/remote-1".into();
        let write = WriteRequest { key, precondition: Precondition::Absent, value: Some(slice.into()), ttl: None };
        self.wire.store.write(write).await.unwrap();
    }

    pub async fn api(&self, more: Value) {
        let mut spec = json!({"group": GROUP, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 20,
            "caBundle": self.remote.bundle(), "service": {"namespace": "default", "name": "remote"}});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        self.post(APIS, json!({"metadata": {"name": NAME}, "spec": spec})).await;
    }

    /// Waits until the condition says so.
    pub async fn until(&self, reason: &str, message: &str) -> Value {
        self.until_of(NAME, reason, message).await
    }

    /// The same of any API service.
    pub async fn until_of(&self, name: &str, reason: &str, message: &str) -> Value {
        let path = format!("{APIS}?watch=1&fieldSelector=metadata.name={name}");
        let call = Call { method: Method::GET, path: &path, content_type: JSON, accept: JSON, body: "".into() };
        let mut events = self.admin.open(call).await.unwrap().into_body();
        let mut last = Value::Null;
        let found = async {
            let mut text = Vec::new();
            while let Some(Ok(frame)) = events.frame().await {
                text.extend_from_slice(frame.data_ref().unwrap());
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).unwrap();
                    last = event["object"]["status"]["conditions"][0].clone();
                    let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
                    if text("reason") == reason && text("message").contains(message) {
                        return;
                    }
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(30), found).await;
        assert!(found.is_ok(), "{reason} {message}: the condition is {last}");
        last
    }

    /// The text of an answer.
    pub async fn text(&self, path: &str) -> (u16, String) {
        let call = Call { method: Method::GET, path, content_type: JSON, accept: JSON, body: "".into() };
        let answer = self.admin.open(call).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }
}
