//! `ferry image`: images of the cluster's container runtime. Lists, pulls and removes over CRI; loads, saves and tags where
//! the runtime is the one in this program.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use runtime::{
    cri::{CriClient, types::Image},
    image_client::{ImageClient, ImageClientError},
};

use crate::{
    arguments::DATA_DIR, instance::ClusterInstance, runtime_check, screen::StepScreen, state::InstanceState,
    user_error::user_error,
};

/// List, pull, load, save, tag or remove images of the cluster's container runtime
#[derive(Clone, Debug, Args)]
pub struct ImageArguments {
    #[command(subcommand)]
    command: ImageCommand,

    /// The cluster's data directory
    #[arg(long, global = true, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
}

const LOAD_EXAMPLES: &str = "\
Examples:
  docker save my-app:dev | sudo ferry image load
  sudo ferry image load --input my-app.tar.gz --name my-app:dev
  kubectl create deployment my-app --image=my-app:dev";

#[derive(Clone, Debug, Subcommand)]
enum ImageCommand {
    /// List images
    #[command(visible_alias = "list")]
    Ls,
    /// Load images from an archive of `docker save` or from an archived OCI layout, compressed or not
    #[command(after_help = LOAD_EXAMPLES)]
    Load {
        /// The archive; default: standard input
        #[arg(short, long, value_name = "FILE")]
        input: Option<PathBuf>,

        /// The name of an image that the archive gives none
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Save images to an archive that `docker load`, containerd and `ferry image load` read
    Save {
        /// Names or ids
        #[arg(required = true)]
        images: Vec<String>,

        /// The archive; default: standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Give an image one more name
    Tag {
        /// A name or an id
        image: String,

        /// The new name; an image that has it now loses it
        name: String,
    },
    /// Pull an image, with the registry settings of the cluster
    Pull {
        /// Such as nginx:1.27 or registry.example/team/app:v1
        image: String,
    },
    /// Remove an image with all its names
    #[command(visible_alias = "remove")]
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
        match arguments.command {
            ImageCommand::Load { .. } | ImageCommand::Save { .. } | ImageCommand::Tag { .. } => {
                if !state.ferry_runtime {
                    return Err(user_error(
                        "the cluster's container runtime has no load, save and tag over CRI",
                        "With containerd: `ctr --address SOCKET --namespace k8s.io images import|export|tag`.",
                    ));
                }
                // The socket tells better than a refused connection whether the cluster runs.
                runtime_check::connect_cri(&endpoint).await.context("the cluster's container runtime")?;
                let socket = endpoint.strip_prefix("unix://").unwrap_or(&endpoint);
                run_on_archives(&ImageClient::new(Path::new(socket)), arguments.command).await
            }
            command => run_on(&runtime_check::connect_cri(&endpoint).await?, command).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn run_on_archives(client: &ImageClient, command: ImageCommand) -> anyhow::Result<()> {
    let screen = StepScreen::new();
    match command {
        ImageCommand::Load { input, name } => {
            let loaded = client.load(open_input(input.as_deref())?, name.as_deref()).await.map_err(refusal)?;
            for image in loaded {
                let names = if image.tags.is_empty() { "<none>".to_owned() } else { image.tags.join(", ") };
                screen.line(&format!("{names} {}", image.id));
            }
        }
        ImageCommand::Save { images, output } => {
            let to = open_output(output.as_deref())?;
            let saved = client.save(&images, to).await;
            if let (Err(_), Some(path)) = (&saved, &output) {
                // Half an archive is of no use.
                let _ = std::fs::remove_file(path);
            }
            saved.map_err(refusal)?;
        }
        ImageCommand::Tag { image, name } => client.tag(&image, &name).await.map_err(refusal)?,
        ImageCommand::Ls | ImageCommand::Pull { .. } | ImageCommand::Rm { .. } => {}
    }
    Ok(())
}

fn refusal(error: ImageClientError) -> anyhow::Error {
    match error {
        ImageClientError::Refused(why) => user_error(why, "`ferry image ls` lists the images of the cluster."),
        other => other.into(),
    }
}

fn open_input(path: Option<&Path>) -> anyhow::Result<Box<dyn Read + Send>> {
    match path {
        Some(path) => Ok(Box::new(File::open(path).with_context(|| path.display().to_string())?)),
        None if io::stdin().is_terminal() => {
            Err(user_error("standard input is a terminal", "Name the archive with --input FILE."))
        }
        None => Ok(Box::new(io::stdin())),
    }
}

fn open_output(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    match path {
        Some(path) => Ok(Box::new(File::create(path).with_context(|| path.display().to_string())?)),
        None if io::stdout().is_terminal() => {
            Err(user_error("standard output is a terminal", "Name the archive with --output FILE."))
        }
        None => Ok(Box::new(io::stdout().lock())),
    }
}

async fn run_on(cri: &CriClient, command: ImageCommand) -> anyhow::Result<()> {
    let screen = StepScreen::new();
    match command {
        ImageCommand::Load { .. } | ImageCommand::Save { .. } | ImageCommand::Tag { .. } => {}
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
