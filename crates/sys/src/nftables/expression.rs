//! Expressions of rules, the instructions of nf_tables' virtual machine.
//!
//! A rule's expressions run in order over 16 registers of four bytes. An expression that does not match ends the rule.

use super::{Family, Verdict};
use crate::netlink::AttributeBuffer;

/// A 32-bit register, 0 to 15. Longer values use the following ones.
pub type Register = u8;

/// In place of a destination register: the result is a verdict.
pub const VERDICT_REGISTER: u32 = 0;
/// The netlink number of register 0.
const FIRST_REGISTER: u32 = 8;

const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 16;

/// The header that a payload offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadBase {
    /// The IP header.
    Network,
    /// The TCP, UDP or SCTP header.
    Transport,
}

/// A fact about a packet outside of its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// The packet mark.
    Mark,
    /// Index of the incoming interface.
    Iif,
    /// Index of the outgoing interface.
    Oif,
    /// Name of the incoming interface, 16 bytes.
    IifName,
    /// Name of the outgoing interface, 16 bytes.
    OifName,
    /// The network protocol: 2 or 10, in tables for both.
    NfProto,
    /// The transport protocol.
    L4Proto,
}

/// A fact about a packet's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtKey {
    /// The state bits: 2 established, 4 related, 8 new.
    State,
    /// The direction: 0 original, 1 reply.
    Direction,
    /// The status bits, for example 32: the destination was translated.
    Status,
    /// The connection mark.
    Mark,
}

/// Which address the routing table is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibAddress {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
}

/// An answer to a refused packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// ICMP or ICMPv6 port unreachable, in a table of this family.
    PortUnreachable(Family),
    /// A TCP reset; only after a match of TCP.
    TcpReset,
}

/// A change of a set or map by a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicSetUpdate {
    /// The set.
    pub set: String,
    /// The first register of the key.
    pub key: Register,
    /// The first register of the data, for maps.
    pub data: Option<Register>,
    /// The lifetime in milliseconds.
    pub timeout: Option<u64>,
}

/// One expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads bytes of a header.
    Payload {
        /// The header.
        base: PayloadBase,
        /// The offset in it.
        offset: u32,
        /// The number of bytes.
        length: u32,
        /// The destination.
        into: Register,
    },
    /// Loads a fact about the packet.
    Meta {
        /// Which.
        key: MetaKey,
        /// The destination.
        into: Register,
    },
    /// Sets the packet mark.
    SetMark {
        /// The source.
        from: Register,
    },
    /// Loads a fact about the connection.
    Ct {
        /// Which.
        key: CtKey,
        /// The destination.
        into: Register,
    },
    /// Loads the type of an address by the routing table: 2 is local.
    FibType {
        /// Which address.
        address: FibAddress,
        /// The destination.
        into: Register,
    },
    /// Matches if a register compares to a value.
    Compare {
        /// The register.
        from: Register,
        /// The comparison.
        operation: Compare,
        /// The value.
        value: Vec<u8>,
    },
    /// Computes `register & mask ^ xor`.
    Bitwise {
        /// The source.
        from: Register,
        /// The destination.
        into: Register,
        /// The bits that stay.
        mask: Vec<u8>,
        /// The bits that are flipped then.
        xor: Vec<u8>,
    },
    /// Loads a value.
    Immediate {
        /// The value.
        value: Vec<u8>,
        /// The destination.
        into: Register,
    },
    /// Matches if a set has the key, or has it not if `inverted`.
    InSet {
        /// The set.
        set: String,
        /// The first register of the key.
        from: Register,
        /// Matches if the key is absent.
        inverted: bool,
    },
    /// Loads a map's value; does not match if the key is absent.
    MapLookup {
        /// The map.
        map: String,
        /// The first register of the key.
        from: Register,
        /// The destination.
        into: Register,
    },
    /// Applies the verdict that a verdict map has for the key, if any.
    VerdictMap {
        /// The map.
        map: String,
        /// The first register of the key.
        from: Register,
    },
    /// Adds or refreshes an element of a set.
    UpdateSet(DynamicSetUpdate),
    /// Loads a random number below `modulus`.
    Random {
        /// The bound.
        modulus: u32,
        /// The destination.
        into: Register,
    },
    /// Translates the destination address and port.
    Dnat {
        /// 2 for IPv4, 10 for IPv6.
        family: u8,
        /// The address.
        address: Register,
        /// The port.
        port: Option<Register>,
    },
    /// Translates the source to the address of the outgoing interface, with a random port.
    Masquerade,
    /// Counts packets and bytes.
    Counter,
    /// Refuses the packet with an answer.
    Reject(Reject),
    /// Applies a verdict.
    Verdict(Verdict),
}

/// Adds the attributes of an expression.
type AttributeEncoder<'a> = Box<dyn FnOnce(&mut AttributeBuffer) + 'a>;

impl Expression {
    /// Encodes name and data.
    pub(super) fn encode(&self, out: &mut AttributeBuffer) {
        let (name, data) = self.attributes();
        out.put_text(NFTA_EXPR_NAME, name).nest(NFTA_EXPR_DATA, data);
    }

