//! The supervisor's event loop: requests, output of containers, ends of processes. It has one thread and never waits for
//! one of them alone.

use std::{
    collections::HashMap,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    process::{Pid, Signal, WaitOptions},
};
use sys::{
    cgroup::CgroupManager,
    clone::{self, Cloned, Namespaces, NewProcess},
    container_cgroup::ContainerCgroup,
    descriptor_passing::{self, message_pair, send_with_descriptors},
};

mod container_io;
mod lifecycle;
mod requests;

use container_io::ContainerPipes;

use super::{
    connection::{Connection, Received},
    exit_record::ExitRecord,
    log_file::LogFile,
    output::{AttachedClient, OutputStream, copy_input},
    protocol::{ContainerProcess, SandboxSpec, SupervisorEvent, SupervisorRequest, SupervisorResponse, encode_message},
    sandbox,
};
use crate::container::{
    ContainerSpec,
    first_process::{ChildMessage, GO, StandardFiles, become_container, become_exec, receive_message},
    spec::PidNamespace,
    user_namespace::{become_intermediate, receive_first_process},
};

/// Tries to kill all processes of a group before their container counts as ended anyway.
const KILL_ROUNDS: usize = 200;

/// A container.
struct SupervisedContainer {
    spec: ContainerSpec,
    handle: OwnedFd,
    process: ContainerProcess,
    cgroup: ContainerCgroup,
    log: Option<LogFile>,
    outputs: Vec<OutputStream>,
    stdin: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    clients: Vec<AttachedClient>,
    /// The child's socket until its program runs.
    starting: Option<PendingStart>,
}

/// A command in a container.
struct SupervisedExec {
    container: String,
    connection: u64,
    starting: Option<PendingStart>,
}

/// A child on its way to its program.
struct PendingStart {
    socket: OwnedFd,
    /// The connections that wait for it.
    connection: u64,
    is_ready: bool,
    terminal: Option<OwnedFd>,
}

struct Supervisor {
    listener: UnixListener,
    signals: OwnedFd,
    pid_namespace: OwnedFd,
    /// The pod's user namespace; none: that of the host.
    user_namespace: Option<OwnedFd>,
    manager: CgroupManager,
    pause: Option<NewProcess>,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
    containers: HashMap<String, SupervisedContainer>,
    execs: HashMap<i32, SupervisedExec>,
    is_stopping: bool,
}

/// Runs the supervisor of a pod; says on `channel` that it is ready.
pub fn run_supervisor(spec: &SandboxSpec, channel: OwnedFd) -> io::Result<()> {
    let mut supervisor = match Supervisor::new(spec) {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let failed = SupervisorResponse::Failed(error.to_string());
            send_with_descriptors(&channel, &encode_message(&failed), &[])?;
            return Err(error);
        }
    };
    let mut connection = Connection::new(0, UnixStream::from(channel))?;
    connection.is_subscribed = true;
    connection.send(&SupervisorResponse::Ready { pid: rustix::process::getpid().as_raw_nonzero().get() }, &[]);
    supervisor.connections.insert(0, connection);
    while !supervisor.is_stopping {
        supervisor.turn()?;
    }
    supervisor.end_everything();
    let _ = std::fs::remove_file(&spec.socket);
    Ok(())
}

/// The owner of a descriptor in the poll set.
#[derive(Clone)]
enum Source {
    Signals,
    Listener,
    Connection(u64),
    Output(String),
    Clients(String),
    StartingContainer(String),
    StartingExec(i32),
}

impl Supervisor {
    fn new(spec: &SandboxSpec) -> io::Result<Self> {
        rustix::process::setsid()?;
        rustix::thread::set_name(c"ferry-pod")?;
        clone::become_subreaper()?;
        let signals = clone::signal_descriptor(SIGCHLD)?;
        let pid_namespace = rustix::fs::open("/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let user_namespace = sandbox::enter_sandbox(spec)?;
        let users = user_namespace.as_ref().map(AsFd::as_fd);
        let pause = spec.pause_root.as_deref().map(|root| sandbox::start_pause(spec, root, users)).transpose()?;
        // A socket of a supervisor that was killed.
        let _ = std::fs::remove_file(&spec.socket);
        let listener = UnixListener::bind(&spec.socket)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            signals,
            pid_namespace,
            user_namespace,
            manager: CgroupManager::detect(Path::new("/sys/fs/cgroup")).map_err(io::Error::other)?,
            pause,
            connections: HashMap::new(),
            next_connection: 1,
            containers: HashMap::new(),
            execs: HashMap::new(),
            is_stopping: false,
        })
    }

    /// Waits for something and handles it.
    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        for source in ready {
            match source {
                Source::Signals => self.reap(),
                Source::Listener => self.accept(),
                Source::Connection(id) => self.receive(id),
                Source::Output(container) => self.copy_output(&container),
                Source::Clients(container) => self.serve_clients(&container),
                Source::StartingContainer(container) => self.continue_container(&container),
                Source::StartingExec(pid) => self.continue_exec(pid),
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut list = (Vec::new(), Vec::new());
        add_source(&mut list, Source::Signals, self.signals.as_fd(), PollFlags::IN);
        add_source(&mut list, Source::Listener, self.listener.as_fd(), PollFlags::IN);
        for (id, connection) in &self.connections {
            add_source(&mut list, Source::Connection(*id), connection.socket.as_fd(), PollFlags::IN);
        }
        for (id, container) in &self.containers {
            for output in &container.outputs {
                add_source(&mut list, Source::Output(id.clone()), output.source.as_fd(), PollFlags::IN);
            }
            for client in &container.clients {
                if let Some(stdin) = &client.stdin {
                    add_source(&mut list, Source::Clients(id.clone()), stdin.as_fd(), PollFlags::IN);
                }
                for output in client.waiting_outputs() {
                    add_source(&mut list, Source::Clients(id.clone()), output.as_fd(), PollFlags::OUT);
                }
            }
            if let Some(starting) = &container.starting {
                add_source(&mut list, Source::StartingContainer(id.clone()), starting.socket.as_fd(), PollFlags::IN);
            }
        }
        for (pid, exec) in &self.execs {
            if let Some(starting) = &exec.starting {
                add_source(&mut list, Source::StartingExec(*pid), starting.socket.as_fd(), PollFlags::IN);
            }
        }
        let (sources, mut fds) = list;
        loop {
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => break,
            }
        }
        let ready = fds.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, source)| source).collect())
    }
}

fn add_source<'a>(list: &mut (Vec<Source>, Vec<PollFd<'a>>), source: Source, fd: BorrowedFd<'a>, flags: PollFlags) {
    list.0.push(source);
    list.1.push(PollFd::from_borrowed_fd(fd, flags));
}

const SIGCHLD: i32 = libc::SIGCHLD;
const SIGKILL: i32 = libc::SIGKILL;
