//! The settings of a connection: context, cluster and user of the kubeconfig, with flags over them.

use std::io::{BufRead, Write};

use api::{Map, Value, json::go_quote};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{Kubeconfig, text_of, validate};
use crate::{
    errors::{CommandError, CommandResult},
    files,
    kuberc::PluginPolicy,
};

/// Settings of flags, which take precedence over the kubeconfig.
#[derive(Clone, Debug, Default)]
pub struct ConfigOverrides {
    /// `--context`
    pub context: String,
    /// `--cluster`
    pub cluster_name: String,
    /// `--user`
    pub user_name: String,
    /// `--namespace`
    pub namespace: String,
    /// Fields of the cluster.
    pub cluster: Map,
    /// Fields of the user.
    pub user: Map,
    /// `--request-timeout`
    pub timeout: String,
}

/// Settings of a connection.
#[derive(Clone, Debug, Default)]
pub struct ClientSettings {
    /// The URL of the server, without a trailing slash.
    pub host: String,
    /// The certificates that sign the server's.
    pub authority: Option<Vec<u8>>,
    /// Whether the server's certificate is accepted unchecked.
    pub insecure: bool,
    /// The name in the server's certificate.
    pub server_name: String,
    /// The proxy of the cluster entry.
    pub proxy_url: String,
    /// The time limit of a request in nanoseconds; 0 is none.
    pub timeout: i64,
    /// Credentials.
    pub user: UserCredentials,
    /// Impersonation.
    pub impersonation: Impersonation,
    /// Whether the command reads stdin, so that exec plug-ins cannot.
    pub stdin_used: bool,
    /// Which exec plug-ins may run.
    pub plugin_policy: PluginPolicy,
    /// The cluster's configuration for exec plug-ins.
    pub exec_cluster_config: Value,
}

/// Credentials of a user.
#[derive(Clone, Debug, Default)]
pub struct UserCredentials {
    /// The client certificate, PEM.
    pub certificate: Option<Vec<u8>>,
    /// Its key, PEM.
    pub key: Option<Vec<u8>>,
    /// A bearer token.
    pub token: String,
    /// Name for basic authentication.
    pub username: String,
    /// Password for basic authentication.
    pub password: String,
    /// An exec plug-in.
    pub exec: Option<Map>,
    /// An authentication provider, of which OIDC is supported.
    pub provider: Option<Map>,
}

/// The user to impersonate.
#[derive(Clone, Debug, Default)]
pub struct Impersonation {
    /// `Impersonate-User`
    pub user: String,
    /// `Impersonate-Uid`
    pub uid: String,
    /// `Impersonate-Group`
    pub groups: Vec<String>,
    /// `Impersonate-Extra-…`
    pub extra: Vec<(String, String)>,
}

/// The entries that a context leads to.
struct SelectedEntries {
    cluster: Map,
    user: Map,
    faults: Vec<String>,
    /// A named entry that does not exist.
    missing: Option<String>,
}

/// The name of the user entry: that of the flag, or of the context.
pub fn selected_user(config: &Kubeconfig, overrides: &ConfigOverrides) -> String {
    if !overrides.user_name.is_empty() {
        return overrides.user_name.clone();
    }
    let context_name = if overrides.context.is_empty() { &config.current_context } else { &overrides.context };
    config.contexts.get(context_name).map(|context| text_of(context, "user").to_owned()).unwrap_or_default()
}

fn select_entries(config: &Kubeconfig, overrides: &ConfigOverrides) -> SelectedEntries {
    let context_name = if overrides.context.is_empty() { &config.current_context } else { &overrides.context };
    let mut faults = Vec::new();
    let context = config.contexts.get(context_name);
    if !context_name.is_empty() && context.is_none() {
        faults.push(format!("context was not found for specified context: {context_name}"));
    }
    let context = context.cloned().unwrap_or_default();
    let choose = |flag: &str, field: &str| if flag.is_empty() { text_of(&context, field) } else { flag }.to_owned();
    let (cluster_name, user_name) = (choose(&overrides.cluster_name, "cluster"), choose(&overrides.user_name, "user"));
    let mut missing = None;
    if !overrides.user_name.is_empty() && !config.users.contains_key(&user_name) {
        missing = Some(format!("auth info {} does not exist", go_quote(&user_name)));
    } else if !overrides.cluster_name.is_empty() && !config.clusters.contains_key(&cluster_name) {
        missing = Some(format!("cluster {} does not exist", go_quote(&cluster_name)));
    }
    let user = merge_user(config.users.get(&user_name).cloned().unwrap_or_default(), &overrides.user);
    let cluster = merge_cluster(config.clusters.get(&cluster_name).cloned(), &overrides.cluster);
    faults.extend(validate::check_user(&user_name, &user));
    if cluster.is_empty() && cluster_name.is_empty() {
        // With another fault the default server stands in for the missing cluster.
        if faults.is_empty() {
            faults.push(EMPTY_CLUSTER.to_owned());
        }
    } else {
        faults.extend(validate::check_cluster(&cluster_name, &cluster));
    }
    SelectedEntries { cluster, user, faults, missing }
}

