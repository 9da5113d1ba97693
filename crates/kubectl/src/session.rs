//! A running command: its flags and arguments, and what it needs of the cluster, made on first use.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};

use api::{Map, Value, json::go_quote};

use crate::{
    command_help::expand_home,
    command_table::CommandDefinition,
    discovery::{Discovery, DiscoveryData, RestMapping},
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
    kubeconfig::{
        ClientSettings, ConfigOverrides, Kubeconfig, LoadingRules, modify_config, resolve_settings, select_namespace,
        selected_user,
    },
    kuberc::PluginPolicy,
    oidc,
    rest::{LogLevel, RestClient, RestRequest},
};

/// A running command.
#[derive(Debug)]
pub struct Session {
    /// The command.
    pub command: &'static CommandDefinition,
    /// Its flags.
    pub flags: FlagSet,
    plugin_policy: PluginPolicy,
    config: OnceCell<Kubeconfig>,
    client: OnceCell<RestClient>,
    discovery: OnceCell<Discovery>,
    openapi_checked: Cell<bool>,
    /// Whether the command reads stdin, so that credentials are not asked for.
    pub stdin_used: Cell<bool>,
}

impl Session {
    /// A session of a command.
    pub fn new(command: &'static CommandDefinition, flags: FlagSet, plugin_policy: PluginPolicy) -> Self {
        Session {
            command,
            flags,
            plugin_policy,
            config: OnceCell::new(),
            client: OnceCell::new(),
            discovery: OnceCell::new(),
            openapi_checked: Cell::new(false),
            stdin_used: Cell::new(false),
        }
    }

    /// The positional arguments.
    pub fn arguments(&self) -> &[String] {
        &self.flags.arguments
    }

    /// The files of the kubeconfig.
    pub fn loading_rules(&self) -> LoadingRules {
        LoadingRules::new(&self.flags.string("kubeconfig"))
    }

