//! Semantic versions, parsed as `blang/semver` does.

use std::cmp::Ordering;

use crate::error::EvalError;

/// A semantic version. Build metadata is dropped, because it does not affect precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<PreReleaseIdentifier>,
}

/// An identifier of a pre-release; numeric identifiers order before alphanumeric ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PreReleaseIdentifier {
    Number(u64),
    Word(String),
}

impl Semver {
    /// Parses a version.
    pub(crate) fn parse(text: &str) -> Result<Self, EvalError> {
        if text.is_empty() {
            return Err(EvalError::new("Version string empty"));
        }
        let parts: Vec<_> = text.splitn(3, '.').collect();
        let &[major, minor, rest] = &parts[..] else {
            return Err(EvalError::new("No Major.Minor.Patch elements found"));
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let numbers = [
            parse_version_number(major, "Major")?,
            parse_version_number(minor, "Minor")?,
            parse_version_number(patch, "Patch")?,
        ];
        let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(parse_pre_release).collect())?;
        for part in build.iter().flat_map(|build| build.split('.')) {
            match part {
                "" => return Err(EvalError::new("Build meta data is empty")),
                part if !is_valid_identifier(part) => {
                    return Err(EvalError::new(format!("Invalid character(s) found in build meta data {part:?}")));
                }
                _ => {}
            }
        }
        Ok(Self { numbers, pre })
    }

    /// Parses a version after normalizing it: a leading `v`, leading zeros and missing numbers are accepted.
    pub(crate) fn parse_normalized(text: &str) -> Result<Self, EvalError> {
        Self::parse(&normalize_version(text)?)
    }

    /// Returns the major (0), minor (1) or patch (2) number.
    pub(crate) fn number(&self, at: usize) -> i64 {
        self.numbers[at] as i64
    }

    /// Compares two versions by precedence.
    pub(crate) fn compare_precedence(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        match (self.pre.is_empty(), other.pre.is_empty()) {
            _ if numbers != Ordering::Equal => numbers,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        }
    }
}

fn normalize_version(text: &str) -> Result<String, EvalError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(String::from).collect();
    for part in parts.iter_mut().filter(|part| part.len() > 1) {
        let trimmed = part.trim_start_matches('0');
        let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
        *part = if digit { trimmed.into() } else { format!("0{trimmed}") };
    }
    if parts.len() < 3 && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
        return Err(EvalError::new("short version cannot contain PreRelease/Build meta data"));
    }
    parts.resize(3, "0".into());
    Ok(parts.join("."))
}

fn is_valid_identifier(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn parse_version_number(text: &str, what: &str) -> Result<u64, EvalError> {
    if !text.bytes().all(|c| c.is_ascii_digit()) {
        return Err(EvalError::new(format!("Invalid character(s) found in {} number {text:?}", what.to_lowercase())));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(EvalError::new(format!("{what} number must not contain leading zeroes {text:?}")));
    }
    let reason = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse().map_err(|_| EvalError::new(format!("strconv.ParseUint: parsing {text:?}: {reason}")))
}

fn parse_pre_release(text: &str) -> Result<PreReleaseIdentifier, EvalError> {
    match text {
        "" => Err(EvalError::new("Prerelease is empty")),
        text if text.bytes().all(|c| c.is_ascii_digit()) => {
            if text.len() > 1 && text.starts_with('0') {
                return Err(EvalError::new(format!(
                    "Numeric PreRelease version must not contain leading zeroes {text:?}"
                )));
            }
            parse_version_number(text, "").map(PreReleaseIdentifier::Number)
        }
        text if is_valid_identifier(text) => Ok(PreReleaseIdentifier::Word(text.into())),
        text => Err(EvalError::new(format!("Invalid character(s) found in prerelease {text:?}"))),
    }
}
