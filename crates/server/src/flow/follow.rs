//! Keeps the flow control in step with the objects that describe it, and lends seats from time to time.

use std::time::Duration;

use api::{Value, status::Status};
use futures::StreamExt;
use store::{Range, Revision};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use crate::{Server, document, system};

const LENDING: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Follows the objects until `shutdown`.
pub async fn run(server: Server, shutdown: CancellationToken) {
    let lending = async {
        loop {
            tokio::time::sleep(LENDING).await;
            server.shared.flow.lend();
        }
    };
    let following = async {
        loop {
            if let Err(status) = follow(&server).await {
                tracing::warn!(error = status.message, "cannot follow flow schemas");
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        () = lending => {}
        () = following => {}
        () = shutdown.cancelled() => {}
    }
}

/// Reads all objects once.
pub async fn load(server: &Server) -> Result<Revision, Status> {
    let (levels, revision) = objects(server, "prioritylevelconfigurations").await?;
    let (schemas, _) = objects(server, "flowschemas").await?;
    server.shared.flow.configure(Config::of(&schemas, &levels));
    Ok(revision)
}

/// Reads all objects at every change, until the watch ends.
async fn follow(server: &Server) -> Result<(), Status> {
    let revision = load(server).await?;
    let store = server.registry().store();
    let mut changes = Vec::new();
    for name in ["prioritylevelconfigurations", "flowschemas"] {
        let prefix = document::key(system::resource(GROUP, "v1", name)?, "", "");
        changes.push(store.watch(&prefix, revision).await.map_err(Status::internal)?);
    }
    let mut changes = futures::stream::select_all(changes);
    while let Some(change) = changes.next().await {
        change.map_err(Status::internal)?;
        load(server).await?;
    }
    Ok(())
}

async fn objects(server: &Server, name: &str) -> Result<(Vec<Value>, Revision), Status> {
    let prefix = document::key(system::resource(GROUP, "v1", name)?, "", "");
    let page =
        server.registry().store().list(Range { prefix, ..Default::default() }).await.map_err(Status::internal)?;
    let objects: Result<Vec<Value>, _> = page.records.iter().map(document::object).collect();
    Ok((objects.map_err(Status::internal)?, page.revision))
}
