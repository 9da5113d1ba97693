//! Network policies: NetworkPolicies, Pods and Namespaces as nf_tables sets and chains of this node.
//!
//! All traffic of pods is routed, so base chains at the forward hook see it. A pod that policies select goes to a chain of
//! its policies, which accepts what they allow and drops the rest; packets of accepted connections pass. While there are
//! policies, a pod of this node whose policies are not yet in force sends and receives nothing. Traffic between a node
//! and its own pods is always allowed.

mod compile;
mod ruleset;
#[cfg(test)]
mod tests;

use std::{hash::RandomState, sync::Arc, time::Duration};

use client::SharedInformer;
use k8s_openapi::api::{core::v1::Namespace, networking::v1::NetworkPolicy};
use kube::{Api, Client, runtime::watcher};
use sys::{
    net::IpCidr,
    nftables::{Family, NftError, TableMonitor, TableName, Transaction},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::views::PodView;
use compile::{PolicyCompiler, PolicyObjects};
use ruleset::PolicyRuleset;

/// Delay before a refused transaction is tried again, and between repairs.
const RETRY: Duration = Duration::from_millis(500);

/// Options of the policy engine.
#[derive(Clone, Debug)]
pub struct NetworkPolicyOptions {
    /// This node.
    pub node_name: String,
    /// The name of the tables.
    pub table_name: String,
    /// The ranges of this node's pods.
    pub node_ranges: Vec<IpCidr>,
}

/// The policy engine cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("cannot observe changes of nf_tables: {0}")]
pub struct PolicyError(std::io::Error);

/// Keeps the node's tables in step with the policies.
pub struct NetworkPolicyEngine {
    compiler: PolicyCompiler,
    table_name: String,
    pods: SharedInformer<PodView>,
    namespaces: SharedInformer<Namespace>,
    policies: SharedInformer<NetworkPolicy>,
    changed: Arc<Notify>,
}

/// The table of one family and what it holds; `None` before it is written or after a failure.
struct PolicyTable {
    table: TableName,
    written: Option<PolicyRuleset>,
}

impl NetworkPolicyEngine {
    /// Starts the informers.
    pub fn new(client: Client, options: NetworkPolicyOptions, shutdown: CancellationToken) -> Self {
        let every = watcher::Config::default;
        let engine = Self {
            compiler: PolicyCompiler {
                node_name: options.node_name,
                node_ranges: options.node_ranges,
                names: RandomState::new(),
            },
            table_name: options.table_name,
            pods: SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            namespaces: SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            policies: SharedInformer::start(Api::all(client), every(), shutdown),
            changed: Arc::default(),
        };
        let notify = |changed: &Arc<Notify>| {
            let changed = changed.clone();
            move || changed.notify_one()
        };
        let on_change = notify(&engine.changed);
        engine.pods.add_event_handler(move |_| on_change());
        let on_change = notify(&engine.changed);
        engine.namespaces.add_event_handler(move |_| on_change());
        let on_change = notify(&engine.changed);
        engine.policies.add_event_handler(move |_| on_change());
        engine
    }

    /// Keeps the tables in step until `shutdown`; they stay afterwards.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), PolicyError> {
        let synced = async {
            self.pods.wait_for_cache_sync().await;
            self.namespaces.wait_for_cache_sync().await;
            self.policies.wait_for_cache_sync().await;
        };
        if shutdown.run_until_cancelled(synced).await.is_none() {
            return Ok(());
        }
        let families = [Some(Family::Ip), sys::net::has_ipv6().then_some(Family::Ip6)];
        let names = families.into_iter().flatten().map(|family| TableName::new(family, &self.table_name));
        let mut tables: Vec<_> = names.map(|table| PolicyTable { table, written: None }).collect();
        let watched = tables.iter().map(|table| table.table.clone()).collect();
        let monitor = TableMonitor::new(watched).map_err(PolicyError)?;
        loop {
            let is_behind = self.sync(&mut tables).await;
            let retry = async {
                match is_behind {
                    true => tokio::time::sleep(RETRY).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = self.changed.notified() => {}
                () = retry => {}
                changed = monitor.wait_for_foreign_change() => {
                    changed.map_err(PolicyError)?;
                    tracing::warn!("network policy: another program changed the table, replacing it");
                    tables.iter_mut().for_each(|table| table.written = None);
                    tokio::time::sleep(RETRY).await;
                    monitor.discard_events();
                }
            }
        }
    }

    /// Compiles and applies; returns whether a table is still behind.
    async fn sync(&self, tables: &mut [PolicyTable]) -> bool {
        let objects = PolicyObjects {
            pods: self.pods.list(),
            namespaces: self.namespaces.list(),
            policies: self.policies.list(),
        };
        let mut is_behind = false;
        for table in tables {
            let ruleset = self.compiler.compile(&objects, table.table.family == Family::Ip);
            let (name, written) = (table.table.clone(), table.written.take());
            let apply = move || apply_ruleset(&name, written, ruleset);
            match tokio::task::spawn_blocking(apply).await {
                Ok(Ok(written)) => table.written = Some(written),
                Ok(Err(error)) => {
                    tracing::error!(%error, "network policy: table was not changed, retrying");
                    is_behind = true;
                }
                Err(error) => {
                    tracing::error!(%error, "network policy: sync failed, retrying");
                    is_behind = true;
                }
            }
        }
        is_behind
    }
}

fn apply_ruleset(
    table: &TableName,
    written: Option<PolicyRuleset>,
    wanted: PolicyRuleset,
) -> Result<PolicyRuleset, NftError> {
    let mut changes = Transaction::new();
    match &written {
        Some(written) => wanted.write_difference(written, table, &mut changes),
        None => wanted.write_table(table, &mut changes),
    }
    changes.commit()?;
    Ok(wanted)
}
