//! The `KubeletConfiguration`: a file, drop-in files over it, and flags over both, merged and checked field by field.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::flags::{FlagStatus, ParsedFlags};

/// The version and kind of the file.
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// Fields that the kubelet uses.
const USED_FIELDS: &str = "address allowedUnsafeSysctls authentication authorization cgroupRoot clusterDNS clusterDomain \
containerLogMaxFiles containerLogMaxSize containerRuntimeEndpoint cpuManagerPolicy cpuManagerReconcilePeriod enableDebuggingHandlers enableServer \
enableSystemLogHandler evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod \
evictionSoft evictionSoftGracePeriod fileCheckFrequency healthzBindAddress healthzPort httpCheckFrequency \
imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge kubeReserved maxPods \
mergeDefaultEvictionSettings nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency podLogsDir podPidsLimit \
podsPerCore port providerID registerNode registerWithTaints reservedSystemCPUs resolvConf rotateCertificates serverTLSBootstrap staticPodPath staticPodURL \
staticPodURLHeader systemReserved tlsCertFile tlsPrivateKeyFile";

/// Fields that are accepted and have no effect.
const IGNORED_FIELDS: &str = "cgroupsPerQOS configMapAndSecretChangeDetectionStrategy containerLogMaxWorkers \
containerLogMonitorInterval contentType cpuCFSQuota cpuCFSQuotaPeriod \
crashLoopBackOff enableContentionProfiling enableControllerAttachDetach enableDebugFlagsHandler enableProfilingHandler \
enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS failCgroupV1 failSwapOn featureGates hairpinMode \
imagePullCredentialsVerificationPolicy iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS \
kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging makeIPTablesUtilChains maxOpenFiles \
maxParallelImagePulls memoryReservationPolicy memorySwap memoryThrottlingFactor nodeStatusUpdateFrequency oomScoreAdj podCIDR \
preloadedImagesVerificationAllowlist registryBurst registryPullQPS runtimeRequestTimeout serializeImagePulls \
showHiddenMetricsForVersion singleProcessOOMKill streamingConnectionIdleTimeout syncFrequency systemCgroups \
systemReservedCgroup tlsCipherSuites tlsCurvePreferences tlsMinVersion topologyManagerPolicyOptions topologyManagerScope \
tracing userNamespaces volumePluginDir volumeStatsAggPeriod";

/// Fields that are not supported, with the value that asks for nothing.
const REFUSED_FIELDS: [(&str, &str); 14] = [
    ("cgroupDriver", "\"cgroupfs\""),
    ("cpuManagerPolicyOptions", "{}"),
    ("imageServiceEndpoint", "\"\""),
    ("memoryManagerPolicy", "\"None\""),
    ("protectKernelDefaults", "false"),
    ("qosReserved", "{}"),
    ("readOnlyPort", "0"),
    ("reservedMemory", "[]"),
    ("runOnce", "false"),
    ("seccompDefault", "false"),
    ("shutdownGracePeriod", "\"0s\""),
    ("shutdownGracePeriodByPodPriority", "[]"),
    ("shutdownGracePeriodCriticalPods", "\"0s\""),
    ("topologyManagerPolicy", "\"none\""),
];

