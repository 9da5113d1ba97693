//! `kubectl version`

use api::{KUBERNETES_VERSION, Value};
use serde_json::json;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    outln,
    rest::RestRequest,
    session::Session,
};

const UNPARSABLE: &str = "unable to parse the server version: ";
const KUSTOMIZE_VERSION: &str = "v5.8.1";

/// Prints the versions of client and server.
pub fn run(session: &Session) -> CommandResult {
    if !session.arguments().is_empty() {
        crate::bail!("extra arguments: [{}]", session.arguments().join(" "));
    }
    let output = session.flags.string("output");
    if !["", "yaml", "json"].contains(&output.as_str()) {
        crate::bail!("--output must be 'yaml' or 'json'");
    }
    let mut server = Ok(Value::Null);
    if !session.flags.bool("client") {
        server = session.client().and_then(|client| {
            let mut request = RestRequest::get("/version");
            request.default_timeout = 32_000_000_000;
            let answer = client.send(request)?;
            let version = answer.json().map_err(|error| error.with_prefix(UNPARSABLE))?;
            if !version.is_object() && !version.is_null() {
                let error = format!(
                    "json: cannot unmarshal {} into Go value of type version.Info",
                    api::json::value_type_name(&version)
                );
                return Err(CommandError::new(error).with_prefix(UNPARSABLE));
            }
            Ok(version)
        });
    }
    let version = server.as_ref().cloned().unwrap_or(Value::Null);
    match output.as_str() {
        "" => print_text(&version),
        format => print_structured(format, &version),
    }
    warn_about_skew(&version);
    server.map(|_| ())
}

fn client_version() -> Value {
    let platform = format!("linux/{}", if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" });
    json!({"major": "1", "minor": "36", "gitVersion": KUBERNETES_VERSION, "gitCommit": "unknown", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": platform})
}

fn print_text(server: &Value) {
    outln!("Client Version: {KUBERNETES_VERSION}");
    outln!("Kustomize Version: {KUSTOMIZE_VERSION}");
    if !server.is_null() {
        outln!("Server Version: {}", server.text("gitVersion"));
    }
}

const FIELDS: [&str; 13] = [
    "major",
    "minor",
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];

fn print_structured(format: &str, server: &Value) {
    let mut document = json!({"clientVersion": client_version(), "kustomizeVersion": KUSTOMIZE_VERSION});
    if !server.is_null() {
        document["serverVersion"] = server.clone();
    }
    if format == "yaml" {
        crate::outln!("{}", api::yaml::write_document(&document));
        return;
    }
    // The order of the fields is that of upstream's struct.
    let ordered = |version: &Value| {
        let fields: Vec<String> =
            FIELDS.iter().filter_map(|name| version.get(*name).map(|value| format!("\"{name}\":{value}"))).collect();
        format!("{{{}}}", fields.join(","))
    };
    let mut text = format!(
        "{{\"clientVersion\":{},\"kustomizeVersion\":\"{KUSTOMIZE_VERSION}\"",
        ordered(&document["clientVersion"])
    );
    if !server.is_null() {
        text += &format!(",\"serverVersion\":{}", ordered(server));
    }
    outln!("{}", crate::printers::indent_json(&format!("{text}}}"), "  "));
}

/// Warns when the minor versions differ by more than one.
fn warn_about_skew(server: &Value) {
    let minor: Option<i64> = server.text("minor").trim_end_matches('+').parse().ok();
    if let Some(minor) = minor.filter(|minor| (minor - 36).abs() > 1) {
        errln!(
            "Warning: version difference between client (1.36) and server ({}.{minor}) exceeds the supported minor version skew of +/-1",
            server.text("major")
        );
    }
}

/// The error of a command that takes no arguments.
pub fn check_no_arguments(session: &Session) -> CommandResult {
    match session.arguments() {
        [] => Ok(()),
        arguments => Err(CommandError::new(format!(
            "unexpected arguments: [{}]\nSee '{} -h' for help and examples",
            arguments.join(" "),
            session.command.path
        ))),
    }
}
