//! Which store keeps the cluster's objects: the embedded one, or an etcd that others run; encrypted or not.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use store::{DelayedSync, EmbeddedStore, EncryptedStore, EncryptionConfig, EtcdOptions, EtcdStore, KeyLayout, Store};

/// The resources whose writes may lag, and where they are: losing the last seconds of others would undo what a client was
/// told is done.
const MAY_LAG: [(&str, &str); 2] =
    [("leases", "/registry/coordination.k8s.io/leases/"), ("events", "/registry/events/")];
/// The longest that a write may lag.
const LONGEST_LAG: u64 = 60;

/// Flags of the connection to etcd.
#[derive(Clone, Debug, Default, Args)]
pub struct EtcdArguments {
    /// CA certificate of the etcd servers
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// The certificate to show etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,

    /// Prefix of all keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
}

impl EtcdArguments {
    /// TLS files for these servers.
    pub fn options(&self, servers: Vec<String>) -> EtcdOptions {
        EtcdOptions {
            servers,
            layout: self.layout(),
            ca: self.etcd_cafile.clone(),
            identity: self.etcd_certfile.clone().zip(self.etcd_keyfile.clone()),
        }
    }

    fn layout(&self) -> KeyLayout {
        KeyLayout::Upstream(self.etcd_prefix.trim_end_matches('/').to_owned())
    }
}

/// Storage of the API server's objects.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Storage")]
pub struct StorageOptions {
    /// Keep the objects in this etcd instead of the data directory
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    #[command(flatten)]
    pub etcd: EtcdArguments,

    /// Forget etcd's history that is older than this many seconds; 0: leave it to others
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub etcd_compaction_interval: u64,

    /// Acknowledge writes of leases or events before they are on disk, by at most so many seconds
    ///
    /// If the machine (not just the process) fails, the last seconds of these may be lost, and of nothing else. Example:
    /// leases=1,events=5. Default: every write is on disk before it is acknowledged.
    #[arg(long, value_name = "RESOURCE=SECONDS", value_delimiter = ',', conflicts_with = "etcd_servers")]
    pub store_lag: Vec<ResourceSyncDelay>,

    /// Encrypt objects at rest, as this EncryptionConfiguration says
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
}

/// Seconds within which writes of a resource become durable: `leases=1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSyncDelay {
    prefix: &'static str,
    at_most: Duration,
}

/// A malformed [`ResourceSyncDelay`].
#[derive(Debug, thiserror::Error)]
pub enum SyncDelayError {
    /// The text is not a pair.
    #[error("it must be RESOURCE=SECONDS")]
    Pair,
    /// The resource must be durable at once.
    #[error("only leases and events may lag")]
    Resource,
    /// The delay is out of range.
    #[error("the seconds must be 1 to {LONGEST_LAG}")]
    Seconds,
}

impl FromStr for ResourceSyncDelay {
    type Err = SyncDelayError;

    fn from_str(text: &str) -> Result<Self, SyncDelayError> {
        let (resource, seconds) = text.split_once('=').ok_or(SyncDelayError::Pair)?;
        let known = MAY_LAG.into_iter().find(|(name, _)| *name == resource);
        let (_, prefix) = known.ok_or(SyncDelayError::Resource)?;
        let seconds = seconds.parse().ok().filter(|seconds| (1..=LONGEST_LAG).contains(seconds));
        let seconds = seconds.ok_or(SyncDelayError::Seconds)?;
        Ok(Self { prefix, at_most: Duration::from_secs(seconds) })
    }
}

impl StorageOptions {
    /// Opens the store; `dir` is where the embedded one is. What is wrong with the flags is said first.
    pub async fn open(&self, dir: &Path) -> anyhow::Result<Arc<dyn Store>> {
        let encryption = self.encryption()?;
        let store: Arc<dyn Store> = if self.etcd_servers.is_empty() {
            Arc::new(self.embedded(dir).await?)
        } else {
            let etcd = self.etcd().await?;
            if self.etcd_compaction_interval > 0 {
                let (compactor, keep) = (etcd.clone(), Duration::from_secs(self.etcd_compaction_interval));
                // It ends with the process.
                tokio::spawn(async move { compactor.run_compactor(keep).await });
            }
            Arc::new(etcd)
        };
        Ok(match encryption {
            Some(config) => Arc::new(EncryptedStore::new(store, config, self.etcd.layout())),
            None => store,
        })
    }

    /// Whether an existing store can be opened; nothing is made.
    pub async fn check(&self, dir: &Path) -> anyhow::Result<()> {
        self.encryption()?;
        if !self.etcd_servers.is_empty() {
            self.etcd().await?;
        } else if dir.exists() {
            self.embedded(dir).await?;
        }
        Ok(())
    }

