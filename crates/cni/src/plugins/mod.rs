//! The plug-ins, one file or folder each, and what they have in common.

mod bridge;
mod container_link;
mod host_local;
mod loopback;
mod masquerade;
mod nft_elements;
mod portmap;
mod ptp;
mod static_ipam;
mod tuning;

pub use masquerade::remove_masquerade;
pub use portmap::remove_host_ports;

use crate::{plugin_error::PluginError, request::CniRequest, result::CniResult};

/// A plug-in. Every operation may be repeated; DEL succeeds if there is nothing left to delete.
pub trait CniPlugin: Sync {
    /// Attaches a container.
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError>;

    /// Detaches a container.
    fn delete(&self, request: &CniRequest) -> Result<(), PluginError>;

    /// Checks that a container is attached as the previous result says.
    fn check(&self, request: &CniRequest) -> Result<(), PluginError>;

    /// Removes what belongs to no valid attachment.
    fn collect_garbage(&self, _request: &CniRequest) -> Result<(), PluginError> {
        Ok(())
    }

    /// Whether the plug-in is ready for ADD.
    fn status(&self, _request: &CniRequest) -> Result<(), PluginError> {
        Ok(())
    }
}

/// Finds a plug-in by name.
pub fn find_plugin(name: &str) -> Option<&'static dyn CniPlugin> {
    match name {
        "bridge" => Some(&bridge::BridgePlugin),
        "host-local" => Some(&host_local::HostLocalPlugin),
        "loopback" => Some(&loopback::LoopbackPlugin),
        "portmap" => Some(&portmap::PortmapPlugin),
        "ptp" => Some(&ptp::PtpPlugin),
        "tuning" => Some(&tuning::TuningPlugin),
        "static" => Some(&static_ipam::StaticPlugin),
        _ => None,
    }
}
