//! The function library: one table of signatures (`functions.txt`), and a body for each function name. The bodies
//! dispatch on their arguments' runtime types, because arguments may be `dyn`.

mod authorizer;
mod conversions;
mod format;
mod lists;
mod named_format;
mod net;
mod operators;
mod optional;
mod quantity;
mod regex;
mod semver;
mod strings;
mod timestamps;
mod url;

use std::{collections::HashMap, sync::LazyLock};

pub(crate) use self::{
    format::{FormatClause, FormatError, scan_format},
    regex::{compile_regexp as compile_regex, find_all_matches, find_match},
};
use crate::{
    error::EvalError,
    types::{Type, type_names},
    value::{NativeValue, Value},
};

/// Maximum size of a string, or of a list that is not read from a document; larger ones exceed the cost limit.
pub(crate) const MAX_STRING_BYTES: usize = 16 << 20;
pub(crate) const MAX_LIST_ITEMS: usize = 1 << 19;

/// The implementation of a function. It may take its arguments out of the slice.
pub(crate) type FunctionBody = for<'a> fn(&mut [Value<'a>]) -> Result<Value<'a>, EvalError>;

type FunctionBodies = &'static [(&'static str, FunctionBody)];

pub(crate) struct FunctionDecl {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<OverloadDecl>,
    /// `None` for functions that are not evaluated as calls, such as `&&`.
    pub(crate) body: Option<FunctionBody>,
}

pub(crate) struct OverloadDecl {
    pub(crate) id: &'static str,
    /// Whether it is called as `receiver.name(…)`; the receiver is the first argument.
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// Number of type parameters, which are numbered from 0.
    pub(crate) params: u32,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, FunctionDecl>> = LazyLock::new(build_functions);

/// Returns the function with a name.
pub(crate) fn find_function(name: &str) -> Option<&'static FunctionDecl> {
    FUNCTIONS.get(name)
}

const BODIES: [FunctionBodies; 14] = [
    operators::BODIES,
    conversions::BODIES,
    timestamps::BODIES,
    strings::BODIES,
    format::BODIES,
    lists::BODIES,
    regex::BODIES,
    url::BODIES,
    quantity::BODIES,
    net::BODIES,
    semver::BODIES,
    named_format::BODIES,
    authorizer::BODIES,
    optional::BODIES,
];

fn build_functions() -> HashMap<&'static str, FunctionDecl> {
    let bodies: HashMap<_, _> = BODIES.iter().flat_map(|bodies| bodies.iter().copied()).collect();
    let mut functions: HashMap<&'static str, FunctionDecl> = HashMap::new();
    for line in include_str!("functions.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(' ').expect("a line names a function");
        let (id, signature) = rest.split_once(' ').expect("a line names an overload");
        let function = functions.entry(name).or_insert_with(|| FunctionDecl {
            name,
            overloads: Vec::new(),
            body: bodies.get(name).copied(),
        });
        function.overloads.push(parse_overload(id, signature));
    }
    functions
}

/// Parses a signature of the form `receiver.(argument, …) -> result`.
fn parse_overload(id: &'static str, signature: &'static str) -> OverloadDecl {
    let (arguments, result) = signature.rsplit_once(" -> ").expect("a signature has a result");
    let mut params = Vec::new();
    let open = arguments.rfind(".(").filter(|_| !arguments.starts_with('('));
    let (receiver, list) = match open {
        Some(at) => (Some(&arguments[..at]), &arguments[at + 2..]),
        None => (None, &arguments[1..]),
    };
    let list = list.strip_suffix(')').expect("arguments end");
    let mut args: Vec<_> = receiver.map(|receiver| parse_type(receiver, &mut params)).into_iter().collect();
    args.extend(split_parameters(list).into_iter().map(|part| parse_type(part, &mut params)));
    let result = parse_type(result, &mut params);
    OverloadDecl { id, member: receiver.is_some(), args, result, params: params.len() as u32 }
}

