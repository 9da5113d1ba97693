//! Errors of commands, and how `kubectl` prints them.
//!
//! [`CommandError`] keeps the kinds that are reported differently: answers of the server, failed connections, unknown
//! resources, several errors at once. [`CommandError::report`] has the text and the exit code of each.

use std::fmt::{self, Display};

use api::Value;

/// The result of a command or a part of one.
pub type CommandResult<T = ()> = Result<T, CommandError>;

/// An error that ends a command or a part of one.
#[derive(Clone, Debug)]
pub enum CommandError {
    /// A message; it is printed after `error: `.
    Message(String),
    /// The server answered with a `Status`.
    Status(Box<StatusError>),
    /// The request did not reach the server.
    Connection(Box<ConnectionError>),
    /// The server has no such resource.
    NoResourceMatch(PartialResource),
    /// The server has no such kind.
    NoKindMatch {
        /// The kind.
        kind: String,
        /// The version, with its group.
        api_version: String,
    },
    /// Several errors.
    Aggregate(Vec<CommandError>),
    /// The kubeconfig is not usable.
    InvalidConfiguration(Vec<String>),
    /// Ends the command with exit code 1; everything is said already.
    Exit,
    /// Ends the command with an exit code and a message.
    ExitCode(i32, String),
}

/// A resource that was looked up by a part of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialResource {
    /// The group, if named.
    pub group: String,
    /// The version, if named.
    pub version: String,
    /// The resource.
    pub resource: String,
}

/// An error that the server reported.
#[derive(Clone, Debug)]
pub struct StatusError {
    /// The `Status` object.
    pub status: Value,
}

/// A request that got no answer.
#[derive(Clone, Debug)]
pub struct ConnectionError {
    /// `Get`, `Post` and so on.
    pub operation: String,
    /// The URL of the request.
    pub url: String,
    /// The cause.
    pub cause: String,
}

impl StatusError {
    fn text(&self, field: &str) -> &str {
        self.status.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The reason, empty if the server gave none.
    pub fn reason(&self) -> &str {
        self.text("reason")
    }

    /// The message.
    pub fn message(&self) -> &str {
        self.text("message")
    }

    /// The HTTP status code.
    pub fn code(&self) -> i64 {
        self.status.get("code").and_then(Value::as_i64).unwrap_or_default()
    }

    fn detail(&self, field: &str) -> &str {
        self.status.get("details").and_then(|details| details.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// The field and message of each cause.
    pub fn causes(&self) -> Vec<(String, String)> {
        let causes = self.status.get("details").and_then(|details| details.get("causes")).and_then(Value::as_array);
        let text = |cause: &Value, name: &str| cause.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        causes.into_iter().flatten().map(|cause| (text(cause, "field"), text(cause, "message"))).collect()
    }

    /// The report of an object that is invalid.
    fn invalid_report(&self) -> String {
        if self.status.get("details").is_none_or(Value::is_null) {
            let message = self.message();
            let rest = if message.is_empty() { String::new() } else { format!(": {message}") };
            return format!("The request is invalid{rest}");
        }
        let (kind, name, causes) = (self.detail("kind"), self.detail("name"), self.causes());
        let mut text = "The request is invalid".to_owned();
        if !kind.is_empty() || !name.is_empty() {
            text = format!("The {kind} {} is invalid", api::json::go_quote(name));
        } else if !self.message().is_empty() && causes.is_empty() {
            text = format!("{text}: {}", self.message());
        }
        let mut lines: Vec<String> = Vec::new();
        for (field, message) in causes {
            let line = format!("{field}: {message}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        if lines.is_empty() { text } else { multiline(&format!("{text}: "), &lines) }
    }
}

/// Joins messages below a prefix; one message stays on its line.
fn multiline(prefix: &str, messages: &[String]) -> String {
    match messages {
        [one] => format!("{prefix}{one}\n"),
        all => format!("{prefix}\n{}", all.iter().map(|message| format!("* {message}\n")).collect::<String>()),
    }
}

impl Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, api::json::go_quote(&self.url), self.cause)
    }
}

impl Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Message(message) => f.write_str(message),
            CommandError::Status(status) => f.write_str(status.message()),
            CommandError::Connection(error) => error.fmt(f),
            CommandError::NoResourceMatch(partial) => f.write_str(&partial.error_text()),
            CommandError::NoKindMatch { kind, api_version } => {
                write!(f, "no matches for kind {} in version {}", quote(kind), quote(api_version))
            }
            CommandError::Aggregate(errors) => f.write_str(&join_distinct(errors)),
            CommandError::InvalidConfiguration(errors) => match errors.as_slice() {
                [one] => write!(f, "invalid configuration: {one}"),
                all => write!(f, "invalid configuration: [{}]", all.join(", ")),
            },
            CommandError::Exit => f.write_str("exit"),
            CommandError::ExitCode(_, message) => f.write_str(message),
        }
    }
}

