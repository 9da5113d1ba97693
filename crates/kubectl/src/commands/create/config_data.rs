//! Generators of config maps and secrets.

use api::{Value, json::go_quote};
use base64::{Engine, engine::general_purpose::STANDARD};
use formats::names;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Generator;
use crate::{
    environment_name::check_environment_name,
    errors::{CommandError, CommandResult},
    files::{os_error, read_file},
    session::Session,
};

/// Keys and their content, in the order in which they were given.
type DataEntries = Vec<(String, Vec<u8>)>;

/// Collects `--from-file`, `--from-literal` and `--from-env-file`.
fn collect_entries(session: &Session, kind: &str) -> CommandResult<DataEntries> {
    let flags = &session.flags;
    let (files, literals, environment) =
        (flags.strings("from-file"), flags.strings("from-literal"), flags.strings("from-env-file"));
    if !environment.is_empty() && (!files.is_empty() || !literals.is_empty()) {
        crate::bail!("from-env-file cannot be combined with from-file or from-literal");
    }
    let mut entries = DataEntries::new();
    for source in &files {
        add_file(&mut entries, source, kind)?;
    }
    for literal in &literals {
        let (key, value) = match literal.split_once('=') {
            Some((key, value)) if !key.is_empty() => (key, value),
            _ => crate::bail!("invalid literal source {literal}, expected key=value"),
        };
        add_entry(&mut entries, key, value.as_bytes().to_vec(), kind)?;
    }
    for path in &environment {
        for (key, value) in read_environment(path, "env config file cannot be a directory")? {
            add_entry(&mut entries, &key, value.into_bytes(), kind)?;
        }
    }
    Ok(entries)
}

fn add_file(entries: &mut DataEntries, source: &str, kind: &str) -> CommandResult {
    let (key, path) = match source.matches('=').count() {
        0 => (source.trim_end_matches('/').rsplit('/').next().unwrap_or(source).to_owned(), source),
        1 if source.starts_with('=') => crate::bail!("key name for file path {} missing", &source[1..]),
        1 if source.ends_with('=') => crate::bail!("file path for key name {} missing", source.trim_end_matches('=')),
        1 => {
            let (key, path) = source.split_once('=').unwrap_or((source, ""));
            (key.to_owned(), path)
        }
        _ => crate::bail!("key names or file paths cannot contain '='"),
    };
    let data = std::fs::metadata(path)
        .map_err(|error| CommandError::new(format!("error reading {path}: {}", os_error(&error))))?;
    if !data.is_dir() {
        return add_entry(entries, &key, read_file(path)?, kind);
    }
    if source.contains('=') {
        crate::bail!("cannot give a key name for a directory path");
    }
    let listed = std::fs::read_dir(path)
        .map_err(|error| CommandError::new(format!("error listing files in {path}: {}", os_error(&error))))?;
    let mut names: Vec<String> = listed
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    for name in names {
        let content = read_file(&format!("{}/{name}", path.trim_end_matches('/')))?;
        add_entry(entries, &name, content, kind)?;
    }
    Ok(())
}

fn add_entry(entries: &mut DataEntries, key: &str, content: Vec<u8>, kind: &str) -> CommandResult {
    let faults = names::check_config_key(key);
    if !faults.is_empty() {
        let what = if kind == "Secret" { "Secret" } else { "ConfigMap" };
        crate::bail!("{} is not a valid key name for a {what}: {}", go_quote(key), faults.join(","));
    }
    if entries.iter().any(|(known, _)| known == key) {
        match kind {
            "Secret" => crate::bail!("cannot add key {key}, another key by that name already exists"),
            name => crate::bail!(
                "cannot add key {}, another key by that name already exists in Data for ConfigMap {}",
                go_quote(key),
                go_quote(name)
            ),
        }
    }
    entries.push((key.to_owned(), content));
    Ok(())
}

/// Reads `KEY=VALUE` lines; a key alone takes its value from the environment.
pub fn read_environment(path: &str, directory_error: &str) -> CommandResult<Vec<(String, String)>> {
    let data = std::fs::metadata(path)
        .map_err(|error| CommandError::new(format!("error reading {path}: {}", os_error(&error))))?;
    if data.is_dir() {
        return Err(CommandError::new(directory_error));
    }
    let bytes = read_file(path)?;
    let mut out = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = if number == 0 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let Ok(line) = std::str::from_utf8(line) else {
            crate::bail!("env file {path} contains invalid utf8 bytes at line {}: {line:?}", number + 1);
        };
        let line = line.trim_start().trim_end_matches('\r');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value)));
        let faults = check_environment_name(key);
        if !faults.is_empty() {
            crate::bail!("{} is not a valid key name: {}", go_quote(key), faults.join(";"));
        }
        match value {
            Some(value) => out.push((key.to_owned(), value.to_owned())),
            None => out.push((key.to_owned(), std::env::var(key).unwrap_or_default())),
        }
    }
    Ok(out)
}

