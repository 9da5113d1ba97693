//! Authorization flags: reads and validates the files that they name.

use std::{fs, path::Path};

use anyhow::{Context, bail, ensure};
use apiserver::{
    AuthorizationMode, AuthorizationOptions,
    authorize::{
        AbacPolicies, WebhookConfig, config,
        webhook::{self, ReviewVersion},
    },
};

use super::flag_files::flag_path;
use crate::flags::ParsedFlags;

/// The chain of authorizers.
pub fn authorization_options(given: &ParsedFlags<'_>) -> anyhow::Result<AuthorizationOptions> {
    let policies = read_policies(given)?;
    if let Some(file) = flag_path(given, "authorization-config") {
        const OTHERS: [&str; 5] = [
            "authorization-mode",
            "authorization-webhook-config-file",
            "authorization-webhook-version",
            "authorization-webhook-cache-authorized-ttl",
            "authorization-webhook-cache-unauthorized-ttl",
        ];
        ensure!(
            !OTHERS.iter().any(|flag| given.is_given(flag)),
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are \
             defined"
        );
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        return Ok(AuthorizationOptions { modes: config::parse_configuration(&text, policies.as_ref())? });
    }
    let names = given.many("authorization-mode");
    let named = |name: &str| names.iter().any(|given| given == name);
    ensure!(policies.is_none() || named("ABAC"), "cannot specify --authorization-policy-file without mode ABAC");
    let webhook = flag_path(given, "authorization-webhook-config-file");
    ensure!(
        webhook.is_none() || named("Webhook"),
        "cannot specify --authorization-webhook-config-file without mode Webhook"
    );
    let mut modes = Vec::new();
    for (at, name) in names.iter().enumerate() {
        ensure!(!names[..at].contains(name), "authorization-mode {names:?} has mode specified more than once");
        modes.push(match (name.as_str(), &webhook) {
            ("Webhook", Some(file)) => AuthorizationMode::Webhook(asked(given, file)?),
            ("Webhook", None) => bail!("authorization-mode Webhook's authorization config file not passed"),
            ("ABAC", _) if policies.is_none() => {
                bail!("authorization-mode ABAC's authorization policy file not passed")
            }
            (name, _) => AuthorizationMode::from_name(name, policies.as_ref())
                .with_context(|| format!("authorization-mode {name:?} is not a valid mode"))?,
        });
    }
    Ok(if modes.is_empty() { AuthorizationOptions::default() } else { AuthorizationOptions { modes } })
}

fn read_policies(given: &ParsedFlags<'_>) -> anyhow::Result<Option<AbacPolicies>> {
    let Some(file) = flag_path(given, "authorization-policy-file") else { return Ok(None) };
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(Some(AbacPolicies::parse(&text).with_context(|| file.display().to_string())?))
}

/// The webhook that the flags describe.
fn asked(given: &ParsedFlags<'_>, file: &Path) -> anyhow::Result<WebhookConfig> {
    let version = match given.text("authorization-webhook-version").as_deref() {
        Some("v1") => ReviewVersion::V1,
        Some("v1beta1") => ReviewVersion::V1Beta1,
        other => bail!(
            "unsupported webhook authorizer version {:?}, supported versions are \"v1\", \"v1beta1\"",
            other.unwrap_or_default()
        ),
    };
    Ok(WebhookConfig {
        allowed_for: given.duration("authorization-webhook-cache-authorized-ttl")?,
        refused_for: given.duration("authorization-webhook-cache-unauthorized-ttl")?,
        ..webhook::config_from_kubeconfig(file, version).with_context(|| file.display().to_string())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::FlagTable;

    fn read(flags: &str) -> Result<String, String> {
        let table = FlagTable::parse(crate::kube_apiserver::FLAGS);
        let given = table.read(flags.split_whitespace().map(str::to_owned)).map_err(|error| error.to_string())?;
        let settings = authorization_options(&given).map_err(|error| format!("{error:#}"))?;
        Ok(settings
            .modes
            .iter()
            .map(|mode| format!("{mode:?}").chars().take(11).collect::<String>())
            .collect::<Vec<_>>()
            .join(" "))
    }

    #[test]
    fn modes_are_checked_together() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name).display().to_string()
        };
        let policies = file("policies", "{\"user\": \"alice\"}");
        let hook = file(
            "hook",
            "current-context: x\ncontexts: [{name: x, context: {cluster: x}}]\nclusters: [{name: x, cluster: {server: \
             \"https://127.0.0.1:1/\"}}]\n",
        );
        let config = file(
            "config",
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: Node, name: node}, \
             {type: RBAC, name: rbac}]\n",
        );
        for (flags, want) in [
            ("", Ok("AlwaysAllow")),
            ("--authorization-mode=Node,RBAC", Ok("Node Rbac")),
            ("--authorization-mode=AlwaysDeny --authorization-mode=RBAC", Ok("AlwaysDeny Rbac")),
            (&format!("--authorization-mode=ABAC --authorization-policy-file={policies}"), Ok("Abac(AbacPo")),
            (
                &format!("--authorization-mode=Webhook,RBAC --authorization-webhook-config-file={hook}"),
                Ok("Webhook(Web Rbac"),
            ),
            (&format!("--authorization-config={config}"), Ok("Node Rbac")),
            (
                "--authorization-mode=Node,Node",
                Err("authorization-mode [\"Node\", \"Node\"] has mode specified more than once"),
            ),
            ("--authorization-mode=rbac", Err("authorization-mode \"rbac\" is not a valid mode")),
            ("--authorization-mode=ABAC", Err("authorization-mode ABAC's authorization policy file not passed")),
            ("--authorization-mode=Webhook", Err("authorization-mode Webhook's authorization config file not passed")),
            (
                &format!("--authorization-mode=RBAC --authorization-policy-file={policies}"),
                Err("cannot specify --authorization-policy-file without mode ABAC"),
            ),
            (
                &format!("--authorization-mode=RBAC --authorization-webhook-config-file={hook}"),
                Err("cannot specify --authorization-webhook-config-file without mode Webhook"),
            ),
            (
                &format!("--authorization-mode=RBAC --authorization-config={config}"),
                Err(
                    "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags \
                     are defined",
                ),
            ),
            (
                &format!(
                    "--authorization-mode=Webhook --authorization-webhook-config-file={hook} --authorization-webhook-version=v2"
                ),
                Err("unsupported webhook authorizer version \"v2\", supported versions are \"v1\", \"v1beta1\""),
            ),
        ] {
            assert_eq!(read(flags), want.map(str::to_owned).map_err(str::to_owned), "{flags}");
        }
    }
}
