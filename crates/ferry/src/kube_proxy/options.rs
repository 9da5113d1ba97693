//! The validated options of `kube-proxy`.

use std::{net::IpAddr, path::PathBuf};

use network::proxy::{NodePortAddresses, ServiceProxyOptions};
use sys::net::IpCidr;

use crate::{flags::ParsedFlags, user_error::user_error};

/// Options of the proxy process.
pub struct KubeProxyOptions {
    /// The kubeconfig file of the API server.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL, which overrides that of the kubeconfig.
    pub master: Option<String>,
    /// The address of `/healthz`.
    pub health_address: Option<String>,
    /// The address of `/metrics`.
    pub metrics_address: Option<String>,
    /// Whether a port that cannot be bound is an error.
    pub hard_fail: bool,
    /// Options of the proxy itself.
    pub proxy: ServiceProxyOptions,
}

impl KubeProxyOptions {
    /// Checks the given flags.
    pub fn from_flags(given: &ParsedFlags<'_>, table: &str) -> anyhow::Result<Self> {
        let (kubeconfig, master) = (given.text("kubeconfig").map(PathBuf::from), given.text("master"));
        if kubeconfig.is_none() && master.is_none() {
            return Err(user_error(
                "nothing says where the API server is",
                "Give --kubeconfig FILE with the API server's address and credentials.",
            ));
        }
        if let Some(mode) = given.text("proxy-mode").filter(|mode| mode != "nftables") {
            return Err(given.invalid("proxy-mode", &mode, "there is only nftables").into());
        }
        let host = || rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase();
        let node_name = given.text("hostname-override").unwrap_or_else(host);
        let address = |flag: &str| given.text(flag).filter(|address| !address.is_empty());
        Ok(Self {
            kubeconfig,
            master,
            health_address: address("healthz-bind-address"),
            metrics_address: address("metrics-bind-address"),
            hard_fail: given.bool("bind-address-hard-fail")?,
            proxy: proxy_options(given, &node_name, table)?,
        })
    }
}

fn proxy_options(given: &ParsedFlags<'_>, node_name: &str, table: &str) -> anyhow::Result<ServiceProxyOptions> {
    let ranges = |flag: &str| -> anyhow::Result<Vec<IpCidr>> {
        let texts = given.many(flag);
        let parse = |text: &String| text.parse().map_err(|_| given.invalid(flag, text, "it is not a CIDR"));
        Ok(texts.iter().map(parse).collect::<Result<Vec<_>, _>>()?)
    };
    let mode = given.text("detect-local-mode");
    let use_node_cidrs = match mode.as_deref() {
        None | Some("ClusterCIDR") => false,
        Some("NodeCIDR") => true,
        Some(mode) => {
            return Err(given.invalid("detect-local-mode", mode, "there are ClusterCIDR and NodeCIDR").into());
        }
    };
    let texts = given.text("cluster-cidr").unwrap_or_default();
    let cluster_cidrs = texts
        .split(',')
        .filter(|text| !text.is_empty())
        .map(|text| text.trim().parse().map_err(|_| given.invalid("cluster-cidr", text, "it is not a CIDR")));
    let node_port_addresses = match given.many("nodeport-addresses").as_slice() {
        [] => NodePortAddresses::Primary,
        [only] if only == "primary" => NodePortAddresses::Primary,
        _ => NodePortAddresses::Ranges(ranges("nodeport-addresses")?),
    };
    let bit: u8 = given.required("iptables-masquerade-bit")?;
    if bit > 31 {
        return Err(given.invalid("iptables-masquerade-bit", &bit.to_string(), "it must be within [0, 31]").into());
    }
    let bound: Option<IpAddr> = given.value("bind-address")?.filter(|ip: &IpAddr| !ip.is_unspecified());
    Ok(ServiceProxyOptions {
        node_ips: bound.into_iter().collect(),
        cluster_cidrs: cluster_cidrs.collect::<Result<_, _>>()?,
        use_node_cidrs,
        node_port_addresses,
        masquerade_all: given.bool("masquerade-all")?,
        masquerade_bit: bit,
        ..ServiceProxyOptions::new(node_name, table)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::FlagTable;

    fn check(arguments: &[&str]) -> Result<KubeProxyOptions, String> {
        let table = FlagTable::parse(super::super::FLAGS);
        let arguments = ["--kubeconfig=/x"].iter().chain(arguments).map(|text| (*text).to_owned());
        let given = table.read(arguments).map_err(|error| error.to_string())?;
        KubeProxyOptions::from_flags(&given, "t").map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_read() {
        let options = check(&["--hostname-override=n1", "--cluster-cidr=10.1.0.0/16,fd00::/48"]).unwrap();
        assert_eq!((options.proxy.node_name.as_str(), options.proxy.cluster_cidrs.len()), ("n1", 2));
        assert_eq!(options.health_address.as_deref(), Some("0.0.0.0:10256"));
        let ranges = check(&["--nodeport-addresses=10.0.0.0/8,192.168.0.0/16"]).unwrap().proxy.node_port_addresses;
        assert!(matches!(ranges, NodePortAddresses::Ranges(ranges) if ranges.len() == 2));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let error = |arguments: &[&str]| check(arguments).err().unwrap_or_default();
        assert!(error(&["--proxy-mode=ipvs"]).contains("proxy-mode"));
        assert!(error(&["--cluster-cidr=x"]).contains("cluster-cidr"));
        assert!(error(&["--detect-local-mode=BridgeInterface"]).contains("detect-local-mode"));
        assert!(error(&["--config=f"]).contains("config"));
        assert!(error(&["--iptables-masquerade-bit=32"]).contains("masquerade-bit"));
    }
}
