//! Connections of the node process and their requests.

use std::os::fd::{AsFd, OwnedFd};

use super::*;

impl Supervisor {
    pub(super) fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            let id = self.next_connection;
            self.next_connection += 1;
            if let Ok(connection) = Connection::new(id, socket) {
                self.connections.insert(id, connection);
            }
        }
    }

    pub(super) fn receive(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut received = connection.receive();
        loop {
            match received {
                Received::Nothing => return,
                Received::End => return self.close(id),
                Received::Request(request, descriptors) => self.handle(id, request, descriptors),
            }
            match self.connections.get_mut(&id) {
                Some(connection) => received = connection.next_request(),
                None => return,
            }
        }
    }

    /// Forgets a connection: its commands end, its clients are detached.
    fn close(&mut self, id: u64) {
        self.connections.remove(&id);
        for (pid, _) in self.execs.iter().filter(|(_, exec)| exec.connection == id) {
            kill(*pid, SIGKILL);
        }
        for container in self.containers.values_mut() {
            container.detach(|client| client.connection == id);
        }
    }

    pub(super) fn respond(&mut self, id: u64, response: &SupervisorResponse, descriptors: &[BorrowedFd<'_>]) {
        let sent = self.connections.get(&id).is_some_and(|connection| connection.send(response, descriptors));
        if !sent {
            self.close(id);
        }
    }

    pub(super) fn publish(&mut self, event: &SupervisorEvent) {
        let message = SupervisorResponse::Event(event.clone());
        let subscribed = self.connections.values().filter(|connection| connection.is_subscribed);
        let gone: Vec<u64> =
            subscribed.filter(|connection| !connection.send(&message, &[])).map(|connection| connection.id).collect();
        gone.into_iter().for_each(|id| self.close(id));
    }

    fn handle(&mut self, id: u64, request: SupervisorRequest, descriptors: Vec<OwnedFd>) {
        let response = match request {
            SupervisorRequest::Start(spec) => match self.start_container(*spec, id) {
                Ok(()) => return,
                Err(error) => SupervisorResponse::Failed(error.to_string()),
            },
            SupervisorRequest::Exec { container, arguments, terminal, files } => {
                let files = StandardDescriptors::take(files, descriptors).into_standard_files();
                match self.start_exec(&container, arguments, terminal, files, id) {
                    Ok(true) => return,
                    Ok(false) => SupervisorResponse::NotFound,
                    Err(error) => SupervisorResponse::Failed(error.to_string()),
                }
            }
            SupervisorRequest::List => {
                let all = self.containers.values().map(|container| container.process.clone());
                SupervisorResponse::Containers(all.collect())
            }
            SupervisorRequest::Subscribe => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_subscribed = true;
                }
                SupervisorResponse::Done
            }
            SupervisorRequest::Stop => {
                self.is_stopping = true;
                self.end_everything();
                SupervisorResponse::Done
            }
            SupervisorRequest::Attach { container, files } => {
                self.attach(&container, id, StandardDescriptors::take(files, descriptors))
            }
            SupervisorRequest::Release { container } => self.release(&container, id),
            SupervisorRequest::Signal { container, signal, all } => self.signal(&container, signal, all),
            SupervisorRequest::Resize { container, width, height } => {
                let resized = self.containers.get(&container).and_then(|container| container.terminal.as_ref());
                match resized.map(|terminal| descriptor_passing::resize_terminal(terminal.as_fd(), width, height)) {
                    Some(Ok(())) => SupervisorResponse::Done,
                    Some(Err(error)) => SupervisorResponse::Failed(error.to_string()),
                    None => SupervisorResponse::NotFound,
                }
            }
            SupervisorRequest::ReopenLog { container } => match self.containers.get_mut(&container) {
                None => SupervisorResponse::NotFound,
                Some(container) => match container.log.as_mut().map_or(Ok(()), LogFile::reopen) {
                    Ok(()) => SupervisorResponse::Done,
                    Err(error) => SupervisorResponse::Failed(error.to_string()),
                },
            },
            SupervisorRequest::Forget { container } => {
                if self.containers.get(&container).is_some_and(|container| container.process.exit.is_some()) {
                    self.containers.remove(&container);
                }
                SupervisorResponse::Done
            }
        };
        self.respond(id, &response, &[]);
    }

    fn signal(&mut self, container: &str, signal: i32, all: bool) -> SupervisorResponse {
        let Some(container) = self.containers.get(container) else { return SupervisorResponse::NotFound };
        if container.process.exit.is_some() {
            return SupervisorResponse::Done;
        }
        if all {
            container.cgroup.list_pids().into_iter().for_each(|pid| kill(pid, signal));
        }
        kill(container.process.pid, signal);
        SupervisorResponse::Done
    }

    fn attach(&mut self, container: &str, id: u64, files: StandardDescriptors) -> SupervisorResponse {
        let Some(container) = self.containers.get_mut(container).filter(|container| container.process.exit.is_none())
        else {
            return SupervisorResponse::NotFound;
        };
        let [stdin, stdout, stderr] = files.0;
        container.clients.push(AttachedClient::new(id, stdin, stdout, stderr));
        SupervisorResponse::Done
    }

    fn release(&mut self, name: &str, id: u64) -> SupervisorResponse {
        let Some(container) = self.containers.get_mut(name) else { return SupervisorResponse::NotFound };
        match &mut container.starting {
            Some(starting) if starting.is_ready => {
                starting.connection = id;
                match send_with_descriptors(&starting.socket, GO, &[]) {
                    Ok(_) => SupervisorResponse::Done,
                    Err(error) => SupervisorResponse::Failed(error.to_string()),
                }
            }
            _ => SupervisorResponse::Failed("the container does not wait for a start".into()),
        }
    }
}

/// Standard input, output and error that came with a request.
struct StandardDescriptors([Option<OwnedFd>; 3]);

impl StandardDescriptors {
    fn take(present: [bool; 3], descriptors: Vec<OwnedFd>) -> Self {
        let mut descriptors = descriptors.into_iter();
        Self(present.map(|present| if present { descriptors.next() } else { None }))
    }

    fn into_standard_files(self) -> StandardFiles {
        let [stdin, stdout, stderr] = self.0;
        StandardFiles { stdin, stdout, stderr }
    }
}

/// Sends a signal; a process that has ended needs none.
pub(super) fn kill(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), signal_of(signal)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[allow(unsafe_code)]
fn signal_of(number: i32) -> Option<Signal> {
    // SAFETY: the number is that of a signal; those of real time are not used by this program's C library in a process with
    // a single thread.
    (1..=64).contains(&number).then(|| unsafe { Signal::from_raw_unchecked(number) })
}
