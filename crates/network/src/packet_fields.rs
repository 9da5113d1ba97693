//! Expressions that load fields of packets, for both IP families.

use sys::nftables::{DataType, Expression, Family, MetaKey, PayloadBase, Register};

/// Offsets of the fields of an IP family's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketFields {
    pub is_ipv4: bool,
}

impl PacketFields {
    pub fn of_family(family: Family) -> Self {
        Self { is_ipv4: family == Family::Ip }
    }

    /// Registers of an address.
    pub fn words(self) -> Register {
        if self.is_ipv4 { 1 } else { 4 }
    }

    /// The type of addresses in sets.
    pub fn address_type(self) -> DataType {
        if self.is_ipv4 { DataType::Ipv4Address } else { DataType::Ipv6Address }
    }

    pub fn load_source(self, into: Register) -> Expression {
        let (offset, length) = if self.is_ipv4 { (12, 4) } else { (8, 16) };
        Expression::Payload { base: PayloadBase::Network, offset, length, into }
    }

    pub fn load_destination(self, into: Register) -> Expression {
        let (offset, length) = if self.is_ipv4 { (16, 4) } else { (24, 16) };
        Expression::Payload { base: PayloadBase::Network, offset, length, into }
    }

    /// Loads protocol and destination port.
    pub fn load_port(self, into: Register) -> Vec<Expression> {
        vec![
            Expression::Meta { key: MetaKey::L4Proto, into },
            Expression::Payload { base: PayloadBase::Transport, offset: 2, length: 2, into: into + 1 },
        ]
    }

    /// Loads destination address, protocol and port.
    pub fn load_frontend(self, into: Register) -> Vec<Expression> {
        [vec![self.load_destination(into)], self.load_port(into + self.words())].concat()
    }
}
