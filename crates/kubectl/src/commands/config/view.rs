//! `kubectl config view`

use api::{Map, Value};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::load;
use crate::{
    commands::version::check_no_arguments,
    errors::{CommandError, CommandResult},
    kubeconfig::{Kubeconfig, redact_entry, text_of},
    outln,
    output::write_out,
    printers::{ObjectPrinter, indent_json},
    session::Session,
};

/// Shows the merged configuration.
pub fn run(session: &Session) -> CommandResult {
    check_no_arguments(session)?;
    let flags = &session.flags;
    if !flags.bool("merge") && session.loading_rules().explicit.is_none() {
        crate::bail!("if merge==false a precise file must be specified");
    }
    let (rules, mut config) = load(session)?;
    let minify = flags.bool("minify");
    let context = flags.string("context");
    if minify {
        if !context.is_empty() {
            config.current_context = context;
        }
        config = minified(&config)?;
    }
    let (raw, flatten) = (flags.bool("raw"), flags.bool("flatten"));
    if flatten {
        // Paths are read from the directories of their files.
        let resolved = rules.load(false).unwrap_or_default();
        embed_files(&mut config, &resolved)?;
    } else if !raw {
        config.clusters.values_mut().chain(config.users.values_mut()).for_each(redact_entry);
    }
    let document = config.to_value();
    let output = flags.string("output");
    match output.as_str() {
        "" | "yaml" => {
            write_out(&api::yaml::write_document(&document));
            Ok(())
        }
        "json" => {
            outln!("{}", indent_json(&ordered_json(&config), "    "));
            Ok(())
        }
        _ => ObjectPrinter::from_flags(flags, "")?.print(&document),
    }
}

fn minified(config: &Kubeconfig) -> CommandResult<Kubeconfig> {
    let name = &config.current_context;
    if name.is_empty() {
        crate::bail!("current-context must exist in order to minify");
    }
    let Some(context) = config.contexts.get(name) else { crate::bail!("cannot locate context {name}") };
    let mut out =
        Kubeconfig { current_context: name.clone(), extensions: config.extensions.clone(), ..Default::default() };
    out.contexts.insert(name.clone(), context.clone());
    let (user, cluster) = (text_of(context, "user"), text_of(context, "cluster"));
    if !user.is_empty() {
        let Some(entry) = config.users.get(user) else { crate::bail!("cannot locate user {user}") };
        out.users.insert(user.to_owned(), entry.clone());
    }
    if !cluster.is_empty() {
        let Some(entry) = config.clusters.get(cluster) else { crate::bail!("cannot locate cluster {cluster}") };
        out.clusters.insert(cluster.to_owned(), entry.clone());
    }
    Ok(out)
}

/// Replaces file names by the content of the files.
fn embed_files(config: &mut Kubeconfig, resolved: &Kubeconfig) -> CommandResult {
    for (section, fields) in
        [("clusters", &["certificate-authority"][..]), ("users", &["client-certificate", "client-key"])]
    {
        let names: Vec<String> = config.section(section).keys().cloned().collect();
        for name in names {
            for field in fields {
                let path = resolved
                    .section(section)
                    .get(&name)
                    .map(|entry| text_of(entry, field).to_owned())
                    .unwrap_or_default();
                let Some(entry) = config.section_mut(section).get_mut(&name) else { continue };
                if entry.remove(*field).is_none() || path.is_empty() {
                    continue;
                }
                let content = crate::files::read_file(&path).map_err(|error| CommandError::new(error.to_string()))?;
                entry.insert(format!("{field}-data"), STANDARD.encode(content).into());
            }
        }
    }
    Ok(())
}

const CLUSTER_ORDER: [&str; 8] = [
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "extensions",
];
const USER_ORDER: [&str; 15] = [
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
    "username",
    "password",
    "auth-provider",
    "exec",
    "extensions",
];
const CONTEXT_ORDER: [&str; 4] = ["cluster", "user", "namespace", "extensions"];

/// The JSON with the order of upstream's structs.
fn ordered_json(config: &Kubeconfig) -> String {
    let entry = |map: &Map, order: &[&str]| {
        let known = order.iter().filter_map(|field| map.get(*field).map(|value| format!("\"{field}\":{value}")));
        let rest = map
            .iter()
            .filter(|(key, _)| !order.contains(&key.as_str()))
            .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())));
        format!("{{{}}}", known.chain(rest).collect::<Vec<_>>().join(","))
    };
    let list = |section: &str, field: &str, order: &[&str]| {
        let items: Vec<String> = config
            .section(section)
            .iter()
            .map(|(name, map)| format!("{{\"name\":{},\"{field}\":{}}}", Value::from(name.as_str()), entry(map, order)))
            .collect();
        if items.is_empty() { "null".to_owned() } else { format!("[{}]", items.join(",")) }
    };
    format!(
        "{{\"kind\":\"Config\",\"apiVersion\":\"v1\",\"clusters\":{},\"users\":{},\"contexts\":{},\"current-context\":{}}}",
        list("clusters", "cluster", &CLUSTER_ORDER),
        list("users", "user", &USER_ORDER),
        list("contexts", "context", &CONTEXT_ORDER),
        Value::from(config.current_context.as_str())
    )
}
