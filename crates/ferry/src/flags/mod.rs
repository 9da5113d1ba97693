//! The flags of an upstream component as one table: name, type, default, state and help. Parsing, help and what is told
//! at start read it. A flag that is not in the table, or not supported, is an error that names it.

mod help;
mod parsed_flags;

pub use parsed_flags::{ParsedFlags, duration};

/// Whether a flag does what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagStatus {
    /// It does.
    Used,
    /// It is accepted and has no effect.
    Ignored,
    /// It is not supported.
    Refused,
}

/// The value type of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `--flag`, or `--flag=false`.
    Bool,
    /// One value; a later one replaces an earlier one.
    One,
    /// Values with commas between them, in one or several flags.
    Many,
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct FlagDefinition {
    /// Without dashes.
    pub name: &'static str,
    /// As help shows it.
    pub type_name: &'static str,
    /// Empty if there is none.
    pub default: &'static str,
    /// Whether it does what it says.
    pub state: FlagStatus,
    /// The heading in `--help`.
    pub section: &'static str,
    /// Its help text.
    pub help: &'static str,
}

impl FlagDefinition {
    /// The value type.
    pub fn kind(&self) -> ValueKind {
        match self.type_name {
            "bool" => ValueKind::Bool,
            "strings" | "map" => ValueKind::Many,
            _ => ValueKind::One,
        }
    }
}

/// An invalid command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FlagError {
    /// No such flag.
    #[error("unknown flag: {0}")]
    Unknown(String),
    /// A flag without its value.
    #[error("flag needs an argument: --{0}")]
    NoValue(&'static str),
    /// A flag that upstream has and this program does not.
    #[error("--{0} is not supported: {1}")]
    NotSupported(&'static str, &'static str),
    /// A value that is none of the flag's.
    #[error("invalid argument {value:?} for \"--{flag}\" flag: {why}")]
    Invalid {
        /// Which flag.
        flag: &'static str,
        /// The given value.
        value: String,
        /// The expected form.
        why: String,
    },
    /// Something that is not a flag.
    #[error("unknown command {0:?}: only flags are taken")]
    NotAFlag(String),
}

/// The flags of one component.
#[derive(Debug)]
pub struct FlagTable {
    flags: Vec<FlagDefinition>,
}

impl FlagTable {
    /// Reads a table of lines `name type[=default] state: help` under headings.
    pub fn parse(text: &'static str) -> Self {
        let mut section = "";
        let mut flags = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match row(line, section) {
                Some(flag) => flags.push(flag),
                None => section = line,
            }
        }
        Self { flags }
    }

    /// In the table's order.
    pub fn flags(&self) -> &[FlagDefinition] {
        &self.flags
    }

    /// The flag of that name; upstream takes underscores for dashes.
    pub fn find(&self, name: &str) -> Option<&FlagDefinition> {
        let name = name.replace('_', "-");
        self.flags.iter().find(|flag| flag.name == name)
    }

    /// Reads arguments. `--help` and `--version` win over errors in later arguments.
    pub fn read(&self, arguments: impl IntoIterator<Item = String>) -> Result<ParsedFlags<'_>, FlagError> {
        ParsedFlags::read(self, arguments)
    }

    /// Renders `--help`.
    pub fn help(&self, component: &str, about: &str) -> String {
        help::render_help(self, component, about)
    }
}

fn row(line: &'static str, section: &'static str) -> Option<FlagDefinition> {
    let (head, help) = line.split_once(": ")?;
    let mut words = head.split(' ');
    let (name, kind, state) = (words.next()?, words.next()?, words.next()?);
    let state = match state {
        "used" => FlagStatus::Used,
        "ignored" => FlagStatus::Ignored,
        "refused" => FlagStatus::Refused,
        _ => return None,
    };
    let (type_name, default) = kind.split_once('=').unwrap_or((kind, ""));
    Some(FlagDefinition { name, type_name, default, state, section, help })
}
