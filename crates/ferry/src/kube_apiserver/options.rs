//! The validated options of `kube-apiserver`.

use std::{net::IpAddr, ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use apiserver::{
    AdmissionOptions, AggregationOptions, ComponentEndpoint, FlowControlOptions, IpNetwork, ReloadOptions,
    ServerOptions, ServingOptions, ShutdownOptions, TokenIssuer, WatchedFile, served::ApiResourceConfig,
};
use client::certificates::ReloadingCertificate;

use super::{audit, authentication, authorization, flag_files::flag_path};
use crate::{
    flags::{FlagError, ParsedFlags},
    pki::crypto_provider,
    storage::{EtcdArguments, ResourceSyncDelay, StorageOptions, SyncDelayError},
    user_error::user_error,
};

/// The range of services when none is given, as upstream has it.
const SERVICE_NETWORK: &str = "10.0.0.0/24";
/// Shutdown time beyond that of the requests.
const MARGIN: Duration = Duration::from_secs(5);

/// Options of the API server process.
pub struct ApiServerOptions {
    /// The listen address.
    pub bind_address: IpAddr,
    /// On which port; 0: any.
    pub port: u16,
    /// Storage flags.
    pub storage: StorageOptions,
    /// The directory of the embedded store.
    pub data_dir: PathBuf,
    /// Time to open the store.
    pub storage_timeout: Duration,
    /// Files of certificates and keys.
    pub files: CertificateFiles,
    /// The signer of service account tokens.
    pub tokens: Option<TokenIssuer>,
    /// Options of the server.
    pub settings: ServerOptions,
}

/// Files of certificates and keys.
pub struct CertificateFiles {
    /// The directory of a self-signed certificate.
    pub cert_dir: PathBuf,
    /// The server's certificate and key.
    pub serving: Option<Arc<ReloadingCertificate>>,
    /// Whether clients must speak TLS 1.3.
    pub tls13_only: bool,
    /// The client certificate for kubelets.
    pub kubelet_client: Option<Arc<ReloadingCertificate>>,
    /// The client certificate for aggregated servers.
    pub proxy_client: Option<Arc<ReloadingCertificate>>,
    /// The CA of kubelets' certificates.
    pub kubelet_ca: Option<PathBuf>,
}

impl ApiServerOptions {
    /// Checks what was given.
    pub fn from_flags(given: &ParsedFlags<'_>) -> anyhow::Result<Self> {
        let storage = storage_options(given)?;
        let data_dir = given.text("data-dir").map(PathBuf::from);
        if storage.etcd_servers.is_empty() && data_dir.is_none() {
            return Err(user_error(
                "nothing says where to keep objects",
                "Give --data-dir DIR to keep them there, or --etcd-servers URL to keep them in etcd.",
            ));
        }
        enable_feature_gates(given)?;
        let (files, mut settings) = (certificate_files(given)?, settings(given)?);
        if let Some(certificate) = &files.proxy_client {
            settings.aggregation.certificate = Some(certificate.clone());
        }
        Ok(Self {
            bind_address: given.required("bind-address")?,
            port: given.required("secure-port")?,
            storage,
            data_dir: data_dir.unwrap_or_default(),
            storage_timeout: given.duration("storage-initialization-timeout")?,
            files,
            tokens: authentication::token_signer(given)?,
            settings,
        })
    }

    /// The directory of the embedded store: that of `ferry up`, so that either can take over from the other.
    pub fn store_dir(&self) -> PathBuf {
        self.data_dir.join("store")
    }

    /// Time for the whole shutdown.
    pub fn deadline(&self) -> Duration {
        self.settings.shutdown.delay + self.settings.shutdown.drain + MARGIN
    }
}

fn pair(given: &ParsedFlags<'_>, certificate: &str, key: &str) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    match (flag_path(given, certificate), flag_path(given, key)) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => bail!("--{certificate} and --{key} belong together: give both or neither"),
    }
}

/// Loads the certificate and key that two flags name.
fn certificate(given: &ParsedFlags<'_>, file: &str, key: &str) -> anyhow::Result<Option<Arc<ReloadingCertificate>>> {
    let Some((certificate, key_file)) = pair(given, file, key)? else { return Ok(None) };
    let loaded = ReloadingCertificate::load(&certificate, &key_file, crypto_provider());
    Ok(Some(loaded.with_context(|| format!("--{file} and --{key}"))?))
}

fn storage_options(given: &ParsedFlags<'_>) -> anyhow::Result<StorageOptions> {
    let identity = pair(given, "etcd-certfile", "etcd-keyfile")?;
    let (etcd_certfile, etcd_keyfile) = identity.unzip();
    let etcd = EtcdArguments {
        etcd_cafile: flag_path(given, "etcd-cafile"),
        etcd_certfile,
        etcd_keyfile,
        etcd_prefix: given.text("etcd-prefix").unwrap_or_default(),
    };
    if let Some(backend) = given.text("storage-backend").filter(|backend| backend != "etcd3") {
        return Err(given.invalid("storage-backend", &backend, "allowed values: etcd3").into());
    }
    let encryption_provider_config = flag_path(given, "encryption-provider-config");
    Ok(StorageOptions {
        etcd_servers: given.many("etcd-servers"),
        etcd,
        etcd_compaction_interval: given.duration("etcd-compaction-interval")?.as_secs(),
        store_lag: store_lag(given)?,
        encryption_provider_config,
    })
}