    async fn etcd(&self) -> anyhow::Result<EtcdStore> {
        Ok(EtcdStore::open(self.etcd.options(self.etcd_servers.clone())).await?)
    }

    async fn embedded(&self, dir: &Path) -> anyhow::Result<EmbeddedStore> {
        let lag = |lag: &ResourceSyncDelay| DelayedSync { prefix: lag.prefix.into(), max_delay: lag.at_most };
        let options = store::EmbeddedOptions {
            delayed_sync: self.store_lag.iter().map(lag).collect(),
            ..store::EmbeddedOptions::default()
        };
        Ok(EmbeddedStore::open(dir, options).await?)
    }

    fn encryption(&self) -> anyhow::Result<Option<EncryptionConfig>> {
        let Some(file) = &self.encryption_provider_config else { return Ok(None) };
        let text =
            fs::read_to_string(file).with_context(|| format!("--encryption-provider-config {}", file.display()))?;
        Ok(Some(EncryptionConfig::parse(&text)?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;
    use store::{Precondition, WriteRequest};

    use super::*;

    #[derive(Parser)]
    struct StorageArguments {
        #[command(flatten)]
        storage: StorageOptions,
    }

    fn storage(flags: &[&str]) -> Result<StorageOptions, clap::Error> {
        let flags = [&["ferry"], flags].concat();
        StorageArguments::try_parse_from(flags).map(|arguments| arguments.storage)
    }

    /// Every file below a directory, with its contents.
    fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
                _ => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap_or_default())),
            }
        }
        found
    }

    /// A start that is refused, with a reason that has these words, and after which everything is as it was.
    async fn refused(flags: &[&str], root: &Path, dir: &Path, words: &[&str]) {
        let before = files(root);
        for attempt in [storage(flags).unwrap().open(dir).await.map(drop), storage(flags).unwrap().check(dir).await] {
            // A check of a directory that is not there has nothing to refuse.
            let Err(error) = attempt else {
                assert!(!dir.exists(), "it was not refused");
                continue;
            };
            let text = format!("{error:#}");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        assert_eq!(files(root), before, "something changed");
    }

    #[test]
    fn only_what_may_be_lost_may_lag() {
        let lag = storage(&["--store-lag", "leases=1,events=5"]).unwrap().store_lag;
        assert_eq!(lag.iter().map(|lag| lag.at_most.as_secs()).collect::<Vec<_>>(), [1, 5]);
        assert!(storage(&[]).unwrap().store_lag.is_empty(), "everything is durable unless it is said");
        for (flags, why) in [
            (&["--store-lag", "pods=1"][..], "only leases and events"),
            (&["--store-lag", "leases=0"], "1 to 60"),
            (&["--store-lag", "leases"], "RESOURCE=SECONDS"),
            (&["--store-lag", "leases=1", "--etcd-servers", "http://127.0.0.1:1"], "cannot be used with"),
        ] {
            let refused = storage(flags).expect_err("it is refused").to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[tokio::test]
    async fn an_etcd_that_is_not_there_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("store");
        refused(&["--etcd-servers", "http://127.0.0.1:1"], root.path(), &dir, &["127.0.0.1:1", "--etcd-servers"]).await;
        let no_ca = &["--etcd-servers", "https://127.0.0.1:1"];
        refused(no_ca, root.path(), &dir, &["https needs --etcd-cafile"]).await;
        let ca = root.path().join("ca.crt");
        fs::write(&ca, "no certificate").unwrap();
        let bad_ca = &["--etcd-servers", "https://127.0.0.1:1", "--etcd-cafile", ca.to_str().unwrap()];
        refused(bad_ca, root.path(), &dir, &["ca.crt", "no CERTIFICATE"]).await;
    }

    #[tokio::test]
    async fn a_place_that_cannot_be_written_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "in the way").unwrap();
        refused(&[], root.path(), &file.join("store"), &["file/store"]).await;
    }

    #[tokio::test]
    async fn a_second_server_on_one_directory_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("store");
        let first = storage(&[]).unwrap().open(&dir).await.unwrap();
        let write = |key: &str| WriteRequest {
            key: key.into(),
            precondition: Precondition::Absent,
            value: Some("x".into()),
            ttl: None,
        };
        first.write(write("/registry/pods/a/b")).await.unwrap();
        refused(&[], root.path(), &dir, &[dir.to_str().unwrap()]).await;
        first.write(write("/registry/pods/a/c")).await.unwrap();
    }

    #[tokio::test]
    async fn a_configuration_of_encryption_that_cannot_be_read_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("encryption.yaml");
        let flags = &["--encryption-provider-config", file.to_str().unwrap()];
        let dir = root.path().join("store");
        refused(flags, root.path(), &dir, &["encryption.yaml"]).await;
        assert!(!dir.exists());
    }
}
