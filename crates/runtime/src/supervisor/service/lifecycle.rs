//! The life of containers and commands: cloned, started, ended.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::{requests::kill, *};

impl Supervisor {
    /// Clones the first process of a container; the response follows when its program runs.
    pub(super) fn start_container(&mut self, spec: ContainerSpec, connection: u64) -> io::Result<()> {
        if self.containers.contains_key(&spec.id) {
            return Err(io::Error::other(format!("container {} was started already", spec.id)));
        }
        let log = spec.log_path.as_deref().map(LogFile::open).transpose()?;
        let cgroup = ContainerCgroup::at(&self.manager, &spec.cgroup.path);
        let mut pipes = ContainerPipes::new(&spec)?;
        let (ours, theirs) = message_pair()?;
        let is_mapped = spec.user_namespace.is_some();
        let child = match is_mapped {
            false => self.clone_into(&spec.pid_namespace, &cgroup, Namespaces::MOUNT)?,
            true => self.clone_intermediate(&spec.pid_namespace, &cgroup)?,
        };
        let Cloned::Parent(mut process) = child else {
            drop(ours);
            match self.user_namespace.as_ref().filter(|_| is_mapped) {
                Some(users) => become_intermediate(&spec, &cgroup, users.as_fd(), &pipes.child, &theirs),
                None => become_container(&spec, &pipes.child, &theirs, None),
            }
        };
        drop((theirs, std::mem::take(&mut pipes.child)));
        if is_mapped {
            process = receive_first_process(&ours)?;
        }
        if let Err(error) = self.release_child(&spec, &process, &cgroup, &ours) {
            kill(process.pid, SIGKILL);
            return Err(error);
        }
        let container = SupervisedContainer {
            process: ContainerProcess { container: spec.id.clone(), pid: process.pid, ..Default::default() },
            handle: process.handle,
            cgroup,
            log,
            outputs: pipes.outputs,
            stdin: pipes.stdin,
            terminal: None,
            clients: Vec::new(),
            starting: Some(PendingStart { socket: ours, connection, is_ready: false, terminal: None }),
            spec,
        };
        self.containers.insert(container.spec.id.clone(), container);
        Ok(())
    }

    /// Puts the child where it belongs and lets it go on.
    fn release_child(
        &self,
        spec: &ContainerSpec,
        process: &NewProcess,
        cgroup: &ContainerCgroup,
        socket: &OwnedFd,
    ) -> io::Result<()> {
        if !cgroup.is_unified() {
            cgroup.attach(process.pid).map_err(io::Error::other)?;
        }
        set_oom_score(process.pid, spec.process.oom_score_adj)?;
        let state = spec.hook_state.replace("\"pid\":0", &format!("\"pid\":{}", process.pid));
        let hooks = spec.hooks.prestart.iter().chain(&spec.hooks.create_runtime).cloned().collect::<Vec<_>>();
        crate::container::run_runtime_hooks(&hooks, &state).map_err(io::Error::other)?;
        send_with_descriptors(socket, GO, &[]).map(drop)
    }

    /// Clones into a PID namespace and a control group.
    fn clone_into(&self, namespace: &PidNamespace, cgroup: &ContainerCgroup, others: Namespaces) -> io::Result<Cloned> {
        let group = cgroup.open_unified().transpose()?;
        let target = match namespace {
            PidNamespace::Own => {
                return clone::clone_process(others.with(Namespaces::PID), group.as_ref().map(OwnedFd::as_fd));
            }
            PidNamespace::Host => None,
            PidNamespace::Pod => {
                let pause = self.pause.as_ref();
                Some(&pause.ok_or_else(|| io::Error::other("the pod has no shared PID namespace"))?.handle)
            }
            PidNamespace::Container(id) => {
                let target = self.containers.get(id).filter(|container| container.process.exit.is_none());
                Some(&target.ok_or_else(|| io::Error::other(format!("container {id} does not run")))?.handle)
            }
        };
        // Only children are affected, so that the supervisor can go back.
        if let Some(target) = target {
            clone::enter_namespaces(target, Namespaces::PID)?;
        }
        let cloned = clone::clone_process(others, group.as_ref().map(OwnedFd::as_fd));
        if target.is_some() && !matches!(cloned, Ok(Cloned::Child)) {
            clone::enter_namespaces(&self.pid_namespace, Namespaces::PID)?;
        }
        cloned
    }