fn store_lag(given: &ParsedFlags<'_>) -> Result<Vec<ResourceSyncDelay>, FlagError> {
    let lags = given.many("store-lag");
    let parse_lag =
        |lag: &String| lag.parse().map_err(|error: SyncDelayError| given.invalid("store-lag", lag, &error.to_string()));
    lags.iter().map(parse_lag).collect()
}

fn certificate_files(given: &ParsedFlags<'_>) -> anyhow::Result<CertificateFiles> {
    Ok(CertificateFiles {
        cert_dir: flag_path(given, "cert-dir").unwrap_or_default(),
        serving: certificate(given, "tls-cert-file", "tls-private-key-file")?,
        tls13_only: given.requires_tls13()?,
        kubelet_client: certificate(given, "kubelet-client-certificate", "kubelet-client-key")?,
        proxy_client: certificate(given, "proxy-client-cert-file", "proxy-client-key-file")?,
        kubelet_ca: flag_path(given, "kubelet-certificate-authority"),
    })
}

fn settings(given: &ParsedFlags<'_>) -> anyhow::Result<ServerOptions> {
    // Before the tables of the API are read.
    let initializers = given.bool("enable-initializers")?.then_some(apiserver::INITIALIZATION);
    if initializers.is_some() {
        apiserver::enable_initializers()?;
    }
    let port: u16 = given.required("secure-port")?;
    let advertise = match given.text("endpoint-reconciler-type").as_deref() {
        Some("none") => None,
        Some("lease" | "master-count") => Some((advertise_address(given)?, port)),
        other => bail!("--endpoint-reconciler-type must be lease, master-count or none, not {other:?}"),
    };
    Ok(ServerOptions {
        build: crate::build_info::build_info(),
        advertise,
        kubernetes_node_port: given.value("kubernetes-service-node-port")?.filter(|port| *port != 0),
        service_networks: service_networks(given)?,
        node_ports: node_port_range(given)?,
        authentication: authentication::authentication_options(given)?,
        authorization: authorization::authorization_options(given)?,
        audit: audit::audit_options(given)?,
        admission: admission_options(given)?,
        aggregation: aggregation_options(given)?,
        load: load(given)?,
        serving: serving(given)?,
        shutdown: shutdown(given)?,
        served: served_apis(given)?,
        shared_store: !given.many("etcd-servers").is_empty(),
        event_ttl: given.duration("event-ttl")?,
        reload: reload(given)?,
        components: ComponentEndpoint::default_components(),
        initializers,
        flags: given.all().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    })
}

/// The files that are read again when they change.
fn reload(given: &ParsedFlags<'_>) -> anyhow::Result<ReloadOptions> {
    let watched = |flag: &str| match flag_path(given, flag) {
        None => Ok(None),
        Some(file) => {
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            anyhow::Ok(Some(WatchedFile { file, text }))
        }
    };
    let own = given.many("service-account-issuer");
    Ok(ReloadOptions {
        authorization: watched("authorization-config")?,
        authentication: watched("authentication-config")?.map(|watched| (watched, own)),
        client_ca: watched("client-ca-file")?,
        proxy_ca: watched("requestheader-client-ca-file")?,
        ..ReloadOptions::default()
    })
}

/// Opens the gates of fields that are off by default; other gates are ignored.
fn enable_feature_gates(given: &ParsedFlags<'_>) -> anyhow::Result<()> {
    for choice in given.many("feature-gates").iter().flat_map(|choices| choices.split(',')) {
        let Some((name, value)) = choice.split_once('=') else {
            return Err(given.invalid("feature-gates", choice, "missing bool value").into());
        };
        match value.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => {
                api::disabled_fields::enable_feature_gate(name.trim())?;
            }
            "false" | "f" | "0" => {}
            value => return Err(given.invalid("feature-gates", choice, &format!("{value:?} is no bool")).into()),
        }
    }
    Ok(())
}

fn served_apis(given: &ParsedFlags<'_>) -> anyhow::Result<ApiResourceConfig> {
    let choices = given.many("runtime-config");
    let choices = choices.iter().map(|choice| choice.split_once('=').unwrap_or((choice, "")));
    ApiResourceConfig::from_runtime_config(choices).context("--runtime-config")
}

