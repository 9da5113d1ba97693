//! Values of the types that only Kubernetes' libraries define.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use formats::{quantity::Quantity, url::Url};

use super::{
    Value,
    authorizer::{AuthorizationDecision, Authorizer, AuthorizerValue, CheckTarget, PendingCheck, ResourceAttributes},
    semver::Semver,
};
use crate::types::type_names;

/// A value of a type that only Kubernetes' libraries define.
#[derive(Clone, Debug, PartialEq)]
pub enum NativeValue {
    #[doc(hidden)]
    Url(Url),
    #[doc(hidden)]
    Quantity(Quantity),
    #[doc(hidden)]
    Semver(Semver),
    #[doc(hidden)]
    Format(&'static NamedFormat),
    #[doc(hidden)]
    Ip(IpAddr),
    #[doc(hidden)]
    Cidr(Cidr),
    #[doc(hidden)]
    Authorizer(AuthorizerValue),
    #[doc(hidden)]
    PathCheck(PendingCheck),
    #[doc(hidden)]
    GroupCheck(PendingCheck),
    #[doc(hidden)]
    ResourceCheck(PendingCheck),
    #[doc(hidden)]
    Decision(AuthorizationDecision),
}

impl NativeValue {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Url(_) => type_names::URL,
            Self::Quantity(_) => type_names::QUANTITY,
            Self::Semver(_) => type_names::SEMVER,
            Self::Format(_) => type_names::FORMAT,
            Self::Ip(_) => type_names::IP,
            Self::Cidr(_) => type_names::CIDR,
            Self::Authorizer(_) => type_names::AUTHORIZER,
            Self::PathCheck(_) => type_names::PATH_CHECK,
            Self::GroupCheck(_) => type_names::GROUP_CHECK,
            Self::ResourceCheck(_) => type_names::RESOURCE_CHECK,
            Self::Decision(_) => type_names::DECISION,
        }
    }

    /// Returns the size for the cost model: the address length in bytes, for CIDRs that of the prefix.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(cidr) => u64::from(cidr.bits.div_ceil(8)),
            _ => 1,
        }
    }

    pub(crate) fn into_value<'a>(self) -> Value<'a> {
        Value::Native(Arc::new(self))
    }
}

impl fmt::Display for NativeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Cidr(cidr) => cidr.fmt(f),
            other => f.write_str(other.type_name()),
        }
    }
}

impl Value<'_> {
    /// The value of the variable `authorizer`.
    pub fn from_authorizer(authorizer: Arc<dyn Authorizer>) -> Self {
        NativeValue::Authorizer(AuthorizerValue::new(authorizer)).into_value()
    }

    /// The value of `authorizer.requestResource`.
    pub fn from_resource_check(authorizer: Arc<dyn Authorizer>, resource: ResourceAttributes) -> Self {
        let check = AuthorizerValue::new(authorizer).start_check(CheckTarget::Resource(resource));
        NativeValue::ResourceCheck(check).into_value()
    }
}

/// A named string format.
#[derive(Debug)]
pub struct NamedFormat {
    pub(crate) name: &'static str,
    pub(crate) problems: fn(&str) -> Vec<String>,
    /// Length of upstream's regular expression; the cost model uses it.
    pub(crate) pattern_size: u64,
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A CIDR: an address and its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    pub(crate) fn masked_prefix(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & prefix_mask(self.bits, 32) as u32))
            }
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & prefix_mask(self.bits, 128))),
        };
        Self { address, bits: self.bits }
    }

    pub(crate) fn contains_address(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self { address, bits: self.bits }.masked_prefix().address == self.masked_prefix().address
    }
}

/// Returns a mask of `bits` leading ones in a number of `width` bits.
fn prefix_mask(bits: u8, width: u32) -> u128 {
    u128::MAX.checked_shl(width - u32::from(bits)).unwrap_or(0)
}