    /// Clones the child that enters the pod's user namespace and makes a new PID namespace there.
    fn clone_intermediate(&self, namespace: &PidNamespace, cgroup: &ContainerCgroup) -> io::Result<Cloned> {
        if self.user_namespace.is_none() {
            return Err(io::Error::other("the pod has no user namespace"));
        }
        let target = if *namespace == PidNamespace::Own { &PidNamespace::Host } else { namespace };
        self.clone_into(target, cgroup, Namespaces::NONE)
    }

    /// Clones a command into a running container; false if there is none.
    pub(super) fn start_exec(
        &mut self,
        name: &str,
        arguments: Vec<String>,
        terminal: bool,
        files: StandardFiles,
        connection: u64,
    ) -> io::Result<bool> {
        let Some(container) = self.containers.get(name).filter(|container| container.is_running()) else {
            return Ok(false);
        };
        let mut process = container.spec.process.clone();
        process.arguments = arguments;
        process.terminal = terminal;
        process.terminal_size = None;
        let (ours, theirs) = message_pair()?;
        let target = PidNamespace::Container(name.to_owned());
        let namespace = match container.spec.pid_namespace {
            PidNamespace::Host => PidNamespace::Host,
            _ => target,
        };
        let Cloned::Parent(child) = self.clone_into(&namespace, &container.cgroup, Namespaces::NONE)? else {
            drop(ours);
            let users = container.spec.user_namespace.as_ref();
            become_exec(&process, (container.handle.as_fd(), users), &files, &theirs)
        };
        drop((theirs, files));
        if !container.cgroup.is_unified()
            && let Err(error) = container.cgroup.attach(child.pid)
        {
            kill(child.pid, SIGKILL);
            return Err(io::Error::other(error));
        }
        set_oom_score(child.pid, process.oom_score_adj)?;
        send_with_descriptors(&ours, GO, &[])?;
        let starting = Some(PendingStart { socket: ours, connection, is_ready: false, terminal: None });
        self.execs.insert(child.pid, SupervisedExec { container: name.to_owned(), connection, starting });
        Ok(true)
    }

    /// Hears from the child of a container that is on its way.
    pub(super) fn continue_container(&mut self, name: &str) {
        let Some(container) = self.containers.get_mut(name) else { return };
        let Some(mut starting) = container.starting.take() else { return };
        let connection = starting.connection;
        let mut descriptors = Vec::new();
        match receive_message(&starting.socket, &mut descriptors) {
            Ok(Some(ChildMessage::Ready { uid, gid, groups })) => {
                starting.is_ready = true;
                container.process.started_at = now();
                (container.process.uid, container.process.gid, container.process.groups) = (uid, gid, groups);
                if let Some(master) = descriptors.pop() {
                    container.take_terminal(master);
                }
                let waits = container.spec.waits_for_start;
                let process = container.process.clone();
                container.starting = Some(starting);
                if waits {
                    self.respond(connection, &SupervisorResponse::Started(process), &[]);
                }
            }
            Ok(None) if starting.is_ready => {
                container.process.started_at = now();
                let (process, waited) = (container.process.clone(), container.spec.waits_for_start);
                if !waited {
                    self.respond(connection, &SupervisorResponse::Started(process), &[]);
                }
            }
            failed => {
                let why = match failed {
                    Ok(Some(ChildMessage::Failed(message))) => message,
                    Ok(_) => "the process ended before its program ran".into(),
                    Err(error) => error.to_string(),
                };
                // Its end is nobody's business: it never was a container.
                self.containers.remove(name);
                self.respond(connection, &SupervisorResponse::Failed(why), &[]);
            }
        }
    }

    /// Hears from the child of a command that is on its way.
    pub(super) fn continue_exec(&mut self, pid: i32) {
        let Some(exec) = self.execs.get_mut(&pid) else { return };
        let Some(mut starting) = exec.starting.take() else { return };
        let connection = starting.connection;
        let mut descriptors = Vec::new();
        match receive_message(&starting.socket, &mut descriptors) {
            Ok(Some(ChildMessage::Ready { .. })) => {
                starting.is_ready = true;
                starting.terminal = descriptors.pop();
                exec.starting = Some(starting);
            }
            Ok(None) if starting.is_ready => {
                let process = ContainerProcess { container: exec.container.clone(), pid, ..Default::default() };
                let terminal: Vec<BorrowedFd<'_>> = starting.terminal.iter().map(OwnedFd::as_fd).collect();
                self.respond(connection, &SupervisorResponse::Started(process), &terminal);
            }
            failed => {
                let why = match failed {
                    Ok(Some(ChildMessage::Failed(message))) => message,
                    Ok(_) => "the process ended before its program ran".into(),
                    Err(error) => error.to_string(),
                };
                self.execs.remove(&pid);
                self.respond(connection, &SupervisorResponse::Failed(why), &[]);
            }
        }
    }

