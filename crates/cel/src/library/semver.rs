//! The semver library: semantic versions.

use std::cmp::Ordering;

use super::{Bodies, native::Native, text};
use crate::{error::Error, value::Value};

pub(super) const BODIES: Bodies = &[
    ("semver", |args| Ok(Native::Semver(read(args)?.map_err(Error::failed)?).value())),
    ("isSemver", |args| Ok(Value::Bool(read(args)?.is_ok()))),
    ("major", |args| Ok(Value::Int(of(&args[0])?.numbers[0] as i64))),
    ("minor", |args| Ok(Value::Int(of(&args[0])?.numbers[1] as i64))),
    ("patch", |args| Ok(Value::Int(of(&args[0])?.numbers[2] as i64))),
];

/// A semantic version. Build metadata is dropped, because it does not affect precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Part>,
}

/// An identifier of a pre-release; numeric identifiers order before alphanumeric ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

pub(super) fn of<'v>(value: &'v Value<'_>) -> Result<&'v Semver, Error> {
    match value {
        Value::Native(native) => match &**native {
            Native::Semver(version) => Ok(version),
            _ => Err(Error::no_such_overload()),
        },
        _ => Err(Error::no_such_overload()),
    }
}

/// Parses the first argument as a version; if the second argument is `true`, normalizes it first.
fn read(args: &[Value<'_>]) -> Result<Result<Semver, String>, Error> {
    let text = text(&args[0])?;
    match args.get(1) {
        Some(Value::Bool(true)) => Ok(normalize(text).and_then(|text| parse(&text))),
        None | Some(Value::Bool(false)) => Ok(parse(text)),
        Some(_) => Err(Error::no_such_overload()),
    }
}

fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(String::from).collect();
    for part in parts.iter_mut().filter(|part| part.len() > 1) {
        let trimmed = part.trim_start_matches('0');
        let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
        *part = if digit { trimmed.into() } else { format!("0{trimmed}") };
    }
    if parts.len() < 3 && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".into());
    }
    parts.resize(3, "0".into());
    Ok(parts.join("."))
}

fn parse(text: &str) -> Result<Semver, String> {
    if text.is_empty() {
        return Err("Version string empty".into());
    }
    let parts: Vec<_> = text.splitn(3, '.').collect();
    let &[major, minor, rest] = &parts[..] else { return Err("No Major.Minor.Patch elements found".into()) };
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let numbers = [number(major, "Major")?, number(minor, "Minor")?, number(patch, "Patch")?];
    let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(part).collect())?;
    for part in build.iter().flat_map(|build| build.split('.')) {
        match part {
            "" => return Err("Build meta data is empty".into()),
            part if !plain(part) => return Err(format!("Invalid character(s) found in build meta data {part:?}")),
            _ => {}
        }
    }
    Ok(Semver { numbers, pre })
}

fn plain(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    if !text.bytes().all(|c| c.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number {text:?}", what.to_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} number must not contain leading zeroes {text:?}"));
    }
    let reason = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text:?}: {reason}"))
}

fn part(text: &str) -> Result<Part, String> {
    match text {
        "" => Err("Prerelease is empty".into()),
        text if text.bytes().all(|c| c.is_ascii_digit()) => {
            if text.len() > 1 && text.starts_with('0') {
                return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
            }
            number(text, "").map(Part::Number)
        }
        text if plain(text) => Ok(Part::Word(text.into())),
        text => Err(format!("Invalid character(s) found in prerelease {text:?}")),
    }
}

impl Semver {
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        match (self.pre.is_empty(), other.pre.is_empty()) {
            _ if numbers != Ordering::Equal => numbers,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        }
    }
}
