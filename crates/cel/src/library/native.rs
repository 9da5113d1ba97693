//! Values of the types that only Kubernetes' libraries define.

use std::{fmt, net::IpAddr, sync::Arc};

use formats::{quantity::Quantity, url::Url};

use super::{
    authorizer::{Asked, Decision, User},
    ip::Cidr,
    named_format::NamedFormat,
    semver::Semver,
};
use crate::types::names;

/// A value of a type that only Kubernetes' libraries define.
#[derive(Clone, Debug, PartialEq)]
pub enum Native {
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
    Authorizer(User),
    #[doc(hidden)]
    PathCheck(Asked),
    #[doc(hidden)]
    GroupCheck(Asked),
    #[doc(hidden)]
    ResourceCheck(Asked),
    #[doc(hidden)]
    Decision(Decision),
}

impl Native {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Url(_) => names::URL,
            Self::Quantity(_) => names::QUANTITY,
            Self::Semver(_) => names::SEMVER,
            Self::Format(_) => names::FORMAT,
            Self::Ip(_) => names::IP,
            Self::Cidr(_) => names::CIDR,
            Self::Authorizer(_) => names::AUTHORIZER,
            Self::PathCheck(_) => names::PATH_CHECK,
            Self::GroupCheck(_) => names::GROUP_CHECK,
            Self::ResourceCheck(_) => names::RESOURCE_CHECK,
            Self::Decision(_) => names::DECISION,
        }
    }

    /// Returns the size for the cost model: the address length in bytes, for CIDRs that of the prefix.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(cidr) => u64::from(cidr.bits.div_ceil(8)),
            _ => 1,
        }
    }

    pub(crate) fn value<'a>(self) -> crate::Value<'a> {
        crate::Value::Native(Arc::new(self))
    }
}

impl fmt::Display for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Cidr(cidr) => cidr.fmt(f),
            other => f.write_str(other.type_name()),
        }
    }
}
