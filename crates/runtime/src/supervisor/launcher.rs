//! The launcher: a copy of this program with a single thread that forks supervisors.
//!
//! A fork shares memory with the launcher and needs no `execve` of a large program. The launcher runs from a read-only mount
//! of the program's file, so that no process that enters a container can be used to overwrite that file. It ends with the
//! node process; supervisors do not.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Mutex,
};

use sys::{
    clone::{self, Cloned, Namespaces},
    descriptor_passing::{receive_with_descriptors, send_with_descriptors, stream_pair},
    detached_mount::{DetachedMount, MountAttributes},
};

use super::{
    protocol::{LONGEST_MESSAGE, SandboxSpec, encode_message},
    service::run_supervisor,
};

/// The name under which this program is the launcher.
pub const LAUNCHER_NAME: &str = "ferry-launcher";

/// The launcher as the node process sees it.
pub struct Launcher {
    state: Mutex<Option<(Child, UnixStream)>>,
}

impl Launcher {
    /// Starts a launcher.
    pub fn start() -> io::Result<Self> {
        Ok(Self { state: Mutex::new(Some(spawn_launcher()?)) })
    }

    /// Starts a supervisor; returns the connection on which it says that it is ready. Blocks shortly.
    pub fn start_supervisor(&self, spec: &SandboxSpec) -> io::Result<OwnedFd> {
        let (ours, theirs) = stream_pair()?;
        let message = encode_message(spec);
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, socket)) = state.as_ref()
            && send_all(socket, &message, theirs.as_fd()).is_ok()
        {
            return Ok(ours);
        }
        // It was killed: a new one takes its place.
        if let Some((mut child, _)) = state.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let (child, socket) = spawn_launcher()?;
        send_all(&socket, &message, theirs.as_fd())?;
        *state = Some((child, socket));
        Ok(ours)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((mut child, socket)) = state.take() {
            // The launcher ends when its socket does.
            drop(socket);
            let _ = child.wait();
        }
    }
}

fn send_all(socket: &UnixStream, message: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut rest = &message[send_with_descriptors(socket, message, &[descriptor])?..];
    while !rest.is_empty() {
        rest = &rest[send_with_descriptors(socket, rest, &[])?..];
    }
    Ok(())
}

fn spawn_launcher() -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let program = read_only_program();
    let path = match &program {
        Some(mount) => format!("/proc/self/fd/{}", mount.root().as_raw_fd()),
        None => "/proc/self/exe".to_owned(),
    };
    let mut command = Command::new(path);
    command.arg0(LAUNCHER_NAME).env_clear().current_dir("/");
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::inherit());
    Ok((command.spawn()?, ours))
}

/// Mounts this program's file read-only; none where its file is not in this mount namespace.
fn read_only_program() -> Option<DetachedMount> {
    let mount = DetachedMount::clone_path(Path::new("/proc/self/exe"), false).ok()?;
    let attributes = MountAttributes { set: MountAttributes::READ_ONLY, ..Default::default() };
    mount.set_attributes(attributes, false).ok()?;
    Some(mount)
}

/// Runs the launcher until the node process ends.
pub fn run_launcher() -> ExitCode {
    // Ended supervisors need no burial by the launcher.
    ignore_children();
    let socket = rustix::stdio::stdin();
    loop {
        match receive_spec(socket) {
            Ok(Some((spec, channel))) => match clone::clone_process(Namespaces::NONE, None) {
                Ok(Cloned::Child) => return start_supervisor(spec, channel),
                Ok(Cloned::Parent(_)) => {}
                Err(error) => {
                    let failed = super::protocol::SupervisorResponse::Failed(format!("fork: {error}"));
                    let _ = send_with_descriptors(&channel, &encode_message(&failed), &[]);
                }
            },
            Ok(None) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

#[allow(unsafe_code)]
fn ignore_children() {
    // SAFETY: to ignore a signal runs no code of this program.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

fn start_supervisor(spec: SandboxSpec, channel: OwnedFd) -> ExitCode {
    clone::reset_signals();
    // Nothing of the launcher's is needed: its socket would keep it from seeing the node process end.
    if let Ok(null) = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    match run_supervisor(&spec, channel) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn receive_spec(socket: BorrowedFd<'_>) -> io::Result<Option<(SandboxSpec, OwnedFd)>> {
    let mut descriptors = Vec::new();
    let mut head = [0; 4];
    let received = receive_with_descriptors(socket, &mut head, &mut descriptors)?;
    if received == 0 {
        return Ok(None);
    }
    let mut stream = UnixStream::from(socket.try_clone_to_owned()?);
    stream.read_exact(&mut head[received..])?;
    let length = u32::from_le_bytes(head) as usize;
    if length > LONGEST_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    let channel = descriptors.pop().ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((serde_json::from_slice(&text)?, channel)))
}
