//! Formats that have a name: what a text must look like to be a label, a subdomain, a URI, …

use std::sync::LazyLock;

use formats::url::Url;
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

/// A format with a name.
#[derive(Debug)]
pub struct NamedFormat {
    name: &'static str,
    problems: fn(&str) -> Vec<String>,
    /// How long the pattern is that upstream would match; costs are counted by it.
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
    NamedFormat { name: "dns1123Label", problems: label, pattern_size: 30 },
    NamedFormat { name: "dns1123Subdomain", problems: subdomain, pattern_size: 60 },
    NamedFormat { name: "dns1035Label", problems: label_1035, pattern_size: 30 },
    NamedFormat { name: "qualifiedName", problems: qualified_name, pattern_size: 60 },
    NamedFormat { name: "dns1123LabelPrefix", problems: |text| label(&masked(text)), pattern_size: 30 },
    NamedFormat { name: "dns1123SubdomainPrefix", problems: |text| subdomain(&masked(text)), pattern_size: 60 },
    NamedFormat { name: "dns1035LabelPrefix", problems: |text| label_1035(&masked(text)), pattern_size: 30 },
    NamedFormat { name: "labelValue", problems: label_value, pattern_size: 40 },
    NamedFormat { name: "uri", problems: uri, pattern_size: 1103 },
    NamedFormat { name: "uuid", problems: uuid, pattern_size: 70 },
    NamedFormat { name: "byte", problems: byte, pattern_size: 84 },
    NamedFormat { name: "date", problems: date, pattern_size: 71 },
    NamedFormat { name: "datetime", problems: datetime, pattern_size: 71 },
];

/// Rules that are a pattern, a length and what to say when it does not fit.
struct Rule {
    pattern: &'static str,
    most: usize,
    unit: &'static str,
    message: &'static str,
    examples: &'static str,
}

const LABEL: Rule = Rule {
    pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    most: 63,
    unit: "characters",
    message: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    examples: "'my-name',  or '123-abc', ",
};
const SUBDOMAIN: Rule = Rule {
    pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    most: 253,
    unit: "characters",
    message: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    examples: "'example.com', ",
};
const LABEL_1035: Rule = Rule {
    pattern: "[a-z]([-a-z0-9]*[a-z0-9])?",
    most: 63,
    unit: "characters",
    message: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    examples: "'my-name',  or 'abc-123', ",
};
const QUALIFIED: Rule = Rule {
    pattern: "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    most: 63,
    unit: "bytes",
    message: "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: "'MyName',  or 'my.name',  or '123-abc', ",
};
const VALUE: Rule = Rule {
    pattern: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    most: 63,
    unit: "bytes",
    message: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: "'MyValue',  or 'my_value',  or '12345', ",
};

impl Rule {
    fn problems(&self, text: &str, regex: &Regex) -> Vec<String> {
        let mut problems = Vec::new();
        if text.len() > self.most {
            problems.push(format!("must be no more than {} {}", self.most, self.unit));
        }
        if !regex.is_match(text) {
            let (message, examples, pattern) = (self.message, self.examples, self.pattern);
            problems.push(format!("{message} (e.g. {examples}regex used for validation is '{pattern}')"));
        }
        problems
    }
}

/// The pattern of a rule, compiled once.
macro_rules! rule {
    ($name:ident, $rule:ident) => {
        fn $name(text: &str) -> Vec<String> {
            static REGEX: LazyLock<Regex> =
                LazyLock::new(|| Regex::new(&format!("^(?:{})$", $rule.pattern)).expect("a rule's pattern is one"));
            $rule.problems(text, &REGEX)
        }
    };
}

rule!(label_part, LABEL);
rule!(subdomain, SUBDOMAIN);
rule!(label_1035, LABEL_1035);
rule!(qualified_part, QUALIFIED);
rule!(label_value, VALUE);

fn label(text: &str) -> Vec<String> {
    let mut problems = label_part(text);
    if let Some(last) = problems.last_mut().filter(|last| last.starts_with(LABEL.message))
        && text.contains('.')
        && subdomain(text).iter().all(|problem| !problem.starts_with(SUBDOMAIN.message))
    {
        *last = "must not contain dots".into();
    }
    problems
}

/// Whether a service account and its namespace may have these names.
pub(super) fn account_names(namespace: &str, name: &str) -> Result<(), Error> {
    if !subdomain(name).is_empty() {
        return Err(Error::failed("Invalid service account name"));
    }
    if !label(namespace).is_empty() {
        return Err(Error::failed("Invalid service account namespace"));
    }
    Ok(())
}

/// A name to which something is added may end with a dash.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(before) if !before.is_empty() => format!("{before}a"),
        _ => text.into(),
    }
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<_> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        ["", name] => {
            problems.push("prefix part must be non-empty".into());
            name
        }
        [prefix, name] => {
            let wrong = subdomain(prefix).into_iter().map(|problem| problem.replace("253 characters", "253 bytes"));
            problems.extend(wrong.map(|problem| format!("prefix part {problem}")));
            name
        }
        _ => {
            let (message, examples, pattern) = (QUALIFIED.message, QUALIFIED.examples, QUALIFIED.pattern);
            return vec![format!(
                "a valid label key {message} (e.g. {examples}regex used for validation is '{pattern}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    }
    problems.extend(qualified_part(name).into_iter().map(|problem| format!("name part {problem}")));
    problems
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
