//! `ferry store …`: snapshots of a cluster's objects, restoring them, checking them, and moving them to and from etcd.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use store::{CopyProgress, EmbeddedStore, EtcdStore, StoreContents};

use crate::{
    arguments::DATA_DIR, instance::ClusterInstance, pidfile, screen::StepScreen, storage::EtcdArguments,
    user_error::user_error,
};

/// Back up, restore, check or move the cluster's objects
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StoreCommands {
    #[command(subcommand)]
    command: StoreCommand,

    /// The cluster's data directory
    #[arg(long, global = true, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  sudo ferry store snapshot backup.ferry
      All objects as of this moment, while the cluster runs.

  sudo ferry down && sudo mv /var/lib/ferry/store /var/lib/ferry/store.old
  sudo ferry store restore backup.ferry && sudo ferry up
      Back to the snapshot.

  sudo ferry store migrate --to-etcd https://10.0.0.1:2379 --etcd-cafile ca.crt
      Copy a stopped cluster's objects into an empty etcd.";

#[derive(Clone, Debug, Subcommand)]
enum StoreCommand {
    /// Write all objects as of now into a file; the cluster may run meanwhile
    Snapshot { file: PathBuf },
    /// Make a store from a snapshot, in a data directory that has none
    ///
    /// Objects keep their resource versions; new ones begin a million later, so that none is ever used twice.
    Restore { file: PathBuf },
    /// Read and check every byte of the store; nothing is changed
    Verify,
    /// Copy all objects between the embedded store and etcd; the target must be empty
    Migrate(MigrateArguments),
}

#[derive(Clone, Debug, Args)]
#[group(id = "direction", required = true, multiple = false)]
struct MigrationDirection {
    /// Into this etcd
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    to_etcd: Option<Vec<String>>,

    /// From this etcd
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    from_etcd: Option<Vec<String>>,
}

#[derive(Clone, Debug, Args)]
struct MigrateArguments {
    #[command(flatten)]
    direction: MigrationDirection,

    #[command(flatten)]
    etcd: EtcdArguments,
}

/// Does what a `ferry store` command says.
pub fn run_store_command(arguments: StoreCommands) -> anyhow::Result<ExitCode> {
    let instance = ClusterInstance::at(&arguments.data_dir).context("--data-dir")?;
    let dir = instance.store();
    let screen = StepScreen::new();
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (step, detail) = match arguments.command {
        StoreCommand::Snapshot { file } => ("snapshot", save_snapshot(&dir, &file)?),
        StoreCommand::Restore { file } => ("restore", restore_snapshot(&dir, &file)?),
        StoreCommand::Verify => ("verify", runtime.block_on(verify_store(&dir))?),
        StoreCommand::Migrate(migration) => ("migrate", runtime.block_on(migrate_store(&instance, migration, screen))?),
    };
    screen.done(step, &detail, start.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn save_snapshot(dir: &Path, file: &Path) -> anyhow::Result<String> {
    let contents = StoreContents::read_dir(dir)?;
    let count = contents.write_snapshot(file)?;
    Ok(format!("{count} objects as of revision {} in {}", contents.revision(), file.display()))
}

fn restore_snapshot(dir: &Path, file: &Path) -> anyhow::Result<String> {
    let contents = StoreContents::read_snapshot(file)?;
    let revision = contents.revision();
    let count = contents.create_dir(dir)?;
    Ok(format!("{count} objects as of revision {revision} in {}", dir.display()))
}

async fn verify_store(dir: &Path) -> anyhow::Result<String> {
    let verified = EmbeddedStore::verify_files(dir).await?;
    let torn = if verified.torn { "; ends with a write that was never acknowledged" } else { "" };
    Ok(format!(
        "{} objects, revisions {} to {}, {} bytes{torn}",
        verified.records, verified.compacted, verified.revision, verified.bytes
    ))
}

async fn migrate_store(
    instance: &ClusterInstance,
    migration: MigrateArguments,
    screen: StepScreen,
) -> anyhow::Result<String> {
    if pidfile::running_pid(instance).is_some() {
        return Err(user_error(
            format!("the cluster in {} runs, and its objects change", instance.data().display()),
            "Stop it with `ferry down` first.",
        ));
    }
    let mut progress = |(done, total): CopyProgress| {
        if done % 1000 == 0 {
            screen.began(&format!("{done} of {total} objects"));
        }
    };
    let MigrationDirection { to_etcd, from_etcd } = migration.direction.clone();
    let into_etcd = to_etcd.is_some();
    let servers = to_etcd.or(from_etcd).unwrap_or_default();
    let place = servers.join(",");
    let etcd = EtcdStore::open(migration.etcd.options(servers)).await?;
    if into_etcd {
        let contents = StoreContents::read_dir(&instance.store())?;
        let count = contents.copy_to(&etcd, &mut progress).await?;
        let copied = StoreContents::read_store(&etcd, &mut progress).await?;
        anyhow::ensure!(copied.digest() == contents.digest(), "what is in {place} now is not what was copied");
        return Ok(format!("{count} objects to {place}, compared"));
    }
    let contents = StoreContents::read_store(&etcd, &mut progress).await?;
    let digest = contents.digest();
    let count = contents.create_dir(&instance.store())?;
    anyhow::ensure!(
        StoreContents::read_dir(&instance.store())?.digest() == digest,
        "what was copied is not what is in {place}"
    );
    Ok(format!("{count} objects from {place}, compared"))
}
