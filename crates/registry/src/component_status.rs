//! `componentstatuses`, deprecated and served: whether the other parts of a control plane say that they are well. Nothing is
//! stored; they are asked when somebody asks.

use std::time::Duration;

use api::{
    Value,
    selector::{FieldSelector, LabelSelector},
    status::Status,
};
use apiserver_core::{
    backend::unverified,
    body::RequestBody,
    http_client::{Endpoint, client_tls},
    request::ResourceRequest,
};
use async_trait::async_trait;
use futures::future::join_all;
use serde_json::json;

use crate::{ListOptions, Outcome, Registry, VirtualResource};

/// How long a part may take to answer.
const LIMIT: Duration = Duration::from_secs(20);
/// What the store is called.
const STORE: &str = "etcd-0";

/// A part of a control plane that answers on this machine.
#[derive(Clone, Debug)]
pub struct Component {
    /// Its name.
    pub name: &'static str,
    /// Where it says how it is.
    pub url: String,
}

impl Component {
    /// Those that upstream expects beside an API server.
    pub fn usual() -> Vec<Self> {
        let at = |name, port| Self { name, url: format!("https://127.0.0.1:{port}/healthz") };
        vec![at("controller-manager", 10257), at("scheduler", 10259)]
    }

    /// What it says, or why it does not.
    async fn ask(&self) -> Result<String, String> {
        let failed = |error: String| format!("Get {:?}: {error}", self.url);
        // Whoever answers there is trusted: it is this machine.
        let tls = client_tls(rustls::RootCertStore::empty()).map_err(failed)?;
        let tls = unverified(&tls.with_no_client_auth());
        let endpoint = Endpoint::new(&self.url, tls).map_err(|error| failed(error.to_string()))?;
        let answer = endpoint.get(LIMIT).await.map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status.is_success() { Ok(text) } else { Err(text) }
    }
}

/// Answers requests for them.
pub struct Components {
    /// The components whose health is reported.
    pub components: Vec<Component>,
}

#[async_trait]
impl VirtualResource for Components {
    async fn handle(&self, registry: &Registry, target: &ResourceRequest, _: &RequestBody) -> Result<Outcome, Status> {
        if target.verb == "list" {
            let chosen = chosen(target)?;
            let all = join_all(self.names().map(|name| self.status(registry, name))).await;
            return Ok(Outcome::Objects(all.into_iter().flatten().filter(chosen).collect()));
        }
        match self.status(registry, &target.name).await {
            Some(object) => Ok(Outcome::Object { object, stored: None, code: 200 }),
            None => Err(unknown(&target.name)),
        }
    }
}

/// Which of them a list is about.
fn chosen(target: &ResourceRequest) -> Result<impl Fn(&Value) -> bool, Status> {
    // It says what is wrong with a list.
    ListOptions::of(target)?;
    let text = |name: &str| target.query.get(name).unwrap_or_default();
    let bad = |error: api::selector::SelectorError| Status::bad_request(error.to_string());
    let labels = LabelSelector::parse(text("labelSelector")).map_err(bad)?;
    let fields = FieldSelector::parse(text("fieldSelector"), &target.resource).map_err(bad)?;
    Ok(move |object: &Value| labels.matches(&Value::Null) && fields.matches(object))
}

impl Components {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.components.iter().map(|component| component.name).chain([STORE])
    }

    /// How a part is; `None`: there is no such part.
    async fn status(&self, registry: &Registry, name: &str) -> Option<Value> {
        let said = match self.components.iter().find(|component| component.name == name) {
            Some(component) => component.ask().await,
            None if name == STORE => store(registry).await,
            None => return None,
        };
        let (status, message) = match said {
            Ok(text) => ("True", text),
            Err(why) => ("False", why),
        };
        let condition = json!({"type": "Healthy", "status": status, "message": message});
        Some(
            json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition]}),
        )
    }
}

async fn store(registry: &Registry) -> Result<String, String> {
    match tokio::time::timeout(LIMIT, registry.store().check_health()).await {
        Ok(Ok(())) => Ok("ok".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the store does not answer in time".to_owned()),
    }
}

fn unknown(name: &str) -> Status {
    let details = Some(json!({"name": name, "kind": "componentstatus"}));
    let message = format!("componentstatus {name:?} not found");
    Status { code: 404, reason: "NotFound", message, details, continue_token: None }
}