fn advertise_address(given: &ParsedFlags<'_>) -> anyhow::Result<IpAddr> {
    if let Some(address) = given.value("advertise-address")? {
        return Ok(address);
    }
    let bound: IpAddr = given.required("bind-address")?;
    if !bound.is_unspecified() {
        return Ok(bound);
    }
    let found = sys::net::host_address(&[]).context("no address to advertise; give --advertise-address")?;
    Ok(IpAddr::V4(found))
}

fn service_networks(given: &ParsedFlags<'_>) -> anyhow::Result<Vec<IpNetwork>> {
    let mut texts = given.many("service-cluster-ip-range");
    if texts.is_empty() {
        texts.push(SERVICE_NETWORK.to_owned());
    }
    let networks: Result<Vec<IpNetwork>, _> = texts
        .iter()
        .map(|text| {
            text.parse().map_err(|e: apiserver::ParseNetworkError| {
                given.invalid("service-cluster-ip-range", text, &e.to_string())
            })
        })
        .collect();
    let networks = networks?;
    ensure!(networks.len() <= 2, "--service-cluster-ip-range must not hold more than two networks");
    if let [first, second] = networks.as_slice() {
        ensure!(
            first.family() != second.family(),
            "--service-cluster-ip-range and its second value must be of different IP families"
        );
    }
    Ok(networks)
}

fn node_port_range(given: &ParsedFlags<'_>) -> Result<RangeInclusive<u16>, FlagError> {
    let text = given.text("service-node-port-range").unwrap_or_default();
    let parse = || {
        let (first, last) = match text.split_once('+') {
            Some((first, more)) => {
                (first.parse::<u16>().ok()?, first.parse::<u16>().ok()?.checked_add(more.parse().ok()?)?)
            }
            None => match text.split_once('-') {
                Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
                None => (text.parse().ok()?, text.parse().ok()?),
            },
        };
        (first > 0 && first <= last).then_some(first..=last)
    };
    parse().ok_or_else(|| {
        given.invalid("service-node-port-range", &text, "it is not a range of ports such as 30000-32767")
    })
}

fn admission_options(given: &ParsedFlags<'_>) -> anyhow::Result<AdmissionOptions> {
    let (mut enabled, mut disabled) = (given.many("enable-admission-plugins"), given.many("disable-admission-plugins"));
    let only = given.many("admission-control");
    if !only.is_empty() {
        ensure!(
            enabled.is_empty() && disabled.is_empty(),
            "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"
        );
        disabled = AdmissionOptions::plugin_names().map(str::to_owned).filter(|name| !only.contains(name)).collect();
        enabled = only;
    }
    let mut settings = AdmissionOptions::new(&enabled, &disabled)?;
    let seconds = |flag: &str| given.required(flag);
    settings.toleration_seconds =
        Some((seconds("default-not-ready-toleration-seconds")?, seconds("default-unreachable-toleration-seconds")?));
    match flag_path(given, "admission-control-config-file") {
        Some(file) => {
            settings.with_config_file(&file).map_err(|why| anyhow::anyhow!("failed to read plugin config: {why}"))
        }
        None => Ok(settings),
    }
}

fn aggregation_options(given: &ParsedFlags<'_>) -> anyhow::Result<AggregationOptions> {
    Ok(AggregationOptions { certificate: None, redirects: !given.bool("aggregator-reject-forwarding-redirect")? })
}

fn load(given: &ParsedFlags<'_>) -> anyhow::Result<FlowControlOptions> {
    let goaway_chance = given.value("goaway-chance")?.unwrap_or_default();
    ensure!((0.0..=0.02).contains(&goaway_chance), "--goaway-chance can not be less than 0 or greater than 0.02");
    let request_timeout = given.duration("request-timeout")?;
    ensure!(!request_timeout.is_zero(), "--request-timeout can not be negative or zero");
    Ok(FlowControlOptions {
        reads: given.required("max-requests-inflight")?,
        writes: given.required("max-mutating-requests-inflight")?,
        fairness: given.bool("enable-priority-and-fairness")?,
        request_timeout,
        watch_timeout: Duration::from_secs(given.required("min-request-timeout")?),
        goaway_chance,
    })
}

fn serving(given: &ParsedFlags<'_>) -> anyhow::Result<ServingOptions> {
    let streams: u32 = given.value("http2-max-streams-per-connection")?.unwrap_or_default();
    Ok(ServingOptions {
        http2: !given.bool("disable-http2-serving")?,
        streams: if streams == 0 { ServingOptions::default().streams } else { streams },
        store_timeout: given.duration("etcd-healthcheck-timeout")?.min(given.duration("etcd-readycheck-timeout")?),
    })
}

fn shutdown(given: &ParsedFlags<'_>) -> anyhow::Result<ShutdownOptions> {
    let watches = given.duration("shutdown-watch-termination-grace-period")?;
    Ok(ShutdownOptions {
        delay: given.duration("shutdown-delay-duration")?,
        drain: given.duration("request-timeout")?.max(watches),
        retry_after: given.bool("shutdown-send-retry-after")?,
    })
}
