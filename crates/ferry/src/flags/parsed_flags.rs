//! The flags that a command line gave, and their values as what they are meant to be.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use super::{FlagDefinition, FlagError, FlagStatus, FlagTable, ValueKind};

/// Flags with their values; what was not given has its default.
#[derive(Debug)]
pub struct ParsedFlags<'a> {
    table: &'a FlagTable,
    values: BTreeMap<&'static str, Vec<String>>,
}

impl<'a> ParsedFlags<'a> {
    pub(super) fn read(table: &'a FlagTable, arguments: impl IntoIterator<Item = String>) -> Result<Self, FlagError> {
        let mut given = Self { table, values: BTreeMap::new() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            given.take(&argument, &mut arguments)?;
            if given.is_given("help") || given.is_given("version") {
                break;
            }
        }
        Ok(given)
    }

    fn take(&mut self, argument: &str, rest: &mut impl Iterator<Item = String>) -> Result<(), FlagError> {
        let Some(text) = named(argument) else { return Err(FlagError::NotAFlag(argument.to_owned())) };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let flag = *self.table.find(name).ok_or_else(|| FlagError::Unknown(argument.to_owned()))?;
        let value = match (value, flag.kind()) {
            (Some(value), _) => value,
            (None, ValueKind::Bool) => "true".to_owned(),
            (None, _) if flag.name == "version" => "true".to_owned(),
            (None, _) => rest.next().ok_or(FlagError::NoValue(flag.name))?,
        };
        self.put(&flag, value)
    }

    fn put(&mut self, flag: &FlagDefinition, value: String) -> Result<(), FlagError> {
        if flag.state == FlagStatus::Refused && value != flag.default && value != "false" {
            return Err(FlagError::NotSupported(flag.name, flag.help));
        }
        let values = self.values.entry(flag.name).or_default();
        match flag.kind() {
            ValueKind::Many => values.extend(value.split(',').map(|value| value.trim().to_owned())),
            ValueKind::Bool | ValueKind::One => *values = vec![value],
        }
        Ok(())
    }

    /// Whether the command line has the flag.
    pub fn is_given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The flags that were given and have no effect.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let given = self.table.flags().iter().filter(|flag| flag.state == FlagStatus::Ignored);
        given
            .filter(|flag| self.values.get(flag.name).is_some_and(|v| v.join(",") != flag.default))
            .map(|f| f.name)
            .collect()
    }

    /// All flags with the values that count, sorted by name.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        let mut all: Vec<_> =
            self.table.flags().iter().map(|flag| (flag.name, self.many(flag.name).join(","))).collect();
        all.sort_unstable();
        all
    }

    /// The values of a flag.
    pub fn many(&self, name: &str) -> Vec<String> {
        let default = || self.table.find(name).map_or("", |flag| flag.default).split(',').map(str::to_owned).collect();
        let values: Vec<String> = self.values.get(name).cloned().unwrap_or_else(default);
        values.into_iter().filter(|value| !value.is_empty()).collect()
    }

    /// The value of a flag; `None` when it is empty.
    pub fn text(&self, name: &str) -> Option<String> {
        self.many(name).pop()
    }

    /// The value of a flag as something that can be read from text; `None` when it is empty.
    pub fn value<T: FromStr>(&self, name: &str) -> Result<Option<T>, FlagError>
    where
        T::Err: ToString,
    {
        self.text(name)
            .map(|text| text.parse().map_err(|why: T::Err| self.invalid(name, &text, &why.to_string())))
            .transpose()
    }

    /// The value of a flag that must not be empty.
    pub fn required<T: FromStr>(&self, name: &str) -> Result<T, FlagError>
    where
        T::Err: ToString,
    {
        self.value(name)?.ok_or_else(|| self.invalid(name, "", "it must not be empty"))
    }

    /// Whether `--tls-min-version` excludes TLS 1.2.
    pub fn requires_tls13(&self) -> Result<bool, FlagError> {
        match self.text("tls-min-version").as_deref() {
            None | Some("VersionTLS12") => Ok(false),
            Some("VersionTLS13") => Ok(true),
            Some(other) => Err(self.invalid("tls-min-version", other, "allowed values: VersionTLS12, VersionTLS13")),
        }
    }

    /// Whether a flag is on.
    pub fn bool(&self, name: &str) -> Result<bool, FlagError> {
        match self.text(name).as_deref() {
            None | Some("false" | "0" | "f" | "F" | "FALSE" | "False") => Ok(false),
            Some("true" | "1" | "t" | "T" | "TRUE" | "True") => Ok(true),
            Some(other) => Err(self.invalid(name, other, "parsing bool: invalid syntax")),
        }
    }

    /// The duration of a flag, as `1m30s`; zero when it is empty.
    pub fn duration(&self, name: &str) -> Result<Duration, FlagError> {
        let Some(text) = self.text(name) else { return Ok(Duration::ZERO) };
        duration(&text).ok_or_else(|| self.invalid(name, &text, "it is not a duration such as 1m30s"))
    }

    /// An error about a flag's value.
    pub fn invalid(&self, name: &str, value: &str, why: &str) -> FlagError {
        let flag = self.table.find(name).map_or("", |flag| flag.name);
        FlagError::Invalid { flag, value: value.to_owned(), why: why.to_owned() }
    }
}

/// The flag without its dashes; `None` for what is none.
fn named(argument: &str) -> Option<&str> {
    match argument {
        "-h" => Some("help"),
        _ => argument.strip_prefix("--").or_else(|| argument.strip_prefix('-').filter(|text| text.starts_with('v'))),
    }
    .filter(|name| !name.is_empty())
}

/// Reads `1h2m3.5s`, `100ms` and `0`.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..digits].parse().ok()?;
        let end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| at + digits);
        seconds += amount
            * match &rest[digits..end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[end..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# words
First flags
on bool=true used: On
wait duration=1m0s used: Wait

Other flags
names strings used: Names
v int used: How much
old string=x ignored: Old
gone string=a refused: Gone";

    fn read(arguments: &str) -> Result<Vec<(&'static str, String)>, FlagError> {
        let table = FlagTable::parse(TABLE);
        let given = table.read(arguments.split_whitespace().map(str::to_owned))?;
        Ok(given.all())
    }

    #[test]
    fn values_are_read_as_upstream_reads_them() {
        let table = FlagTable::parse(TABLE);
        let arguments = ["--on=false", "--names", "a,b", "--names=c", "-v", "4", "--old=y"];
        let given = table.read(arguments.map(str::to_owned)).unwrap();
        assert!(!given.bool("on").unwrap());
        assert_eq!(given.many("names"), ["a", "b", "c"]);
        assert_eq!(given.value::<u32>("v"), Ok(Some(4)));
        assert_eq!(given.duration("wait"), Ok(Duration::from_secs(60)));
        assert_eq!(given.without_effect(), ["old"]);
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        assert_eq!(read("--nope").unwrap_err().to_string(), "unknown flag: --nope");
        assert_eq!(read("--names").unwrap_err().to_string(), "flag needs an argument: --names");
        assert_eq!(read("--gone=b").unwrap_err(), FlagError::NotSupported("gone", "Gone"));
        assert_eq!(read("thing").unwrap_err(), FlagError::NotAFlag("thing".into()));
        assert!(read("--gone=a").is_ok());
    }

    #[test]
    fn durations_are_those_of_upstream() {
        assert_eq!(duration("1h2m3.5s"), Some(Duration::from_millis(3_723_500)));
        assert_eq!(duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        assert_eq!((duration(""), duration("5"), duration("x"), duration("1y")), (None, None, None, None));
    }
}
