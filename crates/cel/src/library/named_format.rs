//! Named formats (`format.dns1123Label()`, …): validation of labels, subdomains, URIs, …

use std::sync::LazyLock;

use formats::{names, url::Url};
use regex::Regex;

use super::{Bodies, native::Native, strings::texts, text};
use crate::{
    error::Error,
    value::{Value, time},
};

pub(super) const BODIES: Bodies = &[
    ("format.named", |args| {
        let name = text(&args[0])?;
        Ok(match FORMATS.iter().find(|format| format.name == name) {
            Some(format) => Value::some(Native::Format(format).value()),
            None => Value::Optional(None),
        })
    }),
    ("validate", |args| {
        let Value::Native(native) = &args[0] else { return Err(Error::no_such_overload()) };
        let Native::Format(format) = &**native else { return Err(Error::no_such_overload()) };
        let problems = (format.problems)(text(&args[1])?);
        Ok(if problems.is_empty() { Value::Optional(None) } else { Value::some(texts(problems)) })
    }),
    ("format.dns1123Label", |_| named(0)),
    ("format.dns1123Subdomain", |_| named(1)),
    ("format.dns1035Label", |_| named(2)),
    ("format.qualifiedName", |_| named(3)),
    ("format.dns1123LabelPrefix", |_| named(4)),
    ("format.dns1123SubdomainPrefix", |_| named(5)),
    ("format.dns1035LabelPrefix", |_| named(6)),
    ("format.labelValue", |_| named(7)),
    ("format.uri", |_| named(8)),
    ("format.uuid", |_| named(9)),
    ("format.byte", |_| named(10)),
    ("format.date", |_| named(11)),
    ("format.datetime", |_| named(12)),
];

/// A named string format.
#[derive(Debug)]
pub struct NamedFormat {
    name: &'static str,
    problems: fn(&str) -> Vec<String>,
    /// Length of upstream's regular expression; the cost model uses it.
    pub(crate) pattern_size: u64,
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

fn named<'a>(at: usize) -> Result<Value<'a>, Error> {
    Ok(Native::Format(&FORMATS[at]).value())
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", problems: names::label, pattern_size: 30 },
    NamedFormat { name: "dns1123Subdomain", problems: names::subdomain, pattern_size: 60 },
    NamedFormat { name: "dns1035Label", problems: names::label_1035, pattern_size: 30 },
    NamedFormat { name: "qualifiedName", problems: names::qualified, pattern_size: 60 },
    NamedFormat { name: "dns1123LabelPrefix", problems: |text| names::label(&names::masked(text)), pattern_size: 30 },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        problems: |text| names::subdomain(&names::masked(text)),
        pattern_size: 60,
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        problems: |text| names::label_1035(&names::masked(text)),
        pattern_size: 30,
    },
    NamedFormat { name: "labelValue", problems: names::label_value, pattern_size: 40 },
    NamedFormat { name: "uri", problems: uri, pattern_size: 1103 },
    NamedFormat { name: "uuid", problems: uuid, pattern_size: 70 },
    NamedFormat { name: "byte", problems: byte, pattern_size: 84 },
    NamedFormat { name: "date", problems: date, pattern_size: 71 },
    NamedFormat { name: "datetime", problems: datetime, pattern_size: 71 },
];

/// Validates the namespace and name of a service account.
pub(super) fn account_names(namespace: &str, name: &str) -> Result<(), Error> {
    if !names::subdomain(name).is_empty() {
        return Err(Error::failed("Invalid service account name"));
    }
    if !names::label(namespace).is_empty() {
        return Err(Error::failed("Invalid service account namespace"));
    }
    Ok(())
}

fn one(bad: bool, message: &str) -> Vec<String> {
    if bad { vec![message.into()] } else { Vec::new() }
}

fn uri(text: &str) -> Vec<String> {
    Url::parse(text).err().into_iter().collect()
}

fn uuid(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("^[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}$").expect("the pattern of UUIDs is one")
    });
    one(!REGEX.is_match(text), "does not match the UUID format")
}

fn byte(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
            .expect("the pattern of base64 is one")
    });
    one(!REGEX.is_match(text), "invalid base64")
}

fn date(text: &str) -> Vec<String> {
    one(time::date(text).is_none(), "invalid date")
}

fn datetime(text: &str) -> Vec<String> {
    one(time::timestamp(text).is_none(), "invalid datetime")
}
