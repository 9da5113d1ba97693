//! `ferry image`: lists, pulls and removes images of the cluster's container runtime, over CRI.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, Subcommand};
use runtime::cri::{CriClient, types::Image};

use crate::{
    arguments::DATA_DIR, instance::ClusterInstance, runtime_check, screen::StepScreen, state::InstanceState,
    user_error::user_error,
};

/// List, pull or remove images of the cluster's container runtime
#[derive(Clone, Debug, Args)]
pub struct ImageArguments {
    #[command(subcommand)]
    command: ImageCommand,

    /// The cluster's data directory
    #[arg(long, global = true, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
}

#[derive(Clone, Debug, Subcommand)]
enum ImageCommand {
    /// List images
    Ls,
    /// Pull an image, with the registry settings of the cluster
    Pull {
        /// Such as nginx:1.27 or registry.example/team/app:v1
        image: String,
    },
    /// Remove an image with all its names
    Rm {
        /// A name or an id
        image: String,
    },
}

/// Runs a subcommand.
pub fn run_image_command(arguments: ImageArguments) -> anyhow::Result<ExitCode> {
    let instance = ClusterInstance::at(&arguments.data_dir).context("--data-dir")?;
    let state = InstanceState::load(&instance)?;
    let Some(endpoint) = state.runtime_endpoint else {
        return Err(user_error(
            format!("{} has no container runtime", instance.data().display()),
            "Start the cluster with `ferry up`, or name its directory with --data-dir.",
        ));
    };
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    threads.block_on(async {
        let cri = runtime_check::connect_cri(&endpoint).await?;
        run_on(&cri, arguments.command).await
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn run_on(cri: &CriClient, command: ImageCommand) -> anyhow::Result<()> {
    let screen = StepScreen::new();
    match command {
        ImageCommand::Ls => {
            screen.line(&format!("{:<60} {:<14} {:>10}", "NAME", "ID", "SIZE"));
            cri.list_images().await?.iter().flat_map(describe_image).for_each(|line| screen.line(&line));
        }
        ImageCommand::Pull { image } => {
            let id = cri.pull_image(&image, None, None).await?;
            screen.line(&id);
        }
        ImageCommand::Rm { image } => {
            let found = cri.image_status(&image).await?;
            let found =
                found.ok_or_else(|| user_error(format!("no image is {image:?}"), "`ferry image ls` lists them."))?;
            cri.remove_image(&found.id).await?;
            screen.line(&found.id);
        }
    }
    Ok(())
}

/// A line for each name of an image.
fn describe_image(image: &Image) -> Vec<String> {
    let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
    let size = format!("{:.1} MB", image.size as f64 / 1e6);
    let names = if image.repo_tags.is_empty() { &image.repo_digests } else { &image.repo_tags };
    let none = vec!["<none>".to_owned()];
    let names = if names.is_empty() { &none } else { names };
    names.iter().map(|name| format!("{name:<60} {id:<14} {size:>10}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_line() {
        let image = Image {
            id: format!("sha256:{}", "ab".repeat(32)),
            repo_tags: vec!["a:1".into(), "a:2".into()],
            size: 1_500_000,
            ..Default::default()
        };
        let lines = describe_image(&image);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("a:1 ") && lines[0].contains(" abababababab ") && lines[0].ends_with("1.5 MB"));
        assert!(describe_image(&Image::default())[0].starts_with("<none>"));
    }
}
