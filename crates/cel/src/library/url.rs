//! The URL library: URLs and their components.

use std::sync::Arc;

use formats::url::Url;

use super::{Bodies, native::Native, strings::texts, text};
use crate::{
    error::Error,
    value::{Key, Map, Text, Value},
};

pub(super) const BODIES: Bodies = &[
    ("url", |args| match Url::parse(text(&args[0])?) {
        Ok(url) => Ok(Native::Url(url).value()),
        Err(error) => Err(Error::failed(format!("URL parse error during conversion from string: {error}"))),
    }),
    ("isURL", |args| Ok(Value::Bool(Url::parse(text(&args[0])?).is_ok()))),
    ("getScheme", |args| Ok(Value::owned_text(of(&args[0])?.scheme.as_str()))),
    ("getHost", |args| Ok(Value::owned_text(of(&args[0])?.host.as_str()))),
    ("getHostname", |args| Ok(Value::owned_text(of(&args[0])?.host_and_port().0))),
    ("getPort", |args| Ok(Value::owned_text(of(&args[0])?.host_and_port().1))),
    ("getEscapedPath", |args| Ok(Value::owned_text(of(&args[0])?.path.as_str()))),
    ("getQuery", |args| Ok(Value::Map(query(of(&args[0])?)))),
];

fn of<'v>(value: &'v Value<'_>) -> Result<&'v Url, Error> {
    match value {
        Value::Native(native) => match &**native {
            Native::Url(url) => Ok(url),
            _ => Err(Error::no_such_overload()),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn query<'a>(url: &Url) -> Map<'a> {
    let entry = |(key, values): (String, Vec<String>)| (Key::String(Text::Shared(key.into())), texts(values));
    Map::Made(Arc::new(url.query().into_iter().map(entry).collect()))
}
