//! The function library: one table of signatures (`functions.txt`), and a body for each function name. The bodies
//! dispatch on their arguments' runtime types, because arguments may be `dyn`.

mod authorizer;
mod convert;
mod format;
mod ip;
mod lists;
mod named_format;
pub(crate) mod native;
mod operators;
mod optional;
mod quantity;
mod regex;
mod semver;
mod strings;
mod times;
mod url;

use std::{collections::HashMap, sync::LazyLock};

pub use self::authorizer::{Authorizer, Check, Decision, Resource, Target};
pub(crate) use self::{
    format::{Clause, FormatError, scan as scan_format},
    regex::{compile as compile_regex, find, find_all},
};
use crate::{
    error::Error,
    types::{Type, names},
    value::Value,
};

/// Maximum size of a string, or of a list that is not read from a document; larger ones exceed the cost limit.
pub(crate) const MOST_BYTES: usize = 16 << 20;
pub(crate) const MOST_ITEMS: usize = 1 << 19;

/// The implementation of a function. It may take its arguments out of the slice.
pub(crate) type Body = for<'a> fn(&mut [Value<'a>]) -> Result<Value<'a>, Error>;

type Bodies = &'static [(&'static str, Body)];

pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    /// `None` for functions that are not evaluated as calls, such as `&&`.
    pub(crate) body: Option<Body>,
}

pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Whether it is called as `receiver.name(…)`; the receiver is the first argument.
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// Number of type parameters, which are numbered from 0.
    pub(crate) params: u32,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(build);

/// Returns the function with a name.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

const BODIES: [Bodies; 14] = [
    operators::BODIES,
    convert::BODIES,
    times::BODIES,
    strings::BODIES,
    format::BODIES,
    lists::BODIES,
    regex::BODIES,
    url::BODIES,
    quantity::BODIES,
    ip::BODIES,
    semver::BODIES,
    named_format::BODIES,
    authorizer::BODIES,
    optional::BODIES,
];

fn build() -> HashMap<&'static str, Function> {
    let bodies: HashMap<_, _> = BODIES.iter().flat_map(|bodies| bodies.iter().copied()).collect();
    let mut functions: HashMap<&'static str, Function> = HashMap::new();
    for line in include_str!("functions.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(' ').expect("a line names a function");
        let (id, signature) = rest.split_once(' ').expect("a line names an overload");
        let function = functions.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
            body: bodies.get(name).copied(),
        });
        function.overloads.push(overload(id, signature));
    }
    functions
}

/// Parses a signature of the form `receiver.(argument, …) -> result`.
fn overload(id: &'static str, signature: &'static str) -> Overload {
    let (arguments, result) = signature.rsplit_once(" -> ").expect("a signature has a result");
    let mut params = Vec::new();
    let open = arguments.rfind(".(").filter(|_| !arguments.starts_with('('));
    let (receiver, list) = match open {
        Some(at) => (Some(&arguments[..at]), &arguments[at + 2..]),
        None => (None, &arguments[1..]),
    };
    let list = list.strip_suffix(')').expect("arguments end");
    let mut args: Vec<_> = receiver.map(|receiver| read(receiver, &mut params)).into_iter().collect();
    args.extend(split(list).into_iter().map(|part| read(part, &mut params)));
    let result = read(result, &mut params);
    Overload { id, member: receiver.is_some(), args, result, params: params.len() as u32 }
}

/// Splits at the commas outside parentheses.
fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !list.is_empty() {
        parts.push(list[start..].trim());
    }
    parts
}

fn read(text: &'static str, params: &mut Vec<&'static str>) -> Type {
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let parts = split(inner);
        let first = read(parts[0], params);
        return match name {
            "list" => Type::list(first),
            "map" => Type::map(first, read(parts[1], params)),
            "optional_type" => Type::optional(first),
            _ => Type::Type(Some(first.into())),
        };
    }
    if text.len() == 1 {
        let number = params.iter().position(|param| *param == text).unwrap_or_else(|| {
            params.push(text);
            params.len() - 1
        });
        return Type::Param(number as u32);
    }
    simple(text).unwrap_or_else(|| panic!("no type {text}"))
}

