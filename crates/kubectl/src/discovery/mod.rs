//! Discovery: the groups, versions and resources that the server has, with a cache on disk.

mod cache;
mod download;
mod rest_mapper;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use api::Value;

pub use rest_mapper::RestMapping;

use crate::{
    errors::CommandResult,
    rest::{RestClient, log_line},
};

/// A group of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiGroup {
    /// The name; empty for the core group.
    pub name: String,
    /// The versions, in the server's order.
    pub versions: Vec<String>,
    /// The preferred version.
    pub preferred: String,
}

/// A resource of a group and version.
#[derive(Clone, Debug, Default)]
pub struct ApiResource {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name; subresources have a slash.
    pub name: String,
    /// The singular name.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// The verbs.
    pub verbs: Vec<String>,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// The entry as it is cached.
    pub entry: Value,
}

/// All groups and resources.
#[derive(Clone, Debug, Default)]
pub struct DiscoveryData {
    /// The groups in the server's order, the core group first.
    pub groups: Vec<ApiGroup>,
    /// The resources, by group and version in the server's order.
    pub resources: Vec<ApiResource>,
    /// The group-versions whose resources are not known, with the cause.
    pub failures: Vec<(String, String)>,
}

/// The discovery client.
#[derive(Debug, Default)]
pub struct Discovery {
    directory: String,
    http_directory: String,
    data: RefCell<Option<Rc<DiscoveryData>>>,
    fresh: Cell<bool>,
}

impl Discovery {
    /// A client with its cache under `cache_directory`.
    pub fn new(cache_directory: &str, host: &str) -> Self {
        let directory = format!("{cache_directory}/discovery/{}", cache::host_directory(host));
        let http_directory = format!("{cache_directory}/http");
        Discovery { directory, http_directory, ..Default::default() }
    }

    /// The groups and resources, from the cache while it is valid.
    pub fn load(&self, client: &RestClient) -> CommandResult<Rc<DiscoveryData>> {
        if let Some(data) = self.data.borrow().as_ref() {
            return Ok(data.clone());
        }
        if let Some(data) = cache::read_cache(&self.directory) {
            return Ok(self.remember(data));
        }
        self.reload(client)
    }

    /// The groups and resources as the server has them now; logs an error.
    pub fn reload(&self, client: &RestClient) -> CommandResult<Rc<DiscoveryData>> {
        self.reload_quietly(client).inspect_err(|error| {
            let text = format!("couldn't get current server API group list: {error}");
            let line = format!("\"Unhandled Error\" err={}", api::json::go_quote(&text));
            log_line('E', "memcache.go:265", &line);
        })
    }

    /// The groups and resources as the server has them now.
    pub fn reload_quietly(&self, client: &RestClient) -> CommandResult<Rc<DiscoveryData>> {
        let data = download::download(client, &self.http_directory)?;
        cache::write_cache(&self.directory, &data);
        self.fresh.set(true);
        Ok(self.remember(data))
    }

    fn remember(&self, data: DiscoveryData) -> Rc<DiscoveryData> {
        let data = Rc::new(data);
        *self.data.borrow_mut() = Some(data.clone());
        data
    }

    /// Whether the data was downloaded by this process.
    pub fn is_fresh(&self) -> bool {
        self.fresh.get()
    }
}

impl DiscoveryData {
    /// The resources of a group-version such as `apps/v1`.
    pub fn resources_of<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a ApiResource> {
        self.resources.iter().filter(move |resource| resource.group == group && resource.version == version)
    }

    /// The resources in their preferred versions.
    pub fn preferred_resources(&self) -> Vec<&ApiResource> {
        let mut chosen: Vec<&ApiResource> = Vec::new();
        for resource in self.resources.iter().filter(|resource| !resource.name.contains('/')) {
            let preferred =
                self.groups.iter().any(|group| group.name == resource.group && group.preferred == resource.version);
            let same = |known: &ApiResource| known.group == resource.group && known.name == resource.name;
            match chosen.iter().position(|known| same(known)) {
                Some(at) if preferred => chosen[at] = resource,
                Some(_) => {}
                None => chosen.push(resource),
            }
        }
        chosen
    }
}

/// `group/version`, or the version alone for the core group.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