/// `create configmap`
pub fn config_map(generator: &Generator) -> CommandResult {
    let entries = collect_entries(generator.session, &generator.name)?;
    let (mut data, mut binary) = (json!({}), json!({}));
    for (key, content) in entries {
        match String::from_utf8(content) {
            Ok(text) => data[&key] = text.into(),
            Err(error) => binary[&key] = STANDARD.encode(error.as_bytes()).into(),
        }
    }
    let mut metadata = generator.metadata();
    if generator.session.flags.bool("append-hash") {
        metadata["name"] = append_hash(&generator.name, "ConfigMap", None, &data, &binary).into();
    }
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    for (field, map) in [("data", data), ("binaryData", binary)] {
        if map.as_object().is_some_and(|map| !map.is_empty()) {
            object[field] = map;
        }
    }
    generator.finish(object, "configmaps", true, "failed to create configmap: ")
}

/// A name with the hash of the content, as kustomize and `--append-hash` make it.
pub fn append_hash(name: &str, kind: &str, secret_type: Option<&str>, data: &Value, binary: &Value) -> String {
    let mut content = json!({"kind": kind, "name": name, "data": data});
    if let Some(secret_type) = secret_type {
        content["type"] = secret_type.into();
    }
    if binary.as_object().is_some_and(|map| !map.is_empty()) {
        content["binaryData"] = binary.clone();
    }
    let digest = Sha256::digest(api::json::escape_html(content.to_string()).as_bytes());
    let hex: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let safe = |c: char| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        other => other,
    };
    format!("{name}-{}", hex.chars().map(safe).collect::<String>())
}

fn finish_secret(generator: &Generator, secret_type: &str, entries: DataEntries) -> CommandResult {
    let mut data = json!({});
    for (key, content) in entries {
        data[&key] = STANDARD.encode(content).into();
    }
    let mut metadata = generator.metadata();
    if generator.session.flags.bool("append-hash") {
        metadata["name"] = append_hash(&generator.name, "Secret", Some(secret_type), &data, &Value::Null).into();
    }
    let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
    if !secret_type.is_empty() {
        object["type"] = secret_type.into();
    }
    if data.as_object().is_some_and(|data| !data.is_empty()) {
        object["data"] = data;
    }
    generator.finish(object, "secrets", true, "failed to create secret ")
}

/// `create secret generic`
pub fn generic_secret(generator: &Generator) -> CommandResult {
    let entries = collect_entries(generator.session, "Secret")?;
    finish_secret(generator, &generator.session.flags.string("type"), entries)
}

/// `create secret docker-registry`
pub fn registry_secret(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let text = |name: &str| flags.string(name);
    let (user, password, email, server) =
        (text("docker-username"), text("docker-password"), text("docker-email"), text("docker-server"));
    let files = flags.strings("from-file");
    if files.is_empty() && (user.is_empty() || password.is_empty() || server.is_empty()) {
        crate::bail!(
            "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required"
        );
    }
    let mut entries = DataEntries::new();
    for source in &files {
        // A path alone is the content of the only key.
        let source = if source.contains('=') { source.clone() } else { format!(".dockerconfigjson={source}") };
        add_file(&mut entries, &source, "Secret")?;
    }
    if files.is_empty() {
        // The order of the fields is that of upstream's struct.
        let auth = STANDARD.encode(format!("{user}:{password}"));
        let mut fields = vec![format!("\"username\":{}", json!(user)), format!("\"password\":{}", json!(password))];
        if !email.is_empty() {
            fields.push(format!("\"email\":{}", json!(email)));
        }
        fields.push(format!("\"auth\":{}", json!(auth)));
        let content = format!("{{\"auths\":{{{}:{{{}}}}}}}", json!(server), fields.join(","));
        entries.push((".dockerconfigjson".to_owned(), api::json::escape_html(content).into_bytes()));
    }
    finish_secret(generator, "kubernetes.io/dockerconfigjson", entries)
}

/// `create secret tls`
pub fn tls_secret(generator: &Generator) -> CommandResult {
    let flags = &generator.session.flags;
    let (key, certificate) = (flags.string("key"), flags.string("cert"));
    if key.is_empty() || certificate.is_empty() {
        crate::bail!("key and cert must be specified");
    }
    let read =
        |path: &str| read_file(path).map_err(|error| CommandError::new(format!("Cannot read file {path}, {error}")));
    let (certificate, key) = (read(&certificate)?, read(&key)?);
    check_key_pair(&certificate, &key)?;
    finish_secret(generator, "kubernetes.io/tls", vec![("tls.crt".into(), certificate), ("tls.key".into(), key)])
}

/// Checks that a certificate and a key are PEM and belong together.
fn check_key_pair(certificate: &[u8], key: &[u8]) -> CommandResult {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let missing = |what: &str| CommandError::new(format!("tls: failed to find any PEM data in {what} input"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate).filter_map(Result::ok).collect();
    if chain.is_empty() {
        if PrivateKeyDer::from_pem_slice(certificate).is_ok() {
            return Err(CommandError::new(
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have \
                 been switched",
            ));
        }
        return Err(missing("certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| match CertificateDer::from_pem_slice(key) {
        Ok(_) => CommandError::new("tls: found a certificate rather than a key in the PEM for the private key"),
        Err(_) => missing("key"),
    })?;
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    config.map(|_| ()).map_err(|_| CommandError::new("tls: private key does not match public key"))
}
