//! IP addresses and CIDRs, parsed as strictly as Go's `netip` does.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Bodies, native::Native, text};
use crate::{error::Error, value::Value};

pub(super) const BODIES: Bodies = &[
    ("ip", |args| match &args[0] {
        Value::Native(native) => match &**native {
            Native::Cidr(cidr) => Ok(Native::Ip(cidr.address).value()),
            _ => Err(Error::no_such_overload()),
        },
        other => Ok(Native::Ip(parse(text(other)?).map_err(Error::failed)?).value()),
    }),
    ("isIP", |args| Ok(Value::Bool(parse(text(&args[0])?).is_ok()))),
    ("ip.isCanonical", |args| {
        let text = text(&args[0])?;
        Ok(Value::Bool(parse(text).map_err(Error::failed)?.to_string() == text))
    }),
    ("family", |args| Ok(Value::Int(if address(&args[0])?.is_ipv4() { 4 } else { 6 }))),
    ("isUnspecified", |args| Ok(Value::Bool(address(&args[0])?.is_unspecified()))),
    ("isLoopback", |args| Ok(Value::Bool(address(&args[0])?.is_loopback()))),
    ("isLinkLocalMulticast", |args| Ok(Value::Bool(link_local_multicast(address(&args[0])?)))),
    ("isLinkLocalUnicast", |args| Ok(Value::Bool(link_local_unicast(address(&args[0])?)))),
    ("isGlobalUnicast", |args| Ok(Value::Bool(global_unicast(address(&args[0])?)))),
    ("cidr", |args| Ok(Native::Cidr(network(text(&args[0])?)?).value())),
    ("isCIDR", |args| Ok(Value::Bool(parse_cidr(text(&args[0])?).is_ok()))),
    ("containsIP", |args| {
        let inner = match &args[1] {
            Value::String(text) => parse(text).map_err(|_| Error::no_such_overload())?,
            other => address(other)?,
        };
        Ok(Value::Bool(cidr(&args[0])?.contains(inner)))
    }),
    ("containsCIDR", |args| {
        let inner = match &args[1] {
            Value::String(text) => network(text)?,
            other => cidr(other)?,
        };
        let outer = cidr(&args[0])?;
        Ok(Value::Bool(outer.bits <= inner.bits && outer.contains(inner.address)))
    }),
    ("prefixLength", |args| Ok(Value::Int(cidr(&args[0])?.bits.into()))),
    ("masked", |args| Ok(Native::Cidr(cidr(&args[0])?.masked()).value())),
];

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
    fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask(self.bits, 32) as u32)),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask(self.bits, 128))),
        };
        Self { address, bits: self.bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self { address, bits: self.bits }.masked().address == self.masked().address
    }
}

/// Returns a mask of `bits` leading ones in a number of `width` bits.
fn mask(bits: u8, width: u32) -> u128 {
    u128::MAX.checked_shl(width - u32::from(bits)).unwrap_or(0)
}

fn address(value: &Value<'_>) -> Result<IpAddr, Error> {
    match value {
        Value::Native(native) => match &**native {
            Native::Ip(address) => Ok(*address),
            _ => Err(Error::no_such_overload()),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn cidr(value: &Value<'_>) -> Result<Cidr, Error> {
    match value {
        Value::Native(native) => match &**native {
            Native::Cidr(cidr) => Ok(*cidr),
            _ => Err(Error::no_such_overload()),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn parse(text: &str) -> Result<IpAddr, String> {
    let wrong = |reason: String| format!("IP Address {text:?} parse error during conversion from string: {reason}");
    if let Some((before, zone)) = text.split_once('%')
        && before.contains(':')
        && !zone.is_empty()
        && before.parse::<Ipv6Addr>().is_ok()
    {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let address = text.parse().map_err(|_| wrong(format!("ParseAddr({text:?}): {}", fault(text))))?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        address => Ok(address),
    }
}

/// Returns the message of Go's `netip.ParseAddr` for an invalid address.
fn fault(text: &str) -> String {
    let first = text.find(['.', ':']).map(|at| text.as_bytes()[at]);
    match first {
        Some(b'.') => v4_fault(text),
        Some(_) => v6_fault(text),
        None => "unable to parse IP".into(),
    }
}

fn v4_fault(text: &str) -> String {
    let fields: Vec<_> = text.split('.').collect();
    for field in &fields {
        if let Some(at) = field.find(|c: char| !c.is_ascii_digit()) {
            let before: usize = fields.iter().take_while(|other| *other != field).map(|other| other.len() + 1).sum();
            return format!("unexpected character (at {:?})", &text[before + at..]);
        }
        match field.len() {
            0 => return "IPv4 field must have at least one digit".into(),
            2.. if field.starts_with('0') => return "IPv4 field has octet with leading zero".into(),
            _ if field.parse::<u8>().is_err() => return "IPv4 field has value >255".into(),
            _ => {}
        }
    }
    if fields.len() < 4 { "IPv4 address too short" } else { "IPv4 address too long" }.into()
}

fn v6_fault(text: &str) -> String {
    if let Some(at) = text.find(|c: char| !c.is_ascii_hexdigit() && c != ':' && c != '.') {
        return format!("unexpected character, want colon (at {:?})", &text[at..]);
    }
    if let Some(field) = text.split(':').find(|field| field.len() > 4 && !field.contains('.')) {
        let at = text.find(field).unwrap_or(0);
        return format!("each group must have 4 or less digits (at {:?})", &text[at..]);
    }
    if text.matches("::").count() > 1 {
        let at = text.rfind("::").unwrap_or(0);
        return format!("multiple :: in address (at {:?})", &text[at + 1..]);
    }
    "address string too short".into()
}

fn network(text: &str) -> Result<Cidr, Error> {
    let context = "network address parse error during conversion from string";
    parse_cidr(text).map_err(|reason| Error::failed(format!("{context}: {reason}")))
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let context = "network address parse error during conversion from string";
    let wrong = |reason: String| format!("{context}: netip.ParsePrefix({text:?}): {reason}");
    let Some((before, bits)) = text.rsplit_once('/') else { return Err(wrong("no '/'".into())) };
    if before.contains('%') {
        return Err(wrong("IPv6 zones cannot be present in a prefix".into()));
    }
    let address: IpAddr = before.parse().map_err(|_| wrong(format!("ParseAddr({before:?}): {}", fault(before))))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let digits =
        !bits.is_empty() && bits.bytes().all(|c| c.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    if !digits {
        return Err(wrong(format!("bad bits after slash: {bits:?}")));
    }
    let bits: u8 =
        bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| wrong("prefix length out of range".into()))?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        address => Ok(Cidr { address, bits }),
    }
}

fn link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn global_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !link_local_unicast(address)
}
