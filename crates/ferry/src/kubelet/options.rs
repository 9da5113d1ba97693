//! The validated options of `kubelet`.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::Taint;
use kubelet::{
    ClusterDns, CpuManagerSettings, CpuSet, EvictionSettings, EvictionSignal, EvictionThreshold, ImageGcSettings,
    KubeletSettings, StaticPodSettings, ThresholdValue, read_credential_providers,
};
use serde_json::Value;

use super::configuration::{ignored_fields, load_configuration, shown_flags};
use crate::{
    flags::{FlagTable, ParsedFlags, duration},
    user_error::user_error,
};

/// Options of the kubelet process.
pub struct KubeletOptions {
    /// The kubeconfig file of the API server.
    pub kubeconfig: PathBuf,
    /// The kubeconfig to ask for a client certificate with.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory of certificates.
    pub cert_dir: PathBuf,
    /// Whether the client certificate is renewed.
    pub rotate_certificates: bool,
    /// Whether the serving certificate comes from the API server.
    pub server_tls_bootstrap: bool,
    /// Serving certificate and key.
    pub serving_pair: Option<(PathBuf, PathBuf)>,
    /// CA of clients.
    pub client_ca_file: Option<PathBuf>,
    /// The node's name.
    pub node_name: String,
    /// The node's address, if it is given.
    pub node_ip: Option<IpAddr>,
    /// Address of the kubelet API.
    pub listen: SocketAddr,
    /// The CRI endpoint.
    pub runtime_endpoint: String,
    /// Directory of pods.
    pub root_dir: PathBuf,
    /// Directory of container logs.
    pub pod_logs_dir: PathBuf,
    /// Parent cgroup of pods.
    pub cgroup_root: String,
    /// The cluster's DNS.
    pub cluster_dns: ClusterDns,
    /// Settings of the node.
    pub settings: KubeletSettings,
}

impl KubeletOptions {
    /// Checks the flags and the configuration.
    pub fn from_flags(given: &ParsedFlags<'_>, table: &FlagTable) -> anyhow::Result<Self> {
        let config = load_configuration(given)?;
        let path = |flag: &str| given.text(flag).filter(|text| !text.is_empty()).map(PathBuf::from);
        let Some(kubeconfig) = path("kubeconfig") else {
            return Err(user_error(
                "nothing says where the API server is",
                "Give --kubeconfig FILE with the API server's address and credentials.",
            ));
        };
        let read = ConfigReader(&config);
        let host = || rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase();
        let serving_pair = match (read.text("tlsCertFile"), read.text("tlsPrivateKeyFile")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(anyhow!("tlsCertFile and tlsPrivateKeyFile belong together: give both or neither")),
        };
        let servers = read.list("clusterDNS").into_iter();
        let servers = servers.map(|text| text.parse().with_context(|| format!("clusterDNS: {text:?} is no address")));
        let parent = read.text("cgroupRoot").unwrap_or_default();
        let mut settings = read.settings(given)?;
        settings.flags = shown_flags(given, table);
        settings.configz = config.clone();
        let ignored = ignored_fields(&config);
        if !ignored.is_empty() {
            tracing::warn!(fields = ignored.join(" "), "these fields of the configuration have no effect");
        }
        let port = read.number("port", 10250)?;
        Ok(Self {
            kubeconfig,
            bootstrap_kubeconfig: path("bootstrap-kubeconfig"),
            cert_dir: path("cert-dir").unwrap_or_else(|| "/var/lib/kubelet/pki".into()),
            rotate_certificates: read.bool("rotateCertificates", false)?,
            server_tls_bootstrap: read.bool("serverTLSBootstrap", false)?,
            serving_pair,
            client_ca_file: config["authentication"]["x509"]["clientCAFile"].as_str().map(PathBuf::from),
            node_name: given.text("hostname-override").map_or_else(host, |name| name.trim().to_lowercase()),
            node_ip: given.value("node-ip")?,
            listen: (read.address("address", "0.0.0.0")?, u16::try_from(port).context("port")?).into(),
            runtime_endpoint: read
                .text("containerRuntimeEndpoint")
                .unwrap_or_else(|| "unix:///run/containerd/containerd.sock".into()),
            root_dir: path("root-dir").unwrap_or_else(|| "/var/lib/kubelet".into()),
            pod_logs_dir: read.text("podLogsDir").unwrap_or_else(|| "/var/log/pods".into()).into(),
            cgroup_root: format!("{}/kubepods", parent.trim_end_matches('/')),
            cluster_dns: ClusterDns {
                servers: servers.collect::<anyhow::Result<_>>()?,
                domain: read.text("clusterDomain").unwrap_or_default(),
            },
            settings,
        })
    }
}