/// Splits at the commas outside parentheses.
fn split_parameters(list: &str) -> Vec<&str> {
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

fn parse_type(text: &'static str, params: &mut Vec<&'static str>) -> Type {
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let parts = split_parameters(inner);
        let first = parse_type(parts[0], params);
        return match name {
            "list" => Type::list_of(first),
            "map" => Type::map_of(first, parse_type(parts[1], params)),
            "optional_type" => Type::optional_of(first),
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
    find_simple_type(text).unwrap_or_else(|| panic!("no type {text}"))
}

/// Returns the type with a name that takes no type parameters, as expressions may also write it.
pub(crate) fn find_simple_type(name: &str) -> Option<Type> {
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
        _ => Type::Native(type_names::ALL.into_iter().find(|known| *known == name)?),
    })
}

/// Returns the type that an identifier denotes: `int`, `list`, `net.IP`, …
pub(crate) fn find_type_ident(name: &str) -> Option<Type> {
    match name {
        "dyn" | "timestamp" | "duration" => None,
        "list" => Some(Type::list_of(Type::Dyn)),
        "map" => Some(Type::map_of(Type::Dyn, Type::Dyn)),
        "optional_type" => Some(Type::optional_of(Type::Dyn)),
        _ => find_simple_type(name),
    }
}

/// Calls a function. If no overload matches the arguments, the error is `cel-go`'s for that kind of function: most name
/// the argument types, operators name only themselves, and some name neither.
pub(crate) fn call_function<'a>(
    name: &str,
    body: FunctionBody,
    args: &mut [Value<'a>],
) -> Result<Value<'a>, EvalError> {
    match body(args) {
        Err(error) if error == EvalError::no_such_overload() => Err(no_matching_overload_error(name, args, error)),
        outcome => outcome,
    }
}

fn no_matching_overload_error(name: &str, args: &[Value<'_>], plain: EvalError) -> EvalError {
    let kinds: Vec<_> = args.iter().map(runtime_type_name).collect();
    match (name, &kinds[..]) {
        ("size" | "sort" | "@sortByAssociatedKeys", _) => EvalError::new(format!("no such overload: {name}")),
        ("flatten", [first, ..]) => EvalError::new(format!("no such overload: {first}.flatten()")),
        ("!_" | "@in" | "contains" | "startsWith" | "endsWith" | "matches", _) => plain,
        ("containsIP", [_, "string"]) => plain,
        (name, [first, ..]) if name.starts_with(['_', '-']) => match implements_operator(first, name) {
            true => plain,
            false => EvalError::new(format!("no such overload: {name}")),
        },
        _ => EvalError::new(format!("no such overload: {name}({})", kinds.join(", "))),
    }
}

/// Returns the runtime type name of an argument.
fn runtime_type_name(value: &Value<'_>) -> &'static str {
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
fn implements_operator(kind: &str, operator: &str) -> bool {
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
pub(crate) fn string_arg<'v>(value: &'v Value<'_>) -> Result<&'v str, EvalError> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns the native value of an argument.
pub(crate) fn native_arg<'v>(value: &'v Value<'_>) -> Result<&'v NativeValue, EvalError> {
    match value {
        Value::Native(native) => Ok(native),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns the integer value of an argument.
pub(crate) fn int_arg(value: &Value<'_>) -> Result<i64, EvalError> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns a computed string as a value; fails if it exceeds the size limit.
pub(crate) fn checked_string<'a>(text: String) -> Result<Value<'a>, EvalError> {
    if text.len() > MAX_STRING_BYTES { Err(EvalError::CostLimit) } else { Ok(Value::from_owned_string(text)) }
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
    fn function_declarations_and_bodies_match() {
        for (name, function) in FUNCTIONS.iter() {
            assert_ne!(function.body.is_none(), !PLANNED.contains(name), "{name}");
        }
        for (name, _) in BODIES.iter().flat_map(|bodies| bodies.iter()) {
            assert!(find_function(name).is_some(), "{name}");
        }
    }
}