    fn attributes(&self) -> (&'static str, AttributeEncoder<'_>) {
        match self {
            Self::Payload { base, offset, length, into } => (
                "payload",
                Box::new(move |out| {
                    let base = if *base == PayloadBase::Network { 1 } else { 2 };
                    out.put_be32(1, register(*into)).put_be32(2, base).put_be32(3, *offset).put_be32(4, *length);
                }),
            ),
            Self::Meta { key, into } => (
                "meta",
                Box::new(move |out| {
                    out.put_be32(1, register(*into)).put_be32(2, meta_number(*key));
                }),
            ),
            Self::SetMark { from } => (
                "meta",
                Box::new(move |out| {
                    out.put_be32(2, meta_number(MetaKey::Mark)).put_be32(3, register(*from));
                }),
            ),
            Self::Ct { key, into } => (
                "ct",
                Box::new(move |out| {
                    out.put_be32(1, register(*into)).put_be32(2, *key as u32);
                }),
            ),
            Self::FibType { address, into } => (
                "fib",
                Box::new(move |out| {
                    let flags = if *address == FibAddress::Source { 1 } else { 2 };
                    out.put_be32(1, register(*into)).put_be32(2, 3).put_be32(3, flags);
                }),
            ),
            Self::Compare { from, operation, value } => (
                "cmp",
                Box::new(move |out| {
                    out.put_be32(1, register(*from)).put_be32(2, *operation as u32);
                    out.nest(3, |data| put_value(data, value));
                }),
            ),
            Self::Bitwise { from, into, mask, xor } => (
                "bitwise",
                Box::new(move |out| {
                    out.put_be32(1, register(*from)).put_be32(2, register(*into)).put_be32(3, mask.len() as u32);
                    out.nest(4, |data| put_value(data, mask)).nest(5, |data| put_value(data, xor));
                }),
            ),
            Self::Immediate { value, into } => (
                "immediate",
                Box::new(move |out| {
                    out.put_be32(1, register(*into)).nest(2, |data| put_value(data, value));
                }),
            ),
            Self::InSet { set, from, inverted } => (
                "lookup",
                Box::new(move |out| {
                    out.put_text(1, set).put_be32(2, register(*from));
                    if *inverted {
                        out.put_be32(5, 1);
                    }
                }),
            ),
            Self::MapLookup { map, from, into } => (
                "lookup",
                Box::new(move |out| {
                    out.put_text(1, map).put_be32(2, register(*from)).put_be32(3, register(*into));
                }),
            ),
            Self::VerdictMap { map, from } => (
                "lookup",
                Box::new(move |out| {
                    out.put_text(1, map).put_be32(2, register(*from)).put_be32(3, VERDICT_REGISTER);
                }),
            ),
            Self::UpdateSet(update) => ("dynset", Box::new(move |out| encode_update(update, out))),
            Self::Random { modulus, into } => (
                "numgen",
                Box::new(move |out| {
                    out.put_be32(1, register(*into)).put_be32(2, *modulus).put_be32(3, 1).put_be32(4, 0);
                }),
            ),
            Self::Dnat { family, address, port } => (
                "nat",
                Box::new(move |out| {
                    out.put_be32(1, 1).put_be32(2, u32::from(*family)).put_be32(3, register(*address));
                    if let Some(port) = port {
                        out.put_be32(5, register(*port));
                    }
                }),
            ),
            Self::Masquerade => (
                "masq",
                Box::new(move |out| {
                    out.put_be32(1, NF_NAT_RANGE_PROTO_RANDOM_FULLY);
                }),
            ),
            Self::Counter => ("counter", Box::new(|_| {})),
            Self::Reject(kind) => ("reject", Box::new(move |out| encode_reject(*kind, out))),
            Self::Verdict(verdict) => (
                "immediate",
                Box::new(move |out| {
                    out.put_be32(1, VERDICT_REGISTER).nest(2, |data| put_verdict(data, verdict));
                }),
            ),
        }
    }
}

fn encode_update(update: &DynamicSetUpdate, out: &mut AttributeBuffer) {
    const UPDATE: u32 = 1;
    out.put_text(1, &update.set).put_be32(3, UPDATE).put_be32(4, register(update.key));
    if let Some(data) = update.data {
        out.put_be32(5, register(data));
    }
    if let Some(timeout) = update.timeout {
        out.put_be64(6, timeout);
    }
}

fn encode_reject(kind: Reject, out: &mut AttributeBuffer) {
    const ICMP: u32 = 0;
    const TCP_RESET: u32 = 1;
    const ICMPX: u32 = 2;
    let (kind, code) = match kind {
        Reject::PortUnreachable(Family::Ip) => (ICMP, 3),
        Reject::PortUnreachable(Family::Ip6) => (ICMP, 4),
        Reject::PortUnreachable(Family::Inet) => (ICMPX, 1),
        Reject::TcpReset => (TCP_RESET, 0),
    };
    out.put_be32(1, kind).put(2, &[code]);
}

/// Encodes a value as the content of a data attribute.
pub(super) fn put_value(out: &mut AttributeBuffer, value: &[u8]) {
    out.put(NFTA_DATA_VALUE, value);
}

/// Encodes a verdict as the content of a data attribute.
pub(super) fn put_verdict(out: &mut AttributeBuffer, verdict: &Verdict) {
    let (code, chain): (i32, Option<&str>) = match verdict {
        Verdict::Drop => (0, None),
        Verdict::Accept => (1, None),
        Verdict::Jump(chain) => (-3, Some(chain)),
        Verdict::Goto(chain) => (-4, Some(chain)),
        Verdict::Return => (-5, None),
    };
    out.nest(NFTA_DATA_VERDICT, |verdict| {
        verdict.put_be32(1, code as u32);
        if let Some(chain) = chain {
            verdict.put_text(2, chain);
        }
    });
}

fn register(register: Register) -> u32 {
    FIRST_REGISTER + u32::from(register)
}

fn meta_number(key: MetaKey) -> u32 {
    match key {
        MetaKey::Mark => 3,
        MetaKey::Iif => 4,
        MetaKey::Oif => 5,
        MetaKey::IifName => 6,
        MetaKey::OifName => 7,
        MetaKey::NfProto => 15,
        MetaKey::L4Proto => 16,
    }
}