/// Returns the address from which `server` is reached. Nothing is sent.
pub fn outbound_address(server: &http::Uri) -> anyhow::Result<IpAddr> {
    let host = server.host().context("the API server's URL has no host")?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    let socket = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"))?;
    socket.connect((host, port)).with_context(|| format!("there is no route to {host}; give --node-ip"))?;
    Ok(socket.local_addr()?.ip())
}

/// Reads typed fields of the configuration.
struct ConfigReader<'a>(&'a Value);

impl ConfigReader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.0[name].as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    }

    fn number(&self, name: &str, default: i64) -> anyhow::Result<i64> {
        match &self.0[name] {
            Value::Null => Ok(default),
            value => value.as_i64().with_context(|| format!("{name}: {value} is not a number")),
        }
    }

    fn bool(&self, name: &str, default: bool) -> anyhow::Result<bool> {
        match &self.0[name] {
            Value::Null => Ok(default),
            value => value.as_bool().with_context(|| format!("{name}: {value} is neither true nor false")),
        }
    }

    fn duration(&self, name: &str, default: u64) -> anyhow::Result<Duration> {
        match self.text(name) {
            None => Ok(Duration::from_secs(default)),
            Some(text) => duration(&text).with_context(|| format!("{name}: {text:?} is not a duration")),
        }
    }

    fn address(&self, name: &str, default: &str) -> anyhow::Result<IpAddr> {
        let text = self.text(name).unwrap_or_else(|| default.into());
        text.parse().with_context(|| format!("{name}: {text:?} is not an address"))
    }

    fn map(&self, name: &str) -> BTreeMap<String, String> {
        let fields = self.0[name].as_object().into_iter().flatten();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        fields.map(|(key, value)| (key.clone(), text(value))).collect()
    }

    fn settings(&self, given: &ParsedFlags<'_>) -> anyhow::Result<KubeletSettings> {
        let default = KubeletSettings::default();
        let healthz_port = u16::try_from(self.number("healthzPort", 10248)?).context("healthzPort")?;
        let healthz_address = self.address("healthzBindAddress", "127.0.0.1")?;
        let headers = self.0["staticPodURLHeader"].as_object().into_iter().flatten();
        let headers = headers.flat_map(|(name, values)| {
            let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
            values.map(move |value| (name.clone(), value.to_owned()))
        });
        let taints: Vec<Taint> = match &self.0["registerWithTaints"] {
            Value::Null => Vec::new(),
            taints => serde_json::from_value(taints.clone()).context("registerWithTaints")?,
        };
        let labels = given.many("node-labels").into_iter();
        let label = |text: String| {
            let pair = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            pair.ok_or_else(|| given.invalid("node-labels", &text, "it is not key=value"))
        };
        Ok(KubeletSettings {
            static_pods: StaticPodSettings {
                path: self.text("staticPodPath").map(PathBuf::from),
                url: self.text("staticPodURL"),
                url_headers: headers.collect(),
                file_check_interval: self.duration("fileCheckFrequency", 20)?,
                http_check_interval: self.duration("httpCheckFrequency", 20)?,
            },
            image_gc: self.image_gc()?,
            eviction: self.eviction()?,
            max_pods: self.number("maxPods", default.max_pods)?,
            pods_per_core: self.number("podsPerCore", 0)?,
            reserved: self.reserved()?,
            register_node: self.bool("registerNode", true)?,
            node_labels: labels.map(label).collect::<Result<_, _>>()?,
            register_with_taints: taints,
            provider_id: self.text("providerID"),
            node_status_max_images: self.number("nodeStatusMaxImages", default.node_status_max_images)?,
            node_status_report_interval: self.duration("nodeStatusReportFrequency", 300)?,
            lease_duration: Duration::from_secs(self.number("nodeLeaseDurationSeconds", 40)?.max(1) as u64),
            container_log_max_size: match self.text("containerLogMaxSize") {
                None => default.container_log_max_size,
                Some(text) => amount("containerLogMaxSize", &text)? as u64,
            },
            container_log_max_files: usize::try_from(self.number("containerLogMaxFiles", 5)?.max(2))?,
            credential_providers: match given.text("image-credential-provider-config") {
                None => Vec::new(),
                Some(_) if !given.is_given("image-credential-provider-bin-dir") => {
                    return Err(anyhow!(
                        "--image-credential-provider-config needs --image-credential-provider-bin-dir"
                    ));
                }
                Some(path) => read_credential_providers(Path::new(&path))?,
            },
            credential_provider_bin_dir: given.text("image-credential-provider-bin-dir").unwrap_or_default().into(),
            cpu_manager: self.cpu_manager()?,
            pod_pids_limit: u64::try_from(self.number("podPidsLimit", -1)?).ok().filter(|limit| *limit > 0),
            allowed_unsafe_sysctls: self.list("allowedUnsafeSysctls"),
            healthz_address: (healthz_port != 0).then_some((healthz_address, healthz_port)),
            resolv_conf: self.text("resolvConf").map_or(default.resolv_conf.clone(), PathBuf::from),
            enable_debugging_handlers: self.bool("enableDebuggingHandlers", true)?,
            enable_system_log_handler: self.bool("enableSystemLogHandler", true)?,
            ..default
        })
    }

    fn cpu_manager(&self) -> anyhow::Result<CpuManagerSettings> {
        let is_static = match self.text("cpuManagerPolicy").as_deref() {
            None | Some("" | "none") => false,
            Some("static") => true,
            Some(other) => return Err(anyhow!("cpuManagerPolicy: {other:?} is neither none nor static")),
        };
        Ok(CpuManagerSettings {
            is_static,
            reserved_cpus: self.reserved_cpus()?,
            reconcile_period: self.duration("cpuManagerReconcilePeriod", 10)?,
        })
    }

    /// The CPUs of the field `reservedSystemCPUs`.
    fn reserved_cpus(&self) -> anyhow::Result<Option<CpuSet>> {
        // A flag with one number is read as a number.
        let text = match &self.0["reservedSystemCPUs"] {
            Value::Number(number) => number.to_string(),
            _ => self.text("reservedSystemCPUs").unwrap_or_default(),
        };
        let cpus: CpuSet = text.parse().context("reservedSystemCPUs")?;
        Ok((!cpus.is_empty()).then_some(cpus))
    }

    fn image_gc(&self) -> anyhow::Result<ImageGcSettings> {
        let percent = |name: &str, default: i64| -> anyhow::Result<u64> {
            let value = self.number(name, default)?;
            let value = u64::try_from(value).ok().filter(|value| *value <= 100);
            value.with_context(|| format!("{name} must be between 0 and 100"))
        };
        let (high, low) = (percent("imageGCHighThresholdPercent", 85)?, percent("imageGCLowThresholdPercent", 80)?);
        if low >= high {
            return Err(anyhow!("imageGCLowThresholdPercent must be less than imageGCHighThresholdPercent"));
        }
        Ok(ImageGcSettings {
            high_threshold_percent: high,
            low_threshold_percent: low,
            minimum_age: self.duration("imageMinimumGCAge", 120)?,
            maximum_age: self.duration("imageMaximumGCAge", 0)?,
        })
    }

    fn reserved(&self) -> anyhow::Result<BTreeMap<String, i64>> {
        let mut reserved = BTreeMap::new();
        let reserved_cpus = self.reserved_cpus()?;
        for field in ["systemReserved", "kubeReserved"] {
            for (name, text) in self.map(field) {
                let value = match name.as_str() {
                    // The list of CPUs says how many are reserved.
                    "cpu" if reserved_cpus.is_some() => continue,
                    "cpu" => millis(field, &text)?,
                    "memory" | "ephemeral-storage" => amount(field, &text)?,
                    "pid" => continue,
                    other => return Err(anyhow!("{field}: {other:?} cannot be reserved")),
                };
                *reserved.entry(name).or_default() += value;
            }
        }
        if let Some(cpus) = reserved_cpus {
            reserved.insert("cpu".into(), i64::try_from(cpus.len())? * 1000);
        }
        Ok(reserved)
    }

    fn eviction(&self) -> anyhow::Result<EvictionSettings> {
        let default = EvictionSettings::default();
        let signal = |field: &str, name: &str| {
            EvictionSignal::from_name(name).with_context(|| format!("{field}: unknown signal {name:?}"))
        };
        let value = |field: &str, text: &str| {
            ThresholdValue::parse(text)
                .with_context(|| format!("{field}: {text:?} is neither an amount nor a percentage"))
        };
        let mut thresholds = Vec::new();
        let hard = self.map("evictionHard");
        for (name, text) in &hard {
            thresholds.push(EvictionThreshold {
                signal: signal("evictionHard", name)?,
                value: value("evictionHard", text)?,
                grace_period: None,
            });
        }
        // Without a configuration of its own, and for what it leaves out if asked to, the defaults hold.
        let merges = self.bool("mergeDefaultEvictionSettings", false)?;
        if hard.is_empty() || merges {
            let missing = default.thresholds.iter().filter(|limit| !hard.contains_key(limit.signal.name()));
            thresholds.extend(missing.cloned());
        }
        let periods = self.map("evictionSoftGracePeriod");
        for (name, text) in self.map("evictionSoft") {
            let period = periods.get(&name).and_then(|text| duration(text));
            let period = period
                .with_context(|| format!("grace period must be specified for the soft eviction threshold {name}"))?;
            thresholds.push(EvictionThreshold {
                signal: signal("evictionSoft", &name)?,
                value: value("evictionSoft", &text)?,
                grace_period: Some(period),
            });
        }
        let reclaim = self.map("evictionMinimumReclaim").into_iter();
        let reclaim = reclaim.map(|(name, text)| {
            Ok((signal("evictionMinimumReclaim", &name)?, value("evictionMinimumReclaim", &text)?))
        });
        Ok(EvictionSettings {
            thresholds,
            minimum_reclaim: reclaim.collect::<anyhow::Result<_>>()?,
            max_pod_grace_period: Duration::from_secs(self.number("evictionMaxPodGracePeriod", 0)?.max(0) as u64),
            pressure_transition_period: self.duration("evictionPressureTransitionPeriod", 300)?,
        })
    }
}

