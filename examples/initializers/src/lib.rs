//! The common part of initializers: it watches a resource with `includeUninitialized=true`, looks at the objects whose list it
//! is first in, changes or rejects them, and takes its name from the list.
//!
//! An initializer is told to the API server by an `InitializerConfiguration`; it needs the right to `initialize` the
//! resource, and that to `initialize` as its own name on `initializers.admissionregistration.k8s.io`.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, pin_mut};
use http::Request;
use kube::{Client, core::WatchEvent};
use serde_json::{Value, json};

/// The pause before a watch that broke off is begun again.
const PAUSE: Duration = Duration::from_millis(500);

/// An initializer: its name, and the path of the resource that it looks at, such as `/api/v1/pods`.
pub struct Initializer {
    /// As in the configuration.
    pub name: &'static str,
    /// All objects of the resource.
    pub path: &'static str,
}

/// The reason for rejecting an object.
#[derive(Debug, PartialEq, Eq)]
pub struct RejectedObject(pub String);

impl Initializer {
    /// Looks at objects until the process ends. `act` changes an object, or says why it must not be.
    pub async fn run(&self, act: impl Fn(&mut Value) -> Result<(), RejectedObject>) -> anyhow::Result<()> {
        let client = Client::try_default().await.context("no cluster to work for")?;
        loop {
            if let Err(error) = self.watch(&client, &act).await {
                eprintln!("{}: {error:#}", self.name);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Looks at what exists and at what changes, until the watch ends.
    async fn watch(
        &self,
        client: &Client,
        act: impl Fn(&mut Value) -> Result<(), RejectedObject>,
    ) -> anyhow::Result<()> {
        let request = Request::get(format!("{}?watch=true&includeUninitialized=true", self.path)).body(Vec::new())?;
        let events = client.request_events::<Value>(request).await?;
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.look(client, object, &act).await;
                }
                WatchEvent::Error(status) => anyhow::bail!("{}", status.message),
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
        }
        Ok(())
    }

    async fn look(&self, client: &Client, object: Value, act: impl Fn(&mut Value) -> Result<(), RejectedObject>) {
        let Some(changed) = self.initialized(object, act) else { return };
        // Somebody else was faster, or the object is gone: then there is another event, or nothing to do.
        if let Err(error) = put(client, self.path, &changed).await {
            eprintln!("{}: {} {error:#}", self.name, changed["metadata"]["name"]);
        }
    }

    /// The object as this initializer leaves it; `None`: it is not its turn.
    pub fn initialized(
        &self,
        mut object: Value,
        act: impl Fn(&mut Value) -> Result<(), RejectedObject>,
    ) -> Option<Value> {
        let list = &object["metadata"]["initializers"];
        if list["pending"][0]["name"] != self.name || list["result"].is_object() {
            return None;
        }
        match act(&mut object) {
            Ok(()) => {
                object["metadata"]["initializers"]["pending"].as_array_mut()?.remove(0);
            }
            Err(RejectedObject(why)) => {
                let result = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": why});
                object["metadata"]["initializers"]["result"] = result;
            }
        }
        Some(object)
    }
}

/// Writes an object back with its resourceVersion, so that concurrent changes are kept.
async fn put(client: &Client, collection: &str, object: &Value) -> anyhow::Result<()> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (version, resource) = collection.rsplit_once('/').context("a collection has a path")?;
    let path = match text("namespace") {
        "" => format!("{collection}/{}", text("name")),
        namespace => format!("{version}/namespaces/{namespace}/{resource}/{}", text("name")),
    };
    let request = Request::put(format!("{path}?includeUninitialized=true")).header("content-type", "application/json");
    client.request::<Value>(request.body(serde_json::to_vec(object)?)?).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Initializer = Initializer { name: "one.example.com", path: "/api/v1/pods" };

    fn object(pending: &[&str]) -> Value {
        let pending: Vec<Value> = pending.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {"name": "x", "initializers": {"pending": pending}}})
    }

    #[test]
    fn an_initializer_acts_in_its_turn() {
        let mark = |object: &mut Value| {
            object["marked"] = true.into();
            Ok(())
        };
        let done = ONE.initialized(object(&["one.example.com", "two.example.com"]), mark).unwrap();
        assert_eq!(done["metadata"]["initializers"]["pending"], json!([{"name": "two.example.com"}]));
        assert_eq!(done["marked"], true);
        assert_eq!(ONE.initialized(object(&["two.example.com", "one.example.com"]), mark), None);
        assert_eq!(ONE.initialized(json!({"metadata": {"name": "x"}}), mark), None);
        let rejected = ONE.initialized(object(&["one.example.com"]), |_| Err(RejectedObject("no".into()))).unwrap();
        assert_eq!(rejected["metadata"]["initializers"]["result"]["message"], "no");
        assert_eq!(ONE.initialized(rejected, mark), None, "nothing more to do");
    }
}
