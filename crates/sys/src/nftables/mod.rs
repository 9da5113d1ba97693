//! nf_tables over netlink: atomic transactions of tables, chains, rules, sets and verdict maps.
//!
//! No `nft` program is involved. A [`Transaction`] collects changes and applies all or none of them. Names and
//! constants follow `linux/netfilter/nf_tables.h`; types of set keys are those that `nft list ruleset` shows.

mod expression;
mod listing;
mod monitor;
mod set;
mod transaction;

use std::io;

pub use expression::{
    Compare, CtKey, DynamicSetUpdate, Expression, FibAddress, MetaKey, PayloadBase, Register, Reject, VERDICT_REGISTER,
};
pub use listing::{count_elements, list_elements, list_tables};
pub use monitor::TableMonitor;
pub use set::{DataType, ElementData, SetElement, SetKind, SetSpec};
pub use transaction::Transaction;

/// A protocol family of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
}

impl Family {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }
}

/// A table, named by family and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    /// The family.
    pub family: Family,
    /// The name.
    pub name: String,
}

impl TableName {
    /// Names a table.
    pub fn new(family: Family, name: impl Into<String>) -> Self {
        Self { family, name: name.into() }
    }

    /// The number of the family, as expressions of rules need it.
    pub fn family_number(&self) -> u8 {
        self.family.number()
    }
}

/// A hook that a base chain is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// Packets to this host.
    Input,
    /// Routed packets.
    Forward,
    /// Packets from this host.
    Output,
    /// Before leaving.
    Postrouting,
}

/// The type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainType {
    /// Every packet passes.
    Filter,
    /// The first packet of a connection passes.
    Nat,
    /// Packets are routed again after a change.
    Route,
}

/// The place of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// The chain type.
    pub kind: ChainType,
    /// The hook.
    pub hook: Hook,
    /// The priority at the hook; lower runs earlier.
    pub priority: i32,
}

/// Verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The packet is accepted by this base chain.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Evaluation goes on in a chain and comes back.
    Jump(String),
    /// Evaluation goes on in a chain.
    Goto(String),
    /// Evaluation goes back to the caller.
    Return,
}

/// A transaction or a listing failed.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The kernel refused a change of the transaction; none was applied.
    #[error("nf_tables refused to {operation}: {source}")]
    Refused {
        /// The change.
        operation: String,
        /// The error code.
        source: io::Error,
    },
    /// The netlink socket failed.
    #[error("nf_tables: {0}")]
    Socket(#[from] io::Error),
}

impl NftError {
    /// The operating system's error.
    pub fn io_error(&self) -> &io::Error {
        match self {
            Self::Refused { source, .. } | Self::Socket(source) => source,
        }
    }
}
