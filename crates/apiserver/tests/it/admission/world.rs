//! A server with some plug-ins, and requests to it as some user.

use std::sync::Arc;

use bytes::Bytes;
use ferry_apiserver::{
    AdmissionOptions, AuthorizationMode, AuthorizationOptions, LocalService, Server, ServerOptions, User,
};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::fixture;

/// A server of its own for one test.
pub struct World {
    pub server: Server,
    admin: LocalService,
    _dir: Option<tempfile::TempDir>,
}

/// Method, path, body, code, and what is said.
pub type Case<'a> = (&'a str, &'a str, Value, u16, Said<'a>);

/// The body of a response.
pub enum Said<'a> {
    /// Why not.
    Message(&'a str),
    /// Whatever.
    Fine,
}

/// The response of a server.
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

/// Names as flags have them.
pub fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

impl World {
    /// With these plug-ins besides the usual ones, and with the account that a controller would make.
    pub async fn new(enabled: &[&str]) -> Self {
        Self::with(AdmissionOptions::new(&names(enabled), &[]).unwrap()).await
    }

    /// As [`Self::new`], where roles say who may do what.
    pub async fn under_roles(enabled: &[&str]) -> Self {
        let authorization = AuthorizationOptions { modes: vec![AuthorizationMode::Rbac] };
        let admission = AdmissionOptions::new(&names(enabled), &[]).unwrap();
        Self::of(ServerOptions { authorization, admission, ..fixture::everything() }).await
    }

    /// With settings of its own.
    pub async fn with(admission: AdmissionOptions) -> Self {
        Self::of(ServerOptions { admission, ..fixture::everything() }).await
    }

    /// With all settings of its own.
    pub async fn of(settings: ServerOptions) -> Self {
        let (store, dir) = fixture::store().await;
        let world = Self { _dir: Some(dir), ..Self::over(store, settings).await };
        world.create("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
        world
    }

    /// Over a store that is kept elsewhere, as it is.
    pub async fn over(store: Arc<dyn store::Store>, settings: ServerOptions) -> Self {
        let server = Server::with_options(fixture::config(store), settings).await.unwrap();
        Self { admin: server.local_service(fixture::admin()), server, _dir: None }
    }

    /// Sends a request as the administrator.
    pub async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        send(&self.admin, method, path, body).await
    }

    /// Sends a request as another user.
    pub async fn send_as(&self, user: &str, groups: &[&str], method: &str, path: &str, body: &Value) -> Answer {
        let user = User { name: user.into(), groups: names(groups), ..User::default() };
        send(&self.server.local_service(user), method, path, body).await
    }

    /// Creates what must be created.
    pub async fn create(&self, path: &str, body: Value) -> Value {
        let answer = self.send("POST", path, &body).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.body);
        answer.body
    }

    /// Gives a user a role of these rules.
    pub async fn grant(&self, user: &str, rules: Value) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        self.create(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": user}, "rules": rules})).await;
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user});
        let subject = json!({"kind": "User", "name": user});
        let bindings = format!("{rbac}/clusterrolebindings");
        self.create(&bindings, json!({"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]})).await;
        self.settle(&bindings).await;
    }

    /// Sends requests that must be answered so: those that are refused with a message.
    pub async fn table(&self, cases: &[Case<'_>]) {
        for (method, path, body, code, said) in cases {
            let answer = self.send(method, path, body).await;
            let about = format!("{method} {path} {body}: {}", answer.body);
            assert_eq!(answer.code, *code, "{about}");
            match said {
                Said::Message(message) => assert_eq!(answer.body["message"], **message, "{about}"),
                Said::Fine => {}
            }
        }
    }

    /// Waits until the server itself has heard of what was written: a list has what its views have.
    pub async fn settle(&self, path: &str) {
        assert_eq!(self.send("GET", path, &Value::Null).await.code, 200);
    }

    /// A namespace with an account.
    pub async fn namespace(&self, name: &str, labels: Value) {
        self.create("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}})).await;
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        self.create(&accounts, json!({"metadata": {"name": "default"}})).await;
    }

    /// Sends a request that must be answered so; the message counts only for refusals.
    pub async fn check(&self, method: &str, path: &str, body: Value, want: (u16, &str)) -> Answer {
        let answer = self.send(method, path, &body).await;
        answer.is(want, &format!("{method} {path} {body}"));
        answer
    }
}

impl Answer {
    /// Compares code and message.
    pub fn is(&self, (code, message): (u16, &str), about: &str) {
        let said = if self.code < 300 { "" } else { self.body["message"].as_str().unwrap_or_default() };
        assert_eq!((self.code, said), (code, message), "{about}");
    }
}

async fn send(service: &LocalService, method: &str, path: &str, body: &Value) -> Answer {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes: Bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let response = service.clone().oneshot(request.body(Full::new(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().filter_map(|text| text.to_str().ok());
    let warnings = warnings.map(|text| {
        let text = text.trim_start_matches("299 - \"");
        text.strip_suffix('"').unwrap_or(text).replace("\\\"", "\"")
    });
    let warnings = warnings.collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_default(), warnings }
}

/// A pod of one container, with some more in its specification.
pub fn pod(name: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    merge(&mut spec, more);
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A pod whose container has some more.
pub fn pod_with(name: &str, container: Value) -> Value {
    let mut spec = pod(name, json!({}));
    merge(&mut spec["spec"]["containers"][0], container);
    spec
}

/// Puts fields into an object.
pub fn merge(into: &mut Value, more: Value) {
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        into[name] = value;
    }
}
