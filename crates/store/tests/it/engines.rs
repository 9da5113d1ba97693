//! The engines that tests run on: an embedded one in a directory, and an etcd server of the test's own.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ferry_store::{
    CollectionCatalog, EmbeddedOptions, EmbeddedStore, EtcdOptions, EtcdStore, HistoryWindow, KeyLayout,
    SelectableFields, Store, WatchCache,
};

pub type Engine = Arc<dyn Store>;

pub async fn embedded(dir: &Path) -> Engine {
    Arc::new(
        EmbeddedStore::open(dir, EmbeddedOptions { segment_bytes: 1 << 20, ..EmbeddedOptions::default() })
            .await
            .unwrap(),
    )
}

/// The collections of the tests' keys.
pub enum Collections {
    /// All in one.
    One,
    /// By the first part of their path.
    ByFirstPart,
}

impl CollectionCatalog for Collections {
    fn collection_name<'k>(&self, key: &'k str) -> Option<&'k str> {
        match self {
            Self::One => Some(""),
            Self::ByFirstPart => key.get(1..)?.find('/').map(|end| &key[..end + 2]),
        }
    }

    /// A document is its own only field.
    fn selectable_fields(&self, _: &str, value: &Bytes) -> SelectableFields {
        SelectableFields::new([].into_iter(), std::str::from_utf8(value).into_iter())
    }
}

pub async fn cache(engine: Engine, collections: Collections) -> Arc<WatchCache> {
    Arc::new(WatchCache::with_engine(engine, Arc::new(collections), HistoryWindow::default()).await.unwrap())
}

/// An etcd on loopback with its own ports and data; it ends with this.
pub struct EtcdServer {
    process: Child,
    command: Command,
    pub url: String,
    _dir: tempfile::TempDir,
}

impl EtcdServer {
    /// `None`, with a message, where etcd is not installed. `FERRY_ETCD` names another program.
    pub fn start() -> Option<Self> {
        Self::start_with("http", tempfile::tempdir().unwrap(), &[])
    }

    pub fn start_with(scheme: &str, dir: tempfile::TempDir, arguments: &[String]) -> Option<Self> {
        let program = std::env::var("FERRY_ETCD").unwrap_or_else(|_| "etcd".into());
        let ports = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let [url, peer] = ports.each_ref().map(|port| port.local_addr().unwrap());
        drop(ports);
        let (url, peer) = (format!("{scheme}://{url}"), format!("http://{peer}"));
        let mut command = Command::new(&program);
        command
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")])
            // Versions that cannot be asked for progress tell it at this interval.
            .arg("--experimental-watch-progress-notify-interval=100ms")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.spawn() {
            Ok(process) => Some(Self { process, command, url, _dir: dir }),
            Err(error) => {
                let remedy = "install etcd-server or set FERRY_ETCD";
                skip::skip_test(format_args!("{program} cannot be started ({error}); {remedy}"));
                None
            }
        }
    }

    /// Kills it and starts it again with the same data at the same place.
    pub fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = self.command.spawn().unwrap();
    }

    pub fn options(&self, layout: KeyLayout) -> EtcdOptions {
        EtcdOptions { servers: vec![self.url.clone()], layout, ca: None, identity: None }
    }

    /// A store of its own under a prefix.
    pub async fn store(&self, prefix: &str) -> Engine {
        Arc::new(self.open(KeyLayout::Plain(prefix.into())).await)
    }

    /// A new server needs a moment until it answers.
    pub async fn open(&self, layout: KeyLayout) -> EtcdStore {
        Self::open_with(self.options(layout)).await
    }

    pub async fn open_with(options: EtcdOptions) -> EtcdStore {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match EtcdStore::open(options.clone()).await {
                Ok(etcd) => return etcd,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        // It is ours, and nothing of it is kept.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
