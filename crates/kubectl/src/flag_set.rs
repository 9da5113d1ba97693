//! Parsing of flags, with pflag's rules and error texts: flags anywhere, short forms and clusters, `--flag=value`, flags
//! whose value is optional, deprecated flags.

use std::collections::BTreeMap;

use api::json::go_quote;

use crate::{
    command_table::FlagDefinition,
    errors::{CommandError, CommandResult},
    flag_value::check_value,
    output::write_err,
};

/// The outcome of parsing.
#[derive(Clone, Debug, Default)]
pub struct FlagSet {
    definitions: Vec<FlagDefinition>,
    /// The values given, by name.
    values: BTreeMap<String, Vec<String>>,
    /// The names and values of the command line, in its order.
    given: Vec<(String, String)>,
    /// Positional arguments.
    pub arguments: Vec<String>,
    /// The number of arguments before `--`.
    pub dash_position: Option<usize>,
    /// Whether `--help` or `-h` was given.
    pub help: bool,
}

impl FlagSet {
    /// A set without values.
    pub fn new(definitions: &[&FlagDefinition]) -> Self {
        FlagSet { definitions: definitions.iter().map(|flag| (*flag).clone()).collect(), ..Default::default() }
    }

    /// The definitions, for lookups.
    pub fn definition(&self, name: &str) -> Option<&FlagDefinition> {
        let name = name.replace('_', "-");
        self.definitions.iter().find(|flag| flag.name == name)
    }

    fn short(&self, short: char) -> Option<&FlagDefinition> {
        self.definitions.iter().find(|flag| flag.short == Some(short))
    }

    /// Parses the arguments after the command's name.
    pub fn parse(&mut self, arguments: &[String]) -> CommandResult {
        let mut rest: std::collections::VecDeque<String> = arguments.iter().cloned().collect();
        while let Some(argument) = rest.pop_front() {
            if argument == "--" {
                self.dash_position = Some(self.arguments.len());
                self.arguments.extend(rest);
                return Ok(());
            }
            if let Some(long) = argument.strip_prefix("--") {
                self.parse_long(long, &argument, &mut rest)?;
            } else if argument.len() > 1 && argument.starts_with('-') {
                self.parse_cluster(&argument[1..], &mut rest)?;
            } else {
                self.arguments.push(argument);
            }
            if self.help {
                return Ok(());
            }
        }
        Ok(())
    }

    fn parse_long(&mut self, text: &str, whole: &str, rest: &mut std::collections::VecDeque<String>) -> CommandResult {
        if text.starts_with(['-', '=']) {
            return Err(CommandError::new(format!("bad flag syntax: {whole}")));
        }
        let (name, inline) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(flag) = self.definition(name) else {
            if name == "help" {
                self.help = inline.is_none_or(|value| matches!(value, "true" | "1" | "t"));
                return Ok(());
            }
            return Err(CommandError::new(format!("unknown flag: --{name}")));
        };
        let value = match (inline, &flag.bare) {
            (Some(value), _) => value.to_owned(),
            (None, Some(bare)) => bare.clone(),
            (None, None) => {
                rest.pop_front().ok_or_else(|| CommandError::new(format!("flag needs an argument: --{name}")))?
            }
        };
        let flag = flag.clone();
        self.given.push((flag.name.clone(), value.clone()));
        self.set_flag(&flag, value)
    }

    fn parse_cluster(&mut self, cluster: &str, rest: &mut std::collections::VecDeque<String>) -> CommandResult {
        let mut left = cluster;
        while let Some(short) = left.chars().next() {
            let after = &left[short.len_utf8()..];
            let Some(flag) = self.short(short).cloned() else {
                if short == 'h' {
                    self.help = true;
                    return Ok(());
                }
                return Err(CommandError::new(format!("unknown shorthand flag: '{short}' in -{left}")));
            };
            let (value, next) = if after.len() > 1 && after.starts_with('=') {
                (after[1..].to_owned(), "")
            } else if let Some(bare) = &flag.bare {
                (bare.clone(), after)
            } else if !after.is_empty() {
                (after.to_owned(), "")
            } else {
                let missing = || CommandError::new(format!("flag needs an argument: '{short}' in -{left}"));
                (rest.pop_front().ok_or_else(missing)?, "")
            };
            if !flag.short_deprecated.is_empty() {
                write_err(&format!("Flag shorthand -{short} has been deprecated, {}\n", flag.short_deprecated));
            }
            self.given.push((flag.name.clone(), value.clone()));
            self.set_flag(&flag, value)?;
            left = next;
        }
        Ok(())
    }

