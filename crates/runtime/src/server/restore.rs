//! State after a restart: sandboxes whose supervisors live go on, everything else is ended and cleaned up.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use super::{
    RuntimeServer,
    records::{ContainerEntry, Sandbox},
};
use crate::{
    cri::types::ContainerState,
    supervisor::{ContainerProcess, ExitRecord, MessageStream, SupervisorRequest, SupervisorResponse},
};

impl RuntimeServer {
    /// Reads what is on disk and finds what runs.
    pub(super) async fn restore(self: &Arc<Self>) {
        for directory in subdirectories(&self.options.root.join("sandboxes")) {
            let id = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match Sandbox::load(&directory, &self.socket_of(&id)) {
                Ok(Some(sandbox)) => {
                    self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(sandbox));
                }
                failed => self.discard(&directory, failed.err()),
            }
        }
        for directory in subdirectories(&self.options.root.join("containers")) {
            match ContainerEntry::load(&directory) {
                Ok(Some(container)) if self.sandbox(&container.sandbox).is_ok() => {
                    let id = container.id.clone();
                    self.containers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(container));
                }
                failed => self.discard(&directory, failed.err()),
            }
        }
        for sandbox in self.list_sandboxes() {
            self.restore_sandbox(&sandbox).await;
        }
        self.remove_stray_sockets();
    }

    /// Removes a directory that belongs to nothing.
    fn discard(&self, directory: &Path, error: Option<std::io::Error>) {
        let why = error.map(|error| error.to_string());
        tracing::warn!(directory = %directory.display(), why, "container runtime: incomplete state, removed");
        // Another attempt follows at the next start.
        let _ = sys::mount::unmount(&directory.join("shm"));
        let _ = sys::beneath::remove_tree(directory);
    }

    async fn restore_sandbox(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        let adopted = match sandbox.state().ready {
            true => self.adopt(sandbox).await,
            false => None,
        };
        if let Some(messages) = adopted {
            self.watch_supervisor(sandbox.clone(), messages);
            return;
        }
        let was_ready = sandbox.state().ready;
        // A supervisor of a sandbox that was never ready may live all the same.
        let _ = sandbox.supervisor.call(&SupervisorRequest::Stop).await;
        self.kill_leftovers(sandbox).await;
        for container in self.containers_of(&sandbox.id) {
            if container.life().is(ContainerState::ContainerRunning) || container.exit_file().exists() {
                self.record_lost_exit(&container);
            }
        }
        if was_ready && sandbox.update(|state| state.ready = false).is_err() {
            tracing::warn!(sandbox = sandbox.id, "container runtime: state of the sandbox not written");
        }
    }

    /// Subscribes to a supervisor that lives, and takes over what it says about its containers.
    async fn adopt(&self, sandbox: &Arc<Sandbox>) -> Option<MessageStream> {
        // The subscription comes first: what ends after the list was made is an event.
        let messages = sandbox.supervisor.subscribe().await.ok()?;
        let Ok(SupervisorResponse::Containers(processes)) = sandbox.supervisor.call(&SupervisorRequest::List).await
        else {
            return None;
        };
        for container in self.containers_of(&sandbox.id) {
            let process = processes.iter().find(|process| process.container == container.id);
            self.adopt_container(sandbox, &container, process);
        }
        Some(messages)
    }

    fn adopt_container(
        &self,
        sandbox: &Arc<Sandbox>,
        container: &Arc<ContainerEntry>,
        process: Option<&ContainerProcess>,
    ) {
        let life = container.life();
        let Some(process) = process else {
            if life.is(ContainerState::ContainerRunning) {
                self.record_lost_exit(container);
            }
            return;
        };
        let running = container.update(|life| {
            if life.is(ContainerState::ContainerCreated) {
                life.state = ContainerState::ContainerRunning as i32;
            }
            (life.started_at, life.pid) = (process.started_at, process.pid);
            life.user = Some((process.uid, process.gid, process.groups.clone()));
        });
        if let Err(error) = running {
            tracing::warn!(container = container.id, %error, "container runtime: state not written");
        }
        if let Some(exit) = process.exit.as_ref().filter(|_| !life.is(ContainerState::ContainerExited)) {
            let exit: &ExitRecord = exit;
            self.record_exit(sandbox, container, exit);
        }
    }

    /// Removes sockets of supervisors whose sandbox is gone; one that still listens is ended.
    fn remove_stray_sockets(&self) {
        let known: HashSet<PathBuf> = self.list_sandboxes().iter().map(|one| self.socket_of(&one.id)).collect();
        for entry in fs::read_dir(self.options.root.join("run")).into_iter().flatten().flatten() {
            let path = entry.path();
            if !known.contains(&path) {
                let client = crate::supervisor::SupervisorClient::new(&path);
                tokio::spawn(async move {
                    // One that does not answer has ended.
                    let _ = client.call(&SupervisorRequest::Stop).await;
                    let _ = fs::remove_file(&path);
                });
            }
        }
    }
}

fn subdirectories(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
