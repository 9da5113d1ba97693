//! Definitions: those of others, clones of one, and the document about all that are there.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferry_tests::definitions::GoModules;
use serde_json::Value;
use tokio::time::sleep;

use crate::side::ServerSide;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CLONED: &str = "certificaterequests.cert-manager.io";
/// Time for all CRDs to be established.
const PATIENCE: Duration = Duration::from_secs(120);

/// The definitions of others.
pub fn read() -> anyhow::Result<Vec<Value>> {
    let modules = GoModules::fetch().context("the definitions are in Go modules, which cannot be had")?;
    let documents = modules.definitions().counted;
    documents.iter().map(|it| Ok(formats::yaml::parse(it.document.text.as_bytes())?.value)).collect()
}

/// Clones of one of them, each in a group of its own.
pub fn clones(definitions: &[Value], count: usize) -> anyhow::Result<Vec<Value>> {
    let cloned = definitions.iter().find(|it| it["metadata"]["name"] == CLONED).context(CLONED)?;
    let plural = cloned["spec"]["names"]["plural"].as_str().context("a plural")?;
    let clone = |n: usize| {
        let (mut clone, group) = (cloned.clone(), format!("clone-{n}.example.com"));
        clone["metadata"]["name"] = format!("{plural}.{group}").into();
        clone["spec"]["group"] = group.into();
        clone
    };
    Ok((0..count).map(clone).collect())
}

/// Creates definitions one after the other; how long until all of them were established.
pub async fn establish(side: &mut ServerSide<'_>, definitions: &[Value]) -> anyhow::Result<Duration> {
    let start = Instant::now();
    for definition in definitions {
        side.create(DEFINITIONS, definition).await?;
    }
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().context("a name")?;
        while !is_established(&side.get(&format!("{DEFINITIONS}/{name}")).await?.body)? {
            if start.elapsed() > PATIENCE {
                bail!("{name} was not established in {PATIENCE:?}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(start.elapsed())
}

/// Reads the document of OpenAPI 2, which must have all kinds; how long that took, and how long it is.
pub async fn document(side: &mut ServerSide<'_>) -> anyhow::Result<(Duration, usize)> {
    let start = Instant::now();
    let answer = side.get("/openapi/v2").await?;
    let took = start.elapsed();
    let text = str::from_utf8(&answer.body)?;
    if !text.contains(r#""com.example.clone-0.v1.CertificateRequest":"#) {
        bail!("the document does not have the clones");
    }
    Ok((took, text.len()))
}

fn is_established(body: &[u8]) -> anyhow::Result<bool> {
    let definition: Value = serde_json::from_slice(body)?;
    let conditions = definition["status"]["conditions"].as_array();
    Ok(conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True"))
}