/// Flags and the fields that they set.
const FLAG_FIELDS: [(&str, &str); 46] = [
    ("address", "address"),
    ("allowed-unsafe-sysctls", "allowedUnsafeSysctls"),
    ("cgroup-root", "cgroupRoot"),
    ("client-ca-file", "authentication.x509.clientCAFile"),
    ("cluster-dns", "clusterDNS"),
    ("cluster-domain", "clusterDomain"),
    ("container-log-max-files", "containerLogMaxFiles"),
    ("container-log-max-size", "containerLogMaxSize"),
    ("container-runtime-endpoint", "containerRuntimeEndpoint"),
    ("cpu-manager-policy", "cpuManagerPolicy"),
    ("cpu-manager-reconcile-period", "cpuManagerReconcilePeriod"),
    ("enable-debugging-handlers", "enableDebuggingHandlers"),
    ("eviction-hard", "evictionHard"),
    ("eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"),
    ("eviction-minimum-reclaim", "evictionMinimumReclaim"),
    ("eviction-pressure-transition-period", "evictionPressureTransitionPeriod"),
    ("eviction-soft", "evictionSoft"),
    ("eviction-soft-grace-period", "evictionSoftGracePeriod"),
    ("file-check-frequency", "fileCheckFrequency"),
    ("healthz-bind-address", "healthzBindAddress"),
    ("healthz-port", "healthzPort"),
    ("http-check-frequency", "httpCheckFrequency"),
    ("image-gc-high-threshold", "imageGCHighThresholdPercent"),
    ("image-gc-low-threshold", "imageGCLowThresholdPercent"),
    ("kube-reserved", "kubeReserved"),
    ("manifest-url", "staticPodURL"),
    ("max-pods", "maxPods"),
    ("minimum-image-ttl-duration", "imageMinimumGCAge"),
    ("node-status-max-images", "nodeStatusMaxImages"),
    ("pod-manifest-path", "staticPodPath"),
    ("pod-max-pids", "podPidsLimit"),
    ("pods-per-core", "podsPerCore"),
    ("port", "port"),
    ("provider-id", "providerID"),
    ("register-node", "registerNode"),
    ("reserved-cpus", "reservedSystemCPUs"),
    ("resolv-conf", "resolvConf"),
    ("rotate-certificates", "rotateCertificates"),
    ("rotate-server-certificates", "serverTLSBootstrap"),
    ("system-reserved", "systemReserved"),
    ("tls-cert-file", "tlsCertFile"),
    ("tls-private-key-file", "tlsPrivateKeyFile"),
    ("anonymous-auth", "authentication.anonymous.enabled"),
    ("authorization-mode", "authorization.mode"),
    ("cgroup-driver", "cgroupDriver"),
    ("read-only-port", "readOnlyPort"),
];

/// Reads the file and the drop-in files, and sets the flags that were given.
pub fn load_configuration(given: &ParsedFlags<'_>) -> anyhow::Result<Value> {
    let mut merged = Value::Object(Map::new());
    if let Some(file) = given.text("config") {
        merge(&mut merged, read_file(Path::new(&file)).with_context(|| format!("--config {file}"))?);
    }
    if let Some(dir) = given.text("config-dir") {
        for file in drop_in_files(Path::new(&dir)).with_context(|| format!("--config-dir {dir}"))? {
            merge(&mut merged, read_file(&file).with_context(|| file.display().to_string())?);
        }
    }
    for (flag, field) in FLAG_FIELDS {
        if given.is_given(flag) {
            set_field(&mut merged, field, flag_value(given, flag)?);
        }
    }
    check_fields(&merged)?;
    Ok(merged)
}

fn read_file(file: &Path) -> anyhow::Result<Value> {
    let document = formats::yaml::parse(&fs::read(file)?)?;
    let value = document.value;
    let header = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    if header("apiVersion") != API_VERSION || header("kind") != KIND {
        bail!("it must be of apiVersion {API_VERSION} and kind {KIND}");
    }
    let mut value = value;
    if let Value::Object(fields) = &mut value {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    check_fields(&value)?;
    Ok(value)
}

/// Lists the `*.conf` files in order of their names.
fn drop_in_files(dir: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf") && path.is_file())
        .collect();
    files.sort();
    Ok(files)
}

/// Merges objects; everything else is replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value))
        }
        (into, from) => *into = from,
    }
}

fn set_field(config: &mut Value, path: &str, value: Value) {
    let (mut at, mut names) = (config, path.split('.').peekable());
    while let Some(name) = names.next() {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[name];
        if names.peek().is_none() {
            *at = value;
            return;
        }
    }
}

/// Converts a flag to the type that its field has.
fn flag_value(given: &ParsedFlags<'_>, flag: &str) -> anyhow::Result<Value> {
    let texts = given.many(flag);
    Ok(match (flag, texts.as_slice()) {
        ("allowed-unsafe-sysctls" | "cluster-dns", texts) => {
            texts.iter().map(|text| Value::from(text.as_str())).collect()
        }
        (_, _) if flag.starts_with("eviction-") || flag.ends_with("-reserved") => match flag {
            "eviction-max-pod-grace-period" => given.value::<i64>(flag)?.into(),
            "eviction-pressure-transition-period" => given.text(flag).into(),
            _ => map_value(given, flag)?,
        },
        _ => {
            let text = given.text(flag).unwrap_or_default();
            match text.as_str() {
                "true" => true.into(),
                "false" => false.into(),
                other => other.parse::<i64>().map_or_else(|_| other.into(), Value::from),
            }
        }
    })
}