    /// The kubeconfig.
    pub fn kubeconfig(&self) -> CommandResult<&Kubeconfig> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let config = self.loading_rules().load(true)?;
        Ok(self.config.get_or_init(|| config))
    }

    /// Settings of flags, which take precedence over the kubeconfig.
    pub fn overrides(&self) -> ConfigOverrides {
        // A command's own flag of that name is not the global one.
        let own = |name: &str| self.command.flags.iter().any(|flag| flag.name == name);
        let text = |name: &str| if own(name) { String::new() } else { self.flags.string(name) };
        let mut cluster = Map::new();
        for field in ["server", "certificate-authority", "tls-server-name"] {
            if self.flags.changed(field) && !own(field) {
                cluster.insert(field.to_owned(), text(field).into());
            }
        }
        for field in ["insecure-skip-tls-verify", "disable-compression"] {
            if !own(field) && self.flags.bool(field) {
                cluster.insert(field.to_owned(), true.into());
            }
        }
        ConfigOverrides {
            context: text("context"),
            cluster_name: text("cluster"),
            user_name: text("user"),
            namespace: text("namespace"),
            cluster,
            user: self.user_overrides(),
            timeout: text("request-timeout"),
        }
    }

    fn user_overrides(&self) -> Map {
        let mut user = Map::new();
        for field in ["client-certificate", "client-key", "token", "username", "password", "as", "as-uid"] {
            let value = self.flags.string(field);
            let own = self.command.flags.iter().any(|flag| flag.name == field);
            if self.flags.changed(field) && !own && !value.is_empty() {
                user.insert(field.to_owned(), value.into());
            }
        }
        if self.flags.changed("as-group") {
            user.insert("as-groups".into(), self.flags.strings("as-group").into());
        }
        let mut extra = Map::new();
        for pair in self.flags.strings("as-user-extra") {
            let Some((key, value)) = pair.split_once('=') else { continue };
            let values = extra.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(values) = values {
                values.push(value.into());
            }
        }
        if !extra.is_empty() {
            user.insert("as-user-extra".into(), Value::Object(extra));
        }
        user
    }

    /// The namespace, and whether `--namespace` named it.
    pub fn namespace(&self) -> CommandResult<(String, bool)> {
        select_namespace(self.kubeconfig()?, &self.overrides())
    }

    /// The settings of the connection.
    pub fn settings(&self) -> CommandResult<ClientSettings> {
        let mut settings = resolve_settings(self.kubeconfig()?, &self.overrides())?;
        settings.plugin_policy = self.plugin_policy.clone();
        settings.stdin_used = self.stdin_used.get();
        if let Some(config) = oidc::load_token(&mut settings)? {
            self.store_tokens(config).map_err(|error| error.with_prefix("could not persist new tokens: "))?;
        }
        Ok(settings)
    }

    /// Writes the new tokens of the user's authentication provider to the kubeconfig.
    fn store_tokens(&self, tokens: Map) -> CommandResult {
        let config = self.kubeconfig()?;
        let name = selected_user(config, &self.overrides());
        let mut changed = config.clone();
        let entry = changed.users.entry(name).or_default();
        if let Some(provider) = entry.get_mut("auth-provider").and_then(Value::as_object_mut) {
            provider.insert("config".to_owned(), Value::Object(tokens));
        }
        modify_config(&self.loading_rules(), config, &changed)
    }

    /// The level of `-v`.
    pub fn log_level(&self) -> LogLevel {
        LogLevel(self.flags.int("v"))
    }

    /// The client.
    pub fn client(&self) -> CommandResult<&RestClient> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = RestClient::new(self.settings()?, &self.command.path, self.log_level())?;
        let client = self.client.get_or_init(|| client);
        if self.flags.bool("match-server-version") {
            self.check_server_version(client)?;
        }
        Ok(client)
    }

    fn check_server_version(&self, client: &RestClient) -> CommandResult {
        let version = client.send_json(RestRequest::get("/version"))?;
        let found = version.get("gitVersion").and_then(Value::as_str).unwrap_or_default();
        let bare = found.split('+').next().unwrap_or(found);
        if bare != api::KUBERNETES_VERSION {
            crate::bail!("server version ({found}) differs from client version ({})", api::KUBERNETES_VERSION);
        }
        Ok(())
    }

    /// The number of warnings of the server, for `--warnings-as-errors`.
    pub fn warning_count(&self) -> usize {
        self.client.get().map_or(0, RestClient::warning_count)
    }

    fn discovery_client(&self) -> CommandResult<&Discovery> {
        let host = &self.client()?.settings.host;
        Ok(self.discovery.get_or_init(|| {
            let mut directory = expand_home(&self.flags.string("cache-dir"));
            if !self.flags.changed("cache-dir")
                && let Ok(cache) = std::env::var("KUBECACHEDIR")
            {
                directory = cache;
            }
            Discovery::new(&directory, host)
        }))
    }

    /// The groups and resources of the server, from the cache while it is valid.
    pub fn discovery(&self) -> CommandResult<Rc<DiscoveryData>> {
        self.discovery_client()?.load(self.client()?)
    }

    /// The groups and resources as the server has them now.
    pub fn fresh_discovery(&self) -> CommandResult<Rc<DiscoveryData>> {
        let discovery = self.discovery_client()?;
        if discovery.is_fresh() { discovery.load(self.client()?) } else { discovery.reload(self.client()?) }
    }

    /// Whether the server has a group now.
    pub fn has_group(&self, name: &str) -> CommandResult<bool> {
        let data = self.discovery_client()?.reload_quietly(self.client()?)?;
        Ok(data.groups.iter().any(|group| group.name == name))
    }

    /// Looks something up in discovery; a miss in the cache is looked up once more at the server.
    pub fn look_up<T>(&self, find: impl Fn(&DiscoveryData) -> Option<T>) -> CommandResult<Option<T>> {
        if let Some(found) = find(&*self.discovery()?) {
            return Ok(Some(found));
        }
        if self.discovery_client()?.is_fresh() {
            return Ok(None);
        }
        Ok(find(&*self.fresh_discovery()?))
    }

    /// Looks a resource up as upstream's mapper does: without an answer the short name and the full one each ask the server.
    pub fn look_up_resource<T>(&self, find: impl Fn(&DiscoveryData) -> Option<T>) -> CommandResult<Option<T>> {
        self.client()?;
        self.look_up(&find).or_else(|_| self.look_up(&find))
    }

    /// The mapping of an argument such as `deploy`, `pods.v1` or `Deployment.apps`.
    pub fn mapping_for_argument(&self, argument: &str) -> CommandResult<RestMapping> {
        self.client()?;
        let find = |data: &DiscoveryData| data.find_argument(argument);
        let mut found = self.look_up(find);
        // Without an answer the argument is taken for a resource and for a kind, by full and by short name, and each asks the
        // server.
        let others = if argument.matches('.').count() > 1 { 5 } else { 3 };
        for _ in 0..others {
            if found.is_ok() {
                break;
            }
            found = self.look_up(find);
        }
        let found = found?;
        let name = argument.split('.').next().unwrap_or(argument);
        found.ok_or_else(|| CommandError::new(format!("the server doesn't have a resource type {}", go_quote(name))))
    }

    /// The mapping of a kind.
    pub fn mapping_for_kind(&self, group: &str, version: &str, kind: &str) -> CommandResult<RestMapping> {
        let find = |data: &DiscoveryData| {
            let found = data.find_kind(group, kind, version).map(RestMapping::from_resource);
            found.or_else(|| data.find_kind(group, kind.strip_suffix("List")?, version).map(RestMapping::of_lists))
        };
        let api_version = crate::discovery::group_version(group, version);
        self.look_up(find)?.ok_or(CommandError::NoKindMatch { kind: kind.to_owned(), api_version })
    }

    /// The mapping of an object.
    pub fn mapping_of(&self, object: &Value) -> CommandResult<RestMapping> {
        let (group, version, kind) = crate::object::group_version_kind(object);
        self.mapping_for_kind(&group, &version, &kind)
    }

    /// Downloads the list of OpenAPI documents, which field validation depends on.
    pub fn check_openapi(&self) -> CommandResult {
        if self.openapi_checked.replace(true) {
            return Ok(());
        }
        let client = self.client()?;
        let mut request = RestRequest::get("/openapi/v3");
        request.default_timeout = 32_000_000_000;
        match client.send_any(&request) {
            Ok(_) => Ok(()),
            Err(CommandError::Connection(mut error)) => {
                error.url = error.url.replace("/openapi/v3", "/openapi/v2");
                Err(CommandError::new(format!("failed to download openapi: {error}")))
            }
            Err(error) => Err(error),
        }
    }
}