    /// Buries processes that have ended.
    pub(super) fn reap(&mut self) {
        let mut signal = [0; 128];
        while rustix::io::read(&self.signals, &mut signal).is_ok() {}
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
            let Some(code) = code else { continue };
            self.handle_exit(pid.as_raw_nonzero().get(), code);
        }
    }

    fn handle_exit(&mut self, pid: i32, code: i32) {
        if self.pause.as_ref().is_some_and(|pause| pause.pid == pid) {
            self.pause = None;
            return self.publish(&SupervisorEvent::PauseEnded);
        }
        // A program that ended at once may be buried before its socket was looked at.
        if self.execs.get(&pid).is_some_and(|exec| exec.starting.is_some()) {
            self.continue_exec(pid);
            if self.execs.get(&pid).is_some_and(|exec| exec.starting.is_some()) {
                self.continue_exec(pid);
            }
        }
        if let Some(exec) = self.execs.remove(&pid) {
            return self.respond(exec.connection, &SupervisorResponse::Exited { code }, &[]);
        }
        let found = self
            .containers
            .iter()
            .find(|(_, container)| container.process.pid == pid && container.process.exit.is_none());
        let Some(name) = found.map(|(name, _)| name.clone()) else { return };
        for _ in 0..2 {
            if self.containers.get(&name).is_some_and(|container| container.starting.is_some()) {
                self.continue_container(&name);
            }
        }
        self.end_container(&name, code);
    }

    /// Records the end of a container, after its last output.
    fn end_container(&mut self, name: &str, code: i32) {
        let Some(container) = self.containers.get_mut(name) else { return };
        if container.spec.pid_namespace != PidNamespace::Own {
            // Without a PID namespace of its own its other processes live on.
            for _ in 0..KILL_ROUNDS {
                if !container.cgroup.kill_all() {
                    break;
                }
                while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        container.drain();
        let exit = ExitRecord {
            exit_code: code,
            finished_at: now(),
            started_at: container.process.started_at,
            out_of_memory: container.cgroup.out_of_memory_kills() > 0,
        };
        if !container.spec.exit_file.as_os_str().is_empty() {
            // The record is in memory too; a full disk loses it only with the supervisor.
            let _ = exit.write(&container.spec.exit_file);
        }
        container.process.exit = Some(exit.clone());
        (container.log, container.stdin, container.terminal) = (None, None, None);
        let attached: Vec<u64> = container.clients.drain(..).map(|client| client.connection).collect();
        for connection in attached {
            self.respond(connection, &SupervisorResponse::Exited { code }, &[]);
        }
        self.publish(&SupervisorEvent::Exited { container: name.to_owned(), exit });
    }

    /// Kills every container and waits for it.
    pub(super) fn end_everything(&mut self) {
        let running: Vec<String> = self.containers.keys().cloned().collect();
        for name in running {
            let Some(container) = self.containers.get(&name).filter(|container| container.process.exit.is_none())
            else {
                continue;
            };
            let pid = container.process.pid;
            kill(pid, SIGKILL);
            container.cgroup.kill_all();
            if let Some(raw) = Pid::from_raw(pid)
                && let Ok(Some((_, status))) = rustix::process::waitpid(Some(raw), WaitOptions::empty())
            {
                let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
                self.end_container(&name, code.unwrap_or(137));
            }
        }
        if let Some(pause) = self.pause.take() {
            kill(pause.pid, SIGKILL);
            if let Some(pid) = Pid::from_raw(pause.pid) {
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            }
        }
    }

    pub(super) fn copy_output(&mut self, name: &str) {
        if let Some(container) = self.containers.get_mut(name) {
            container.copy_output();
        }
    }

    pub(super) fn serve_clients(&mut self, name: &str) {
        if let Some(container) = self.containers.get_mut(name) {
            container.serve_clients();
        }
    }
}

/// Lowers or raises the score; a host that does not allow to lower it keeps it.
fn set_oom_score(pid: i32, score: Option<i32>) -> io::Result<()> {
    let Some(score) = score else { return Ok(()) };
    match std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string()) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