const EMPTY_CLUSTER: &str = "cluster has no server defined";

fn merge_user(mut user: Map, overrides: &Map) -> Map {
    for pair in [["client-key", "client-key-data"], ["client-certificate", "client-certificate-data"]] {
        if pair.iter().any(|field| overrides.contains_key(*field)) {
            pair.iter().for_each(|field| drop(user.remove(*field)));
        }
    }
    user.extend(overrides.clone());
    user
}

fn merge_cluster(cluster: Option<Map>, overrides: &Map) -> Map {
    let mut cluster = cluster.unwrap_or_default();
    if !cluster.contains_key("server")
        && let Ok(server) = std::env::var("KUBERNETES_MASTER")
    {
        cluster.insert("server".into(), server.into());
    }
    if overrides.contains_key("insecure-skip-tls-verify") || overrides.contains_key("certificate-authority") {
        for field in ["insecure-skip-tls-verify", "certificate-authority", "certificate-authority-data"] {
            cluster.remove(field);
        }
    }
    if overrides.contains_key("server") {
        cluster.remove("tls-server-name");
    }
    cluster.extend(overrides.clone());
    cluster
}

impl SelectedEntries {
    /// Fails if the entries are not usable; `false` if there is no configuration at all.
    fn check_usable(&self) -> CommandResult<bool> {
        match self.faults.as_slice() {
            [] => Ok(true),
            [one] if one == EMPTY_CLUSTER => Ok(false),
            faults => Err(CommandError::InvalidConfiguration(faults.to_vec())),
        }
    }
}

/// The namespace, and whether a flag named it.
pub fn select_namespace(config: &Kubeconfig, overrides: &ConfigOverrides) -> CommandResult<(String, bool)> {
    if !overrides.namespace.is_empty() {
        return Ok((overrides.namespace.clone(), true));
    }
    select_entries(config, overrides).check_usable()?;
    let context = if overrides.context.is_empty() { &config.current_context } else { &overrides.context };
    let namespace = config.contexts.get(context).map(|context| text_of(context, "namespace")).unwrap_or_default();
    if !namespace.is_empty() {
        return Ok((namespace.to_owned(), false));
    }
    if config.is_empty() && in_cluster() {
        let mounted = std::fs::read_to_string(format!("{SERVICE_ACCOUNT}/namespace")).unwrap_or_default();
        let mounted = std::env::var("POD_NAMESPACE").unwrap_or(mounted);
        if !mounted.trim().is_empty() {
            return Ok((mounted.trim().to_owned(), false));
        }
    }
    Ok(("default".to_owned(), false))
}

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn in_cluster() -> bool {
    std::env::var("KUBERNETES_SERVICE_HOST").is_ok_and(|host| !host.is_empty())
        && std::path::Path::new(&format!("{SERVICE_ACCOUNT}/token")).is_file()
}

fn in_cluster_settings() -> CommandResult<ClientSettings> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let token = files::read_file(&format!("{SERVICE_ACCOUNT}/token"))?;
    let user = UserCredentials { token: String::from_utf8_lossy(&token).trim().to_owned(), ..Default::default() };
    let authority = files::read_file(&format!("{SERVICE_ACCOUNT}/ca.crt")).ok();
    Ok(ClientSettings { host: format!("https://{host}:{port}"), authority, user, ..Default::default() })
}

