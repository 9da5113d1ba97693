//! The messages and calls of the Container Runtime Interface, `runtime.v1`, as of Kubernetes 1.36.
//!
//! Each message is a line or a block `field: type = number`, with the names and numbers of CRI's `api.proto`: `?Type` is a
//! message that may be absent, `[type]` a repeated field, `map` a map from string to string. Fields of Windows are left
//! out; decoding skips them. `prost`'s derive does the encoding, so that building needs no protobuf compiler.

// The field's meaning is upstream's; repeating its name would say nothing.
#![allow(missing_docs)]

use std::collections::HashMap;

/// Declares protobuf messages.
macro_rules! messages {
    ($($name:ident { $($fields:tt)* })*) => { $(message! { $name [] $($fields)*, })* };
}

/// Declares one protobuf message; moves its fields one by one into the brackets as Rust fields.
macro_rules! message {
    ($name:ident [$($done:tt)*] $(,)*) => {
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $name { $($done)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: map = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost(map(string, string), tag = $tag)] pub $field: HashMap<String, String>,] $($rest)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: ?$message:ident = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost(message, optional, tag = $tag)] pub $field: Option<$message>,] $($rest)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: enum $enum:ident = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost(enumeration($enum), tag = $tag)] pub $field: i32,] $($rest)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: [string] = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost(string, repeated, tag = $tag)] pub $field: Vec<String>,] $($rest)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: [int32] = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost(int32, repeated, tag = $tag)] pub $field: Vec<i32>,] $($rest)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: [int64] = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost(int64, repeated, tag = $tag)] pub $field: Vec<i64>,] $($rest)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: [$message:ident] = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost(message, repeated, tag = $tag)] pub $field: Vec<$message>,] $($rest)* }
    };
    ($name:ident [$($done:tt)*] $field:ident: $scalar:ident = $tag:tt, $($rest:tt)*) => {
        message! { $name [$($done)* #[prost($scalar, tag = $tag)] pub $field: scalar::$scalar,] $($rest)* }
    };
}

/// Declares protobuf enumerations; the first value is the default.
macro_rules! enumerations {
    ($($name:ident { $($variant:ident = $number:literal),* $(,)? })*) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
        #[repr(i32)]
        pub enum $name { $($variant = $number),* }
    )* };
}

/// Rust's types of protobuf's scalar types.
#[allow(non_camel_case_types)]
mod scalar {
    pub type string = String;
    pub type bytes = Vec<u8>;
    pub type bool = core::primitive::bool;
    pub type int32 = i32;
    pub type int64 = i64;
    pub type uint32 = u32;
    pub type uint64 = u64;
    pub type double = f64;
}

pub(crate) mod calls;
mod client;
mod container;
mod image;
mod runtime;
mod sandbox;
mod stats;

pub use self::{client::*, container::*, image::*, runtime::*, sandbox::*, stats::*};

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn messages_have_the_wire_format_of_cri() {
        let metadata = Some(ContainerMetadata { name: "a".into(), attempt: 2 });
        let status = ContainerStatus { metadata, state: ContainerState::ContainerExited as i32, ..Default::default() };
        // Field 2: a message with field 1 "a" and field 2 the number 2. Field 3: the enumeration value 2.
        assert_eq!(status.encode_to_vec(), b"\x12\x05\x0a\x01a\x10\x02\x18\x02");
        // Unknown fields, such as those of Windows, are skipped.
        assert_eq!(VersionRequest::decode(&b"\x7a\x01x\x0a\x02v1"[..]).unwrap().version, "v1");
    }
}