    /// Sets a flag by its long name.
    pub fn set(&mut self, name: &str, value: String) -> CommandResult {
        match self.definition(name).cloned() {
            Some(flag) => self.set_flag(&flag, value),
            None => Err(CommandError::new(format!("no such flag -{name}"))),
        }
    }

    fn set_flag(&mut self, flag: &FlagDefinition, value: String) -> CommandResult {
        if let Err(cause) = check_value(&flag.kind, &value) {
            let name = match flag.short {
                Some(short) if flag.short_deprecated.is_empty() => format!("-{short}, --{}", flag.name),
                _ => format!("--{}", flag.name),
            };
            let message = format!("invalid argument {} for {} flag: {cause}", go_quote(&value), go_quote(&name));
            return Err(CommandError::new(message));
        }
        self.values.entry(flag.name.clone()).or_default().push(value);
        if !flag.deprecated.is_empty() {
            write_err(&format!("Flag --{} has been deprecated, {}\n", flag.name, flag.deprecated));
        }
        Ok(())
    }

    /// Whether the flag was given.
    pub fn changed(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Whether the command has the flag.
    pub fn has(&self, name: &str) -> bool {
        self.definition(name).is_some()
    }

    /// The value as text: the last one given, or the default.
    pub fn string(&self, name: &str) -> String {
        match self.values.get(name).and_then(|values| values.last()) {
            Some(value) => value.clone(),
            None => self.definition(name).map(|flag| flag.default.clone()).unwrap_or_default(),
        }
    }

    /// The value of a boolean.
    pub fn bool(&self, name: &str) -> bool {
        matches!(self.string(name).as_str(), "1" | "t" | "T" | "TRUE" | "true" | "True")
    }

    /// The value of an integer.
    pub fn int(&self, name: &str) -> i64 {
        crate::flag_value::parse_int(&self.string(name), 64).unwrap_or_default()
    }

    /// The value of a duration in nanoseconds.
    pub fn duration(&self, name: &str) -> i64 {
        api::duration::try_parse(&self.string(name)).unwrap_or_default()
    }

    /// The values of a flag that can be repeated; those of a slice are split at commas.
    pub fn strings(&self, name: &str) -> Vec<String> {
        let Some(flag) = self.definition(name) else { return Vec::new() };
        match self.values.get(name) {
            None => {
                let inner = flag.default.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
                let inner = inner.unwrap_or_default();
                if inner.is_empty() { Vec::new() } else { inner.split(',').map(str::to_owned).collect() }
            }
            Some(values) if flag.kind == "stringSlice" => {
                values.iter().flat_map(|value| crate::flag_value::split_csv(value)).collect()
            }
            Some(values) => values.clone(),
        }
    }

    /// The values of a flag of `key=value` pairs, sorted by key; a later value of a key replaces an earlier one.
    pub fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let values = self.values.get(name).into_iter().flatten();
        let pairs = values.flat_map(|value| crate::flag_value::split_csv(value));
        let pairs =
            pairs.filter_map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
        pairs.collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// The flags of the command line with their values, in its order.
    pub fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Reports flags that are required and were not given.
    pub fn check_required(&self) -> CommandResult {
        let missing: Vec<String> = self
            .definitions
            .iter()
            .filter(|flag| flag.required && !self.changed(&flag.name))
            .map(|flag| go_quote(&flag.name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(CommandError::new(format!("required flag(s) {} not set", missing.join(", "))))
    }
}