/// Resolves the settings of the connection.
pub fn resolve_settings(config: &Kubeconfig, overrides: &ConfigOverrides) -> CommandResult<ClientSettings> {
    let selected = select_entries(config, overrides);
    if let Some(missing) = &selected.missing {
        return Err(CommandError::new(missing.clone()));
    }
    let timeout = parse_timeout(&overrides.timeout)?;
    if !selected.check_usable()? {
        if in_cluster() {
            return in_cluster_settings();
        }
        return Ok(ClientSettings { host: "http://localhost:8080".into(), timeout, ..Default::default() });
    }
    let cluster = &selected.cluster;
    let mut settings = ClientSettings {
        host: normalize_host(text_of(cluster, "server")),
        insecure: cluster.get("insecure-skip-tls-verify") == Some(&Value::Bool(true)),
        server_name: text_of(cluster, "tls-server-name").to_owned(),
        proxy_url: text_of(cluster, "proxy-url").to_owned(),
        timeout,
        impersonation: impersonation_of(&selected.user),
        exec_cluster_config: exec_extension(cluster),
        ..Default::default()
    };
    if settings.host.starts_with("https://") {
        settings.authority = data_or_file(cluster, "certificate-authority")?;
        settings.user = credentials_of(&selected.user)?;
        if !settings.user.is_identified() {
            (settings.user.username, settings.user.password) = prompt_credentials()?;
        }
    }
    Ok(settings)
}

fn exec_extension(cluster: &Map) -> Value {
    let extensions = cluster.get("extensions").and_then(Value::as_array);
    let named = |entry: &&Value| entry["name"] == "client.authentication.k8s.io/exec";
    extensions.into_iter().flatten().find(named).map(|entry| entry["extension"].clone()).unwrap_or_default()
}

impl UserCredentials {
    fn is_identified(&self) -> bool {
        !self.username.is_empty()
            || self.certificate.is_some()
            || !self.token.is_empty()
            || self.provider.is_some()
            || self.exec.is_some()
    }
}

fn normalize_host(server: &str) -> String {
    let server = server.trim_end_matches('/');
    if server.contains("://") { server.to_owned() } else { format!("http://{server}") }
}

fn data_or_file(entry: &Map, field: &str) -> CommandResult<Option<Vec<u8>>> {
    let data = text_of(entry, &format!("{field}-data"));
    if !data.is_empty() {
        let decoded = STANDARD.decode(data.replace(['\r', '\n'], ""));
        return decoded.map(Some).map_err(|error| CommandError::new(format!("{field}-data: {error}")));
    }
    match text_of(entry, field) {
        "" => Ok(None),
        path => files::read_file(path).map(Some),
    }
}

fn credentials_of(user: &Map) -> CommandResult<UserCredentials> {
    let mut token = text_of(user, "token").to_owned();
    if token.is_empty() && !text_of(user, "tokenFile").is_empty() {
        token = String::from_utf8_lossy(&files::read_file(text_of(user, "tokenFile"))?).trim().to_owned();
    }
    Ok(UserCredentials {
        certificate: data_or_file(user, "client-certificate")?,
        key: data_or_file(user, "client-key")?,
        token,
        username: text_of(user, "username").to_owned(),
        password: text_of(user, "password").to_owned(),
        exec: user.get("exec").and_then(Value::as_object).cloned(),
        provider: user.get("auth-provider").and_then(Value::as_object).cloned(),
    })
}

fn impersonation_of(user: &Map) -> Impersonation {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let extra = user.get("as-user-extra").and_then(Value::as_object).into_iter().flatten();
    Impersonation {
        user: text_of(user, "as").to_owned(),
        uid: text_of(user, "as-uid").to_owned(),
        groups: user.get("as-groups").map(strings).unwrap_or_default(),
        extra: extra
            .flat_map(|(key, values)| strings(values).into_iter().map(move |value| (key.clone(), value)))
            .collect(),
    }
}

/// Asks for a name and a password, as upstream does for a user entry without credentials.
fn prompt_credentials() -> CommandResult<(String, String)> {
    let ask = |what: &str| -> CommandResult<String> {
        crate::output::write_out(&format!("Please enter {what}: "));
        // The prompt is written already.
        let _ = std::io::stdout().flush();
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => Err(CommandError::new("EOF")),
            Ok(_) => Ok(line.trim().to_owned()),
        }
    };
    Ok((ask("Username")?, ask("Password")?))
}

/// Parses `--request-timeout`: seconds, or a duration.
pub fn parse_timeout(text: &str) -> CommandResult<i64> {
    if text.is_empty() || text == "0" {
        return Ok(0);
    }
    let parsed = match text.parse::<i64>() {
        Ok(seconds) if seconds > 0 => Some(seconds.saturating_mul(1_000_000_000)),
        Ok(_) => None,
        Err(_) => api::duration::try_parse(text).ok(),
    };
    parsed.ok_or_else(|| {
        CommandError::new(
            "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a \
             corresponding time unit (e.g. 1s | 2m | 3h)",
        )
    })
}