/// Parses `name=value` and, of thresholds, `name<value`.
fn map_value(given: &ParsedFlags<'_>, flag: &str) -> anyhow::Result<Value> {
    let mut fields = Map::new();
    for text in given.many(flag) {
        let pair = text.split_once(['<', '=']).filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let (name, value) = pair.ok_or_else(|| given.invalid(flag, &text, "it is not a list of name=value"))?;
        fields.insert(name.trim().into(), value.trim().into());
    }
    Ok(fields.into())
}

/// Refuses unknown fields, and unsupported ones that ask for something.
fn check_fields(config: &Value) -> anyhow::Result<()> {
    for (name, value) in config.as_object().into_iter().flatten() {
        let known = |list: &str| list.split(' ').any(|field| field == name);
        if known(USED_FIELDS) || known(IGNORED_FIELDS) {
            continue;
        }
        let Some((_, default)) = REFUSED_FIELDS.iter().find(|(field, _)| field == name) else {
            bail!("unknown field {name:?}");
        };
        if serde_json::from_str::<Value>(default).ok().as_ref() != Some(value) && !value.is_null() {
            bail!("{name}: {value} is not supported");
        }
    }
    let anonymous = &config["authentication"]["anonymous"]["enabled"];
    let mode = config["authorization"]["mode"].as_str().unwrap_or("Webhook");
    if *anonymous == Value::Bool(true) {
        bail!("authentication.anonymous.enabled: true is not supported");
    }
    if config["authentication"]["webhook"]["enabled"] == Value::Bool(false) {
        bail!("authentication.webhook.enabled: false is not supported");
    }
    if mode != "Webhook" {
        bail!("authorization.mode: {mode} is not supported");
    }
    Ok(())
}

/// Returns the fields of the configuration that have no effect.
pub fn ignored_fields(config: &Value) -> Vec<&str> {
    let ignored = |name: &&String| IGNORED_FIELDS.split(' ').any(|field| field == name.as_str());
    config.as_object().into_iter().flat_map(Map::keys).filter(ignored).map(String::as_str).collect()
}

/// Returns the flags with their values, without secrets, for `/flagz`.
pub fn shown_flags(given: &ParsedFlags<'_>, table: &crate::flags::FlagTable) -> Vec<(String, String)> {
    let is_used = |name: &str| table.find(name).is_some_and(|flag| flag.state == FlagStatus::Used);
    given.all().into_iter().filter(|(name, _)| is_used(name)).map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::FlagTable;
    use serde_json::json;

    fn load(arguments: &[String]) -> Result<Value, String> {
        let table = FlagTable::parse(super::super::FLAGS);
        let given = table.read(arguments.iter().cloned()).map_err(|error| error.to_string())?;
        load_configuration(&given).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn drop_in_files_and_flags_override_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), format!("{head}{text}")).unwrap();
        write(
            "main",
            "maxPods: 10\nevictionHard: {memory.available: 1Gi, nodefs.available: 5%}\nclusterDNS: [10.0.0.1]\n",
        );
        write("20-b.conf", "maxPods: 30\n");
        write("10-a.conf", "maxPods: 20\nevictionHard: {memory.available: 2Gi}\n");
        write("30-c.txt", "maxPods: 40\n");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = [format!("--config={}", path("main")), format!("--config-dir={}", path(""))];
        let loaded = load(&config).unwrap();
        assert_eq!(loaded["maxPods"], 30);
        assert_eq!(loaded["evictionHard"], json!({ "memory.available": "2Gi", "nodefs.available": "5%" }));
        let flags = ["--max-pods=7", "--eviction-hard=memory.available<3Gi", "--client-ca-file=/ca"].map(String::from);
        let loaded = load(&[config.as_slice(), flags.as_slice()].concat()).unwrap();
        assert_eq!((&loaded["maxPods"], &loaded["evictionHard"]), (&json!(7), &json!({ "memory.available": "3Gi" })));
        assert_eq!(loaded["authentication"]["x509"]["clientCAFile"], "/ca");
        write("main", "memoryManagerPolicy: Static\n");
        assert!(load(&config).unwrap_err().contains("memoryManagerPolicy: \"Static\" is not supported"));
        write("main", "nonsense: 1\n");
        assert!(load(&config).unwrap_err().contains("unknown field \"nonsense\""));
    }
}
