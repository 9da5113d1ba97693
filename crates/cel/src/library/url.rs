//! The URL library: URLs and their components.

use std::sync::Arc;

use formats::url::Url;

use super::{FunctionBodies, native_arg, string_arg, strings::string_list};
use crate::{
    error::EvalError,
    value::{MapKey, MapValue, NativeValue, StringValue, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("url", |args| match Url::parse(string_arg(&args[0])?) {
        Ok(url) => Ok(NativeValue::Url(url).into_value()),
        Err(error) => Err(EvalError::new(format!("URL parse error during conversion from string: {error}"))),
    }),
    ("isURL", |args| Ok(Value::Bool(Url::parse(string_arg(&args[0])?).is_ok()))),
    ("getScheme", |args| Ok(Value::from_owned_string(url_arg(&args[0])?.scheme.as_str()))),
    ("getHost", |args| Ok(Value::from_owned_string(url_arg(&args[0])?.host.as_str()))),
    ("getHostname", |args| Ok(Value::from_owned_string(url_arg(&args[0])?.host_and_port().0))),
    ("getPort", |args| Ok(Value::from_owned_string(url_arg(&args[0])?.host_and_port().1))),
    ("getEscapedPath", |args| Ok(Value::from_owned_string(url_arg(&args[0])?.path.as_str()))),
    ("getQuery", |args| Ok(Value::Map(query_map(url_arg(&args[0])?)))),
];

fn url_arg<'v>(value: &'v Value<'_>) -> Result<&'v Url, EvalError> {
    let NativeValue::Url(url) = native_arg(value)? else { return Err(EvalError::no_such_overload()) };
    Ok(url)
}

fn query_map<'a>(url: &Url) -> MapValue<'a> {
    let entry =
        |(key, values): (String, Vec<String>)| (MapKey::String(StringValue::Shared(key.into())), string_list(values));
    MapValue::Made(Arc::new(url.query().into_iter().map(entry).collect()))
}