impl std::error::Error for CommandError {}

fn join_distinct(errors: &[CommandError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) }
}

fn quote(text: &str) -> String {
    api::json::go_quote(text)
}

impl PartialResource {
    fn error_text(&self) -> String {
        let full = [&self.resource, &self.version, &self.group].map(String::as_str);
        format!(
            "no matches for {}, Resource={}",
            if full[2].is_empty() { format!("/{}", full[1]) } else { format!("{}/{}", full[2], full[1]) },
            full[0]
        )
    }

    fn report(&self) -> String {
        let mut text = format!("the server doesn't have a resource type {}", quote(&self.resource));
        match (self.group.is_empty(), self.version.is_empty()) {
            (false, false) => text += &format!(" in group {} and version {}", quote(&self.group), quote(&self.version)),
            (false, true) => text += &format!(" in group {}", quote(&self.group)),
            (true, false) => text += &format!(" in version {}", quote(&self.version)),
            (true, true) => {}
        }
        text
    }
}

/// Makes an error of a message.
pub fn fail<T>(message: impl Into<String>) -> CommandResult<T> {
    Err(CommandError::Message(message.into()))
}

/// Formats a message for [`fail`].
#[macro_export]
macro_rules! bail {
    ($($argument:tt)*) => { return Err($crate::errors::CommandError::Message(format!($($argument)*))) };
}

impl CommandError {
    /// Makes an error of a message.
    pub fn new(message: impl Into<String>) -> Self {
        CommandError::Message(message.into())
    }

    /// Joins the errors; `Ok` if there is none.
    pub fn join(mut errors: Vec<CommandError>) -> CommandResult {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(CommandError::Aggregate(errors)),
        }
    }

    /// The reason of the server's answer.
    pub fn reason(&self) -> &str {
        match self {
            CommandError::Status(status) => status.reason(),
            _ => "",
        }
    }

    /// Whether the server answered that the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound"
    }

    /// Whether the server answered that the object was changed meanwhile.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// The error as a message behind a prefix.
    pub fn with_prefix(self, prefix: &str) -> Self {
        CommandError::Message(format!("{prefix}{self}"))
    }

    /// Adds what was being done with which file; messages of the server keep their reason.
    pub fn with_source(self, verb: &str, source: &str) -> Self {
        if source.is_empty() {
            return self;
        }
        let message = format!("error when {verb} {}: {self}", quote(source));
        match self {
            CommandError::Status(mut error) => {
                crate::object::set_path(&mut error.status, "message", message.into());
                CommandError::Status(error)
            }
            _ => CommandError::Message(message),
        }
    }

    /// The message without `error: `, as it stands in lists of errors.
    pub fn standard_message(&self) -> String {
        match self {
            CommandError::Status(error) => match error.reason() {
                "Unauthorized" => format!("error: You must be logged in to the server ({})", error.message()),
                "" => format!("Error from server: {}", error.message()),
                reason => format!("Error from server ({reason}): {}", error.message()),
            },
            CommandError::Connection(error) if error.cause.contains("connection refused") => {
                let host = error.url.split("://").nth(1).and_then(|rest| rest.split(['/', '?']).next());
                let host = host.unwrap_or(&error.url);
                format!("The connection to the server {host} was refused - did you specify the right host or port?")
            }
            CommandError::Connection(error) => format!("Unable to connect to the server: {}", error.cause),
            other => other.to_string(),
        }
    }

    /// The text for stderr and the exit code.
    pub fn report(&self) -> (String, i32) {
        let text = match self {
            CommandError::Exit => String::new(),
            CommandError::ExitCode(code, message) => return (message.clone(), *code),
            CommandError::Status(error) if error.reason() == "Invalid" => error.invalid_report(),
            CommandError::InvalidConfiguration(errors) => match errors.as_slice() {
                [one] if !one.starts_with("context was not found") => format!("error: {one}"),
                all => multiline("Error in configuration: ", all),
            },
            CommandError::NoResourceMatch(partial) => partial.report(),
            CommandError::Aggregate(errors) => match errors.as_slice() {
                [CommandError::Aggregate(inner)] => standard_messages(inner),
                [one] => return one.report(),
                several => standard_messages(several),
            },
            CommandError::Status(_) | CommandError::Connection(_) => self.standard_message(),
            other => {
                let text = other.to_string();
                if text.starts_with("error: ") { text } else { format!("error: {text}") }
            }
        };
        (text, 1)
    }
}

fn standard_messages(errors: &[CommandError]) -> String {
    errors.iter().map(|error| format!("{}\n", error.standard_message())).collect()
}

/// Makes a `Status` error of its parts.
pub fn status_error(code: u16, reason: &str, message: impl Into<String>) -> CommandError {
    let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message.into(), "reason": reason, "code": code});
    CommandError::Status(Box::new(StatusError { status }))
}
