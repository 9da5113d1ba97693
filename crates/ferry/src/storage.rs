//! Which store keeps the cluster's objects: the embedded one, or an etcd that others run; encrypted or not.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use clap::Args;
use store::{Embedded, Encrypted, EncryptionConfig, Etcd, EtcdOptions, Layout, Store};

/// How an etcd is reached.
#[derive(Clone, Debug, Default, Args)]
pub struct EtcdAccess {
    /// Who signed etcd's certificate
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// The certificate to show etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,

    /// Where in etcd the objects are
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
}

impl EtcdAccess {
    /// How to reach these servers.
    pub fn options(&self, servers: Vec<String>) -> EtcdOptions {
        EtcdOptions {
            servers,
            layout: self.layout(),
            ca: self.etcd_cafile.clone(),
            identity: self.etcd_certfile.clone().zip(self.etcd_keyfile.clone()),
        }
    }

    fn layout(&self) -> Layout {
        Layout::Upstream(self.etcd_prefix.trim_end_matches('/').to_owned())
    }
}

/// Where the objects are kept.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Storage")]
pub struct Storage {
    /// Keep the objects in this etcd instead of the data directory
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    #[command(flatten)]
    pub etcd: EtcdAccess,

    /// Encrypt objects at rest, as this EncryptionConfiguration says
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
}

impl Storage {
    /// Opens the store; `dir` is where the embedded one is. What is wrong with the flags is said first.
    pub async fn open(&self, dir: &Path) -> anyhow::Result<Arc<dyn Store>> {
        let encryption = self.encryption()?;
        let store: Arc<dyn Store> = if self.etcd_servers.is_empty() {
            Arc::new(Embedded::open(dir, store::Options::default()).await?)
        } else {
            Arc::new(Etcd::open(self.etcd.options(self.etcd_servers.clone())).await?)
        };
        Ok(match encryption {
            Some(config) => Arc::new(Encrypted::new(store, config, self.etcd.layout())),
            None => store,
        })
    }

    /// Whether an existing store can be opened; nothing is made.
    pub async fn check(&self, dir: &Path) -> anyhow::Result<()> {
        if !self.etcd_servers.is_empty() || dir.exists() {
            self.open(dir).await?;
        } else {
            self.encryption()?;
        }
        Ok(())
    }

    fn encryption(&self) -> anyhow::Result<Option<EncryptionConfig>> {
        let Some(file) = &self.encryption_provider_config else { return Ok(None) };
        let text =
            fs::read_to_string(file).with_context(|| format!("--encryption-provider-config {}", file.display()))?;
        Ok(Some(EncryptionConfig::parse(&text)?))
    }
}
