//! Named formats (`format.dns1123Label()`, …): validation of labels, subdomains, URIs, …

use std::sync::LazyLock;

use formats::{names, url::Url};
use regex::Regex;

use super::{FunctionBodies, native_arg, string_arg, strings::string_list};
use crate::{
    error::EvalError,
    value::{NamedFormat, NativeValue, Value, time},
};

pub(super) const BODIES: FunctionBodies = &[
    ("format.named", |args| {
        let name = string_arg(&args[0])?;
        Ok(match FORMATS.iter().find(|format| format.name == name) {
            Some(format) => Value::optional_of(NativeValue::Format(format).into_value()),
            None => Value::Optional(None),
        })
    }),
    ("validate", |args| {
        let NativeValue::Format(format) = native_arg(&args[0])? else { return Err(EvalError::no_such_overload()) };
        let problems = (format.problems)(string_arg(&args[1])?);
        Ok(if problems.is_empty() { Value::Optional(None) } else { Value::optional_of(string_list(problems)) })
    }),
    ("format.dns1123Label", |_| format_value(0)),
    ("format.dns1123Subdomain", |_| format_value(1)),
    ("format.dns1035Label", |_| format_value(2)),
    ("format.qualifiedName", |_| format_value(3)),
    ("format.dns1123LabelPrefix", |_| format_value(4)),
    ("format.dns1123SubdomainPrefix", |_| format_value(5)),
    ("format.dns1035LabelPrefix", |_| format_value(6)),
    ("format.labelValue", |_| format_value(7)),
    ("format.uri", |_| format_value(8)),
    ("format.uuid", |_| format_value(9)),
    ("format.byte", |_| format_value(10)),
    ("format.date", |_| format_value(11)),
    ("format.datetime", |_| format_value(12)),
];

fn format_value<'a>(at: usize) -> Result<Value<'a>, EvalError> {
    Ok(NativeValue::Format(&FORMATS[at]).into_value())
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", problems: names::check_dns_label, pattern_size: 30 },
    NamedFormat { name: "dns1123Subdomain", problems: names::check_dns_subdomain, pattern_size: 60 },
    NamedFormat { name: "dns1035Label", problems: names::check_1035_label, pattern_size: 30 },
    NamedFormat { name: "qualifiedName", problems: names::check_qualified_name, pattern_size: 60 },
    NamedFormat {
        name: "dns1123LabelPrefix",
        problems: |text| names::check_dns_label(&names::mask_trailing_dash(text)),
        pattern_size: 30,
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        problems: |text| names::check_dns_subdomain(&names::mask_trailing_dash(text)),
        pattern_size: 60,
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        problems: |text| names::check_1035_label(&names::mask_trailing_dash(text)),
        pattern_size: 30,
    },
    NamedFormat { name: "labelValue", problems: names::check_label_value, pattern_size: 40 },
    NamedFormat { name: "uri", problems: validate_uri, pattern_size: 1103 },
    NamedFormat { name: "uuid", problems: validate_uuid, pattern_size: 70 },
    NamedFormat { name: "byte", problems: validate_base64, pattern_size: 84 },
    NamedFormat { name: "date", problems: validate_date, pattern_size: 71 },
    NamedFormat { name: "datetime", problems: validate_datetime, pattern_size: 71 },
];

/// Validates the namespace and name of a service account.
pub(super) fn validate_service_account(namespace: &str, name: &str) -> Result<(), EvalError> {
    if !names::check_dns_subdomain(name).is_empty() {
        return Err(EvalError::new("Invalid service account name"));
    }
    if !names::check_dns_label(namespace).is_empty() {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    Ok(())
}

fn message_if(bad: bool, message: &str) -> Vec<String> {
    if bad { vec![message.into()] } else { Vec::new() }
}

fn validate_uri(text: &str) -> Vec<String> {
    Url::parse(text).err().map(|error| error.0).into_iter().collect()
}

fn validate_uuid(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("^[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}$").expect("the pattern of UUIDs is one")
    });
    message_if(!REGEX.is_match(text), "does not match the UUID format")
}

fn validate_base64(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
            .expect("the pattern of base64 is one")
    });
    message_if(!REGEX.is_match(text), "invalid base64")
}

fn validate_date(text: &str) -> Vec<String> {
    message_if(time::parse_date(text).is_none(), "invalid date")
}

fn validate_datetime(text: &str) -> Vec<String> {
    message_if(time::parse_timestamp(text).is_none(), "invalid datetime")
}
