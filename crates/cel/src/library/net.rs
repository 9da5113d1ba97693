//! IP addresses and CIDRs, parsed as strictly as Go's `netip` does.

use std::net::{IpAddr, Ipv6Addr};

use super::{FunctionBodies, native_arg, string_arg};
use crate::{
    error::EvalError,
    value::{Cidr, NativeValue, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("ip", |args| match &args[0] {
        Value::Native(native) => match &**native {
            NativeValue::Cidr(cidr) => Ok(NativeValue::Ip(cidr.address).into_value()),
            _ => Err(EvalError::no_such_overload()),
        },
        other => Ok(NativeValue::Ip(parse_ip(string_arg(other)?)?).into_value()),
    }),
    ("isIP", |args| Ok(Value::Bool(parse_ip(string_arg(&args[0])?).is_ok()))),
    ("ip.isCanonical", |args| {
        let text = string_arg(&args[0])?;
        Ok(Value::Bool(parse_ip(text)?.to_string() == text))
    }),
    ("family", |args| Ok(Value::Int(if ip_arg(&args[0])?.is_ipv4() { 4 } else { 6 }))),
    ("isUnspecified", |args| Ok(Value::Bool(ip_arg(&args[0])?.is_unspecified()))),
    ("isLoopback", |args| Ok(Value::Bool(ip_arg(&args[0])?.is_loopback()))),
    ("isLinkLocalMulticast", |args| Ok(Value::Bool(is_link_local_multicast(ip_arg(&args[0])?)))),
    ("isLinkLocalUnicast", |args| Ok(Value::Bool(is_link_local_unicast(ip_arg(&args[0])?)))),
    ("isGlobalUnicast", |args| Ok(Value::Bool(is_global_unicast(ip_arg(&args[0])?)))),
    ("cidr", |args| Ok(NativeValue::Cidr(parse_cidr_arg(string_arg(&args[0])?)?).into_value())),
    ("isCIDR", |args| Ok(Value::Bool(parse_cidr(string_arg(&args[0])?).is_ok()))),
    ("containsIP", |args| {
        let inner = match &args[1] {
            Value::String(text) => parse_ip(text).map_err(|_| EvalError::no_such_overload())?,
            other => ip_arg(other)?,
        };
        Ok(Value::Bool(cidr_arg(&args[0])?.contains_address(inner)))
    }),
    ("containsCIDR", |args| {
        let inner = match &args[1] {
            Value::String(text) => parse_cidr_arg(text)?,
            other => cidr_arg(other)?,
        };
        let outer = cidr_arg(&args[0])?;
        Ok(Value::Bool(outer.bits <= inner.bits && outer.contains_address(inner.address)))
    }),
    ("prefixLength", |args| Ok(Value::Int(cidr_arg(&args[0])?.bits.into()))),
    ("masked", |args| Ok(NativeValue::Cidr(cidr_arg(&args[0])?.masked_prefix()).into_value())),
];

fn ip_arg(value: &Value<'_>) -> Result<IpAddr, EvalError> {
    let NativeValue::Ip(address) = native_arg(value)? else { return Err(EvalError::no_such_overload()) };
    Ok(*address)
}

fn cidr_arg(value: &Value<'_>) -> Result<Cidr, EvalError> {
    let NativeValue::Cidr(cidr) = native_arg(value)? else { return Err(EvalError::no_such_overload()) };
    Ok(*cidr)
}

fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    let wrong = |reason: String| {
        EvalError::new(format!("IP Address {text:?} parse error during conversion from string: {reason}"))
    };
    if let Some((before, zone)) = text.split_once('%')
        && before.contains(':')
        && !zone.is_empty()
        && before.parse::<Ipv6Addr>().is_ok()
    {
        return Err(EvalError::new(format!("IP address {text:?} with zone value is not allowed")));
    }
    let address = text.parse().map_err(|_| wrong(format!("ParseAddr({text:?}): {}", parse_error_message(text))))?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(EvalError::new(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        address => Ok(address),
    }
}

/// Returns the message of Go's `netip.ParseAddr` for an invalid address.
fn parse_error_message(text: &str) -> String {
    let first = text.find(['.', ':']).map(|at| text.as_bytes()[at]);
    match first {
        Some(b'.') => ipv4_error_message(text),
        Some(_) => ipv6_error_message(text),
        None => "unable to parse IP".into(),
    }
}

fn ipv4_error_message(text: &str) -> String {
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

fn ipv6_error_message(text: &str) -> String {
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

fn parse_cidr_arg(text: &str) -> Result<Cidr, EvalError> {
    let context = "network address parse error during conversion from string";
    parse_cidr(text).map_err(|reason| EvalError::new(format!("{context}: {reason}")))
}

fn parse_cidr(text: &str) -> Result<Cidr, EvalError> {
    let context = "network address parse error during conversion from string";
    let wrong = |reason: String| EvalError::new(format!("{context}: netip.ParsePrefix({text:?}): {reason}"));
    let Some((before, bits)) = text.rsplit_once('/') else { return Err(wrong("no '/'".into())) };
    if before.contains('%') {
        return Err(wrong("IPv6 zones cannot be present in a prefix".into()));
    }
    let address: IpAddr =
        before.parse().map_err(|_| wrong(format!("ParseAddr({before:?}): {}", parse_error_message(before))))?;
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
            Err(EvalError::new(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        address => Ok(Cidr { address, bits }),
    }
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}
