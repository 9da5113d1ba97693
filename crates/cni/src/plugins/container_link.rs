//! The link of a container: a veth pair, its addresses and routes, and their removal.

use std::{io, net::IpAddr};

use sys::{
    net::{self, IpCidr, MacAddress, NetworkLink, Route, VethPeer},
    netns::NetworkNamespace,
};

use crate::{
    plugin_error::PluginError,
    request::CniRequest,
    result::{CniResult, ResultInterface},
};

/// Tries of random names for the host's end.
const NAME_ATTEMPTS: usize = 10;

/// The two ends of a veth pair.
pub struct ContainerLink {
    pub host: NetworkLink,
    pub container: NetworkLink,
}

impl ContainerLink {
    /// Creates a pair: the host's end with a random name, the container's end under the requested name. Both are up.
    pub fn create(
        request: &CniRequest,
        namespace: &NetworkNamespace,
        mtu: Option<u32>,
        mac: Option<MacAddress>,
    ) -> Result<Self, PluginError> {
        use std::os::fd::AsFd;
        let interface = request.interface.as_str();
        let exists = in_namespace(namespace, || net::find_link(interface))?;
        if exists.map_err(|error| PluginError::io("links of the container", &error))?.is_some() {
            return Err(PluginError::new(
                PluginError::INTERNAL,
                format!("container veth name ({interface:?}) already exists"),
            ));
        }
        let mut created = Err(io::ErrorKind::AlreadyExists.into());
        let mut name = String::new();
        for _ in 0..NAME_ATTEMPTS {
            name = format!("veth{:08x}", fastrand::u32(..));
            created = net::create_veth(&name, mtu, VethPeer { name: interface, namespace: namespace.as_fd(), mac });
            if !matches!(&created, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        created.map_err(|error| PluginError::io(format_args!("failed to make veth pair {name}"), &error))?;
        let set_up = || {
            let host = net::link_by_name(&name)?;
            net::set_link_up(host.index, true)?;
            let container = namespace.run(|| {
                let container = net::link_by_name(interface)?;
                net::set_link_up(container.index, true)?;
                net::link_by_name(interface)
            })??;
            Ok(Self { host: net::link_by_name(&name)?, container })
        };
        set_up().map_err(|error: io::Error| {
            // The pair is of no use to anybody else; a failure to delete it changes nothing about the error.
            let _ = net::delete_link(&name);
            PluginError::io(format_args!("failed to set up {name}"), &error)
        })
    }

    /// The interfaces of a result: the host's end, then the container's.
    pub fn interfaces(&self, request: &CniRequest) -> [ResultInterface; 2] {
        let interface = |link: &NetworkLink, sandbox: &str| ResultInterface {
            name: link.name.clone(),
            mac: link.mac.map(format_mac).unwrap_or_default(),
            mtu: Some(link.mtu),
            sandbox: sandbox.into(),
        };
        [interface(&self.host, ""), interface(&self.container, &request.namespace)]
    }
}

/// Runs `work` in a container's namespace.
pub fn in_namespace<T: Send>(namespace: &NetworkNamespace, work: impl FnOnce() -> T + Send) -> Result<T, PluginError> {
    namespace.run(work).map_err(|error| PluginError::io("cannot enter the network namespace", &error))
}

/// Deletes the container's link; a namespace or link that is gone is fine.
pub fn delete_container_link(request: &CniRequest) -> Result<(), PluginError> {
    if request.namespace.is_empty() {
        return Ok(());
    }
    let namespace = match NetworkNamespace::open(&request.namespace) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(PluginError::io(format_args!("failed to open netns {:?}", request.namespace), &error));
        }
        Ok(namespace) => namespace,
    };
    let interface = request.interface.as_str();
    let deleted = in_namespace(&namespace, || net::delete_link(interface))?;
    deleted.map(drop).map_err(|error| PluginError::io(format_args!("failed to delete {interface:?}"), &error))
}

/// Checks that the container's link has the addresses and routes of a result.
pub fn check_container(request: &CniRequest, result: &CniResult) -> Result<(), PluginError> {
    let namespace = request.open_namespace()?;
    let interface = request.interface.as_str();
    let found = in_namespace(&namespace, || {
        Ok::<_, io::Error>((net::find_link(interface)?, net::list_addresses()?, net::list_routes()?))
    })?;
    let (link, addresses, routes) = found.map_err(|error| PluginError::io("network of the container", &error))?;
    let Some(link) = link else {
        return Err(PluginError::mismatch(format!("Container Interface {interface} is missing")));
    };
    for ip in &result.ips {
        let is_there = |address: &net::LinkAddress| {
            address.link == link.index && address.ip == ip.address.address && address.prefix == ip.address.prefix
        };
        if !addresses.iter().any(is_there) {
            return Err(PluginError::mismatch(format!("Failed to match addr {} on interface {interface}", ip.address)));
        }
    }
    for route in &result.routes {
        if !routes.iter().any(|known| known.destination.network() == route.destination.network()) {
            return Err(PluginError::mismatch(format!("Failed to find route {} in the container", route.destination)));
        }
    }
    Ok(())
}

/// Adds the routes of a result, each by its own gateway or that of the first address of its family.
pub fn add_routes(result: &CniResult, link: u32) -> io::Result<()> {
    for route in &result.routes {
        let is_ipv4 = route.destination.is_ipv4();
        let default = || result.ips.iter().find(|ip| ip.address.is_ipv4() == is_ipv4).and_then(|ip| ip.gateway);
        let gateway = route.gateway.or_else(default);
        let route = Route { gateway, mtu: route.mtu, ..Route::new(route.destination, link) };
        match net::add_route(&route) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Lets the host forward packets of the families that a result has.
pub fn enable_forwarding(ips: impl Iterator<Item = IpAddr>) -> Result<(), PluginError> {
    let mut families: Vec<bool> = ips.map(|ip| ip.is_ipv4()).collect();
    families.sort_unstable();
    families.dedup();
    for is_ipv4 in families {
        let path = if is_ipv4 { "/proc/sys/net/ipv4/ip_forward" } else { "/proc/sys/net/ipv6/conf/all/forwarding" };
        let failed = |error: io::Error| PluginError::io("could not enable IP forwarding", &error);
        if std::fs::read_to_string(path).map_err(failed)?.trim() != "1" {
            std::fs::write(path, "1").map_err(failed)?;
        }
    }
    Ok(())
}

/// The first host address of a range, which is its gateway if none is given.
pub fn first_host(range: IpCidr) -> IpAddr {
    match range.first() {
        IpAddr::V4(first) => IpAddr::V4((u32::from(first).wrapping_add(1)).into()),
        IpAddr::V6(first) => IpAddr::V6((u128::from(first).wrapping_add(1)).into()),
    }
}

/// Formats a hardware address.
pub fn format_mac(mac: MacAddress) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Parses a hardware address.
pub fn parse_mac(text: &str) -> Option<MacAddress> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    bytes?.try_into().ok()
}
