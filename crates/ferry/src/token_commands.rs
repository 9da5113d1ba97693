//! `ferry token`: bootstrap tokens, with which nodes join.

use std::process::ExitCode;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use crate::{
    arguments::{TokenArguments, TokenCommands},
    bootstrap_token::BootstrapToken,
    instance::ClusterInstance,
    join::ca_hash,
    screen::StepScreen,
    user_error::user_error,
};

const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";

/// Runs a subcommand.
pub fn run_token_command(arguments: TokenArguments) -> anyhow::Result<ExitCode> {
    let instance = ClusterInstance::at(&arguments.data_dir).context("--data-dir")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client =
            client::transport::client_from_kubeconfig(&instance.admin_kubeconfig()).await.map_err(|error| {
                user_error(
                    format!("the cluster in {} cannot be reached: {error}", instance.data().display()),
                    "Tokens are made on the node with the control plane, where `ferry up` runs.",
                )
            })?;
        match &arguments.command {
            TokenCommands::Create { ttl } => create_token(&client, &instance, ttl).await,
            TokenCommands::List => list_tokens(&client).await,
            TokenCommands::Delete { token } => delete_token(&client, token).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn create_token(client: &Client, instance: &ClusterInstance, ttl: &str) -> anyhow::Result<()> {
    let ttl: SignedDuration = if ttl == "0" { SignedDuration::ZERO } else { ttl.parse().context("--ttl")? };
    let token = BootstrapToken::generate()?;
    let mut data = json!({
        "token-id": token.id, "token-secret": token.secret, "description": "made by ferry token create",
        "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
    });
    if !ttl.is_zero() {
        let end = Timestamp::from_second(Timestamp::now().checked_add(ttl).context("--ttl")?.as_second())?;
        data["expiration"] = end.to_string().into();
    }
    let secret: Secret = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "type": TOKEN_TYPE,
        "metadata": { "name": token.secret_name() }, "stringData": data,
    }))?;
    secrets(client).create(&PostParams::default(), &secret).await.context("cannot store the token")?;
    let ca = std::fs::read_to_string(instance.pki().join("ca.crt")).context("ca.crt")?;
    println!(
        "ferry join {} --token {} --ca-cert-hash {}",
        server_address(client).await?,
        token.reveal(),
        ca_hash(&ca)?
    );
    Ok(())
}

/// The API server's address for other machines, from `cluster-info`.
async fn server_address(client: &Client) -> anyhow::Result<String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let info = api.get("cluster-info").await.context("cluster-info")?;
    let text = info.data.and_then(|mut data| data.remove("kubeconfig")).context("cluster-info has no kubeconfig")?;
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).context("cluster-info")?;
    let cluster = kubeconfig.clusters.into_iter().next().and_then(|named| named.cluster);
    cluster.and_then(|cluster| cluster.server).context("cluster-info has no server")
}

async fn list_tokens(client: &Client) -> anyhow::Result<()> {
    let of_type = ListParams::default().fields(&format!("type={TOKEN_TYPE}"));
    let screen = StepScreen::new();
    for secret in secrets(client).list(&of_type).await?.items {
        let data = secret.data.unwrap_or_default();
        let text = |key: &str| data.get(key).map(|value| String::from_utf8_lossy(&value.0).into_owned());
        let id = text("token-id").unwrap_or_default();
        let end = text("expiration").map_or_else(|| "valid until deleted".into(), |end| format!("valid until {end}"));
        screen.line(&format!("{id}  {end}  {}", text("description").unwrap_or_default()));
    }
    Ok(())
}

async fn delete_token(client: &Client, token: &str) -> anyhow::Result<()> {
    let id = token.split('.').next().unwrap_or(token);
    let name = format!("bootstrap-token-{id}");
    match secrets(client).delete(&name, &DeleteParams::default()).await {
        Ok(deleted) => {
            let name = deleted.left().map_or(name, |secret| secret.name_any());
            StepScreen::new().line(&format!("deleted {name}"));
            Ok(())
        }
        Err(error) if client::ApiErrorExt::is_not_found(&error) => {
            Err(user_error(format!("there is no token {id}"), "`ferry token list` shows them."))
        }
        Err(error) => Err(error.into()),
    }
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), "kube-system")
}