/// Returns the type with a name that takes no type parameters, as expressions may also write it.
pub(crate) fn simple(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null_type" => Type::Null,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "type" => Type::Type(None),
        _ => Type::Native(names::ALL.into_iter().find(|known| *known == name)?),
    })
}

/// Returns the type that an identifier denotes: `int`, `list`, `net.IP`, …
pub(crate) fn type_named(name: &str) -> Option<Type> {
    match name {
        "dyn" | "timestamp" | "duration" => None,
        "list" => Some(Type::list(Type::Dyn)),
        "map" => Some(Type::map(Type::Dyn, Type::Dyn)),
        "optional_type" => Some(Type::optional(Type::Dyn)),
        _ => simple(name),
    }
}

/// Calls a function. If no overload matches the arguments, the error is `cel-go`'s for that kind of function: most name
/// the argument types, operators name only themselves, and some name neither.
pub(crate) fn call<'a>(name: &str, body: Body, args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match body(args) {
        Err(error) if error == Error::no_such_overload() => Err(unfit(name, args, error)),
        outcome => outcome,
    }
}

fn unfit(name: &str, args: &[Value<'_>], plain: Error) -> Error {
    let kinds: Vec<_> = args.iter().map(kind).collect();
    match (name, &kinds[..]) {
        ("size" | "sort" | "@sortByAssociatedKeys", _) => Error::failed(format!("no such overload: {name}")),
        ("flatten", [first, ..]) => Error::failed(format!("no such overload: {first}.flatten()")),
        ("!_" | "@in" | "contains" | "startsWith" | "endsWith" | "matches", _) => plain,
        ("containsIP", [_, "string"]) => plain,
        (name, [first, ..]) if name.starts_with(['_', '-']) => match can(first, name) {
            true => plain,
            false => Error::failed(format!("no such overload: {name}")),
        },
        _ => Error::failed(format!("no such overload: {name}({})", kinds.join(", "))),
    }
}

/// Returns the runtime type name of an argument.
fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "null_type",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Uint(_) => "uint",
        Value::Double(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::List(_) => "list",
        Value::Map(_) | Value::Struct(_) => "map",
        Value::Type(_) => "type",
        Value::Optional(_) => "optional_type",
        Value::Native(native) => native.type_name(),
        Value::Unknown(_) => "dyn",
    }
}

/// Whether a type implements an operator, so that `cel-go` reports a mismatch of the right operand only.
fn can(kind: &str, operator: &str) -> bool {
    // These types implement `traits.Receiver`, which accepts any function.
    if ["string", "google.protobuf.Timestamp", "google.protobuf.Duration"].contains(&kind) {
        return true;
    }
    match operator {
        "_+_" => ["bytes", "double", "int", "list", "uint"].contains(&kind),
        "_-_" | "_*_" | "_/_" => ["double", "int", "uint"].contains(&kind),
        "_%_" => ["int", "uint"].contains(&kind),
        "-_" => ["bool", "double", "int"].contains(&kind),
        _ => ["bool", "bytes", "double", "int", "uint"].contains(&kind),
    }
}

/// Returns the string value of an argument.
pub(crate) fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, Error> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(Error::no_such_overload()),
    }
}

/// Returns the integer value of an argument.
pub(crate) fn int(value: &Value<'_>) -> Result<i64, Error> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(Error::no_such_overload()),
    }
}

/// Returns a computed string as a value; fails if it exceeds the size limit.
pub(crate) fn made<'a>(text: String) -> Result<Value<'a>, Error> {
    if text.len() > MOST_BYTES { Err(Error::CostLimit) } else { Ok(Value::owned_text(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators with dedicated plan nodes, which need no body.
    const PLANNED: [&str; 12] = [
        "_&&_",
        "_||_",
        "_?_:_",
        "_[_]",
        "_[?_]",
        "_?._",
        "_==_",
        "_!=_",
        "@not_strictly_false",
        "or",
        "orValue",
        "dyn",
    ];

    #[test]
    fn every_function_has_a_body_and_every_body_a_function() {
        for (name, function) in FUNCTIONS.iter() {
            assert_ne!(function.body.is_none(), !PLANNED.contains(name), "{name}");
        }
        for (name, _) in BODIES.iter().flat_map(|bodies| bodies.iter()) {
            assert!(function(name).is_some(), "{name}");
        }
    }
}