fn amount(field: &str, text: &str) -> anyhow::Result<i64> {
    match ThresholdValue::parse(text) {
        Some(ThresholdValue::Amount(amount)) => Ok(amount),
        _ => Err(anyhow!("{field}: {text:?} is not a quantity")),
    }
}

/// Parses CPUs, such as `500m` or `1.5`, as millicores.
fn millis(field: &str, text: &str) -> anyhow::Result<i64> {
    let parsed = match text.strip_suffix('m') {
        Some(millis) => millis.parse::<i64>().ok(),
        None => text.parse::<f64>().ok().map(|cpus| (cpus * 1000.0) as i64),
    };
    parsed.filter(|millis| *millis >= 0).with_context(|| format!("{field}: {text:?} is not a number of CPUs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str]) -> Result<KubeletOptions, String> {
        let table = FlagTable::parse(super::super::FLAGS);
        let arguments = ["--kubeconfig=/x"].iter().chain(arguments).map(|text| (*text).to_owned());
        let given = table.read(arguments).map_err(|error| error.to_string())?;
        KubeletOptions::from_flags(&given, &table).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn flags_become_settings() {
        let options = check(&[
            "--hostname-override=N1",
            "--pod-manifest-path=/m",
            "--kube-reserved=cpu=500m,memory=1Gi",
            "--system-reserved=cpu=1",
            "--eviction-soft=memory.available<1Gi",
            "--eviction-soft-grace-period=memory.available=30s",
            "--node-labels=a=b",
            "--healthz-port=0",
        ])
        .unwrap();
        let settings = options.settings;
        assert_eq!((options.node_name.as_str(), options.cgroup_root.as_str()), ("n1", "/kubepods"));
        assert_eq!((settings.reserved["cpu"], settings.reserved["memory"]), (1500, 1 << 30));
        assert_eq!(settings.eviction.thresholds.len(), 6);
        assert_eq!(settings.static_pods.path.as_deref(), Some(std::path::Path::new("/m")));
        assert_eq!((settings.node_labels["a"].as_str(), settings.healthz_address), ("b", None));
    }

    #[test]
    fn reserved_cpus_replace_reserved_amounts() {
        let options = check(&["--cpu-manager-policy=static", "--reserved-cpus=0,2-3", "--kube-reserved=cpu=500m"]);
        let settings = options.unwrap().settings;
        assert_eq!(settings.reserved["cpu"], 3000);
        assert_eq!(settings.cpu_manager.reserved_cpus.map(|cpus| cpus.to_string()).as_deref(), Some("0,2-3"));
        let one = check(&["--reserved-cpus=0", "--pod-max-pids=100"]).unwrap().settings;
        assert_eq!((one.reserved["cpu"], one.pod_pids_limit, one.cpu_manager.is_static), (1000, Some(100), false));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let error = |arguments: &[&str]| check(arguments).err().unwrap_or_default();
        assert!(error(&["--eviction-hard=memory<1"]).contains("unknown signal \"memory\""));
        assert!(error(&["--eviction-soft=memory.available<1Gi"]).contains("grace period must be specified"));
        assert!(error(&["--image-gc-low-threshold=90"]).contains("imageGCLowThresholdPercent"));
        assert!(error(&["--cpu-manager-policy=fixed"]).contains("cpuManagerPolicy"));
        assert!(error(&["--reserved-cpus=a-b"]).contains("reservedSystemCPUs"));
        assert!(error(&["--nonsense"]).contains("unknown flag: --nonsense"));
    }
}
