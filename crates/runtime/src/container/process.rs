//! The last steps of a process before its program: files, limits, user, capabilities, filter, and `execve`.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Gid, Mode, OFlags, Uid},
    io::Errno,
};
use sys::{
    beneath::ContainerRoot,
    clone,
    credentials::{self, Capabilities, FilterInstruction},
    descriptor_passing::{self, Terminal},
};

use super::{
    ContainerError, Operation,
    spec::{ProcessSpec, UserNamespaceSpec},
    users::ResolvedUser,
};

/// Directories of programs if the environment names none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Standard input, output and error of a process; a missing one is `/dev/null`.
#[derive(Debug, Default)]
pub struct StandardFiles {
    /// Input.
    pub stdin: Option<OwnedFd>,
    /// Output.
    pub stdout: Option<OwnedFd>,
    /// Error.
    pub stderr: Option<OwnedFd>,
}

/// Becomes root in the user namespace that was just entered.
pub fn become_root() -> Result<(), ContainerError> {
    credentials::set_user(0, 0, &[]).during(|| "become root of the user namespace".into())
}

/// Gives standard files to the root of the user namespace, which in turn gives them to the user of the process.
pub fn give_files(users: Option<&UserNamespaceSpec>, files: &StandardFiles) {
    let Some((uid, gid)) = users.and_then(|users| users.host_owner(0, 0)) else { return };
    for file in [&files.stdin, &files.stdout, &files.stderr].into_iter().flatten() {
        // A file whose owner cannot be changed can still be written.
        let _ = rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    }
}

/// Makes standard input, output and error those of `files`.
pub fn set_standard_files(files: &StandardFiles) -> Result<(), ContainerError> {
    let what = || "set standard input and output".to_owned();
    let is_complete = files.stdin.is_some() && files.stdout.is_some() && files.stderr.is_some();
    let null = match is_complete {
        true => Err(Errno::NOENT),
        false => rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()),
    };
    let pick = |file: &Option<OwnedFd>| -> io::Result<OwnedFd> {
        match file {
            Some(file) => Ok(file.try_clone()?),
            None => match &null {
                Ok(null) => Ok(null.try_clone()?),
                Err(errno) => Err((*errno).into()),
            },
        }
    };
    rustix::stdio::dup2_stdin(pick(&files.stdin).during(what)?).during(what)?;
    rustix::stdio::dup2_stdout(pick(&files.stdout).during(what)?).during(what)?;
    rustix::stdio::dup2_stderr(pick(&files.stderr).during(what)?).during(what)
}

/// Opens a terminal of the container and makes it that of the calling process, which leads a session.
pub fn set_terminal(process: &ProcessSpec) -> Result<Terminal, ContainerError> {
    let what = || "open a terminal".to_owned();
    let terminal = descriptor_passing::open_terminal(Path::new("/dev/pts/ptmx")).during(what)?;
    if let Some((width, height)) = process.terminal_size {
        descriptor_passing::resize_terminal(terminal.slave.as_fd(), width, height).during(what)?;
    }
    descriptor_passing::take_terminal(terminal.slave.as_fd()).during(what)?;
    rustix::stdio::dup2_stdin(&terminal.slave).during(what)?;
    rustix::stdio::dup2_stdout(&terminal.slave).during(what)?;
    rustix::stdio::dup2_stderr(&terminal.slave).during(what)?;
    Ok(terminal)
}

/// Becomes the program; returns only if that fails.
pub fn become_program(process: &ProcessSpec, user: &ResolvedUser) -> ContainerError {
    match prepare_program(process, user) {
        Ok((program, arguments, environment)) => {
            let arguments: Vec<_> = arguments.iter().map(CString::as_c_str).collect();
            let environment: Vec<_> = environment.iter().map(CString::as_c_str).collect();
            let error = clone::execute(&program, &arguments, &environment);
            exec_error(&process.arguments[0], &error)
        }
        Err(error) => error,
    }
}

type Program = (CString, Vec<CString>, Vec<CString>);

fn prepare_program(process: &ProcessSpec, user: &ResolvedUser) -> Result<Program, ContainerError> {
    set_limits(process)?;
    set_labels(process)?;
    let [bounding, effective, inheritable, permitted, ambient] = process.capabilities;
    // Done with all privileges: a directory of another user can be entered by root, as runc has it.
    enter_directory(&process.directory)?;
    credentials::limit_capabilities(bounding).during(|| "limit capabilities".into())?;
    if !process.no_new_privileges {
        install_filter(process)?;
    }
    credentials::set_user(user.uid, user.gid, &user.groups).during(|| format!("become user {}", user.uid))?;
    if let Some(umask) = process.umask {
        rustix::process::umask(Mode::from_raw_mode(umask));
    }
    let sets = Capabilities { bounding, effective, inheritable, permitted, ambient };
    credentials::set_capabilities(&sets).during(|| "set capabilities".into())?;
    let environment = environment(process, user);
    let program = find_program(&process.arguments, &environment)?;
    let texts = |texts: &[String]| -> Result<Vec<CString>, ContainerError> {
        texts.iter().map(|text| c_string(text)).collect()
    };
    let (arguments, environment) = (texts(&process.arguments)?, texts(&environment)?);
    clone::reset_signals();
    clone::close_on_exec_from(3).during(|| "close descriptors".into())?;
    if process.no_new_privileges {
        rustix::thread::set_no_new_privs(true).during(|| "set no_new_privs".into())?;
        install_filter(process)?;
    }
    Ok((program, arguments, environment))
}

fn c_string(text: &str) -> Result<CString, ContainerError> {
    CString::new(text).map_err(|_| ContainerError::Invalid(format!("{text:?} contains a zero byte")))
}

fn install_filter(process: &ProcessSpec) -> Result<(), ContainerError> {
    let Some(program) = &process.seccomp else { return Ok(()) };
    let instructions = program.instructions.iter();
    let instructions: Vec<FilterInstruction> = instructions
        .map(|&(code, jump_true, jump_false, operand)| FilterInstruction { code, jump_true, jump_false, operand })
        .collect();
    credentials::install_filter(&instructions, program.flags).during(|| "install the seccomp filter".into())
}

/// Sets resource limits. A host that does not allow to raise them keeps its own.
fn set_limits(process: &ProcessSpec) -> Result<(), ContainerError> {
    use rustix::process::{Resource, Rlimit};
    const RESOURCES: [Resource; 16] = [
        Resource::Cpu,
        Resource::Fsize,
        Resource::Data,
        Resource::Stack,
        Resource::Core,
        Resource::Rss,
        Resource::Nproc,
        Resource::Nofile,
        Resource::Memlock,
        Resource::As,
        Resource::Locks,
        Resource::Sigpending,
        Resource::Msgqueue,
        Resource::Nice,
        Resource::Rtprio,
        Resource::Rttime,
    ];
    for (number, soft, hard) in &process.limits {
        let Some(resource) = RESOURCES.get(*number as usize) else { continue };
        let value = |value: u64| (value != u64::MAX).then_some(value);
        let wanted = Rlimit { current: value(*soft), maximum: value(*hard) };
        match rustix::process::setrlimit(*resource, wanted) {
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno).during(|| format!("set the resource limit {number}")),
        }
    }
    Ok(())
}

/// Sets labels of security modules for the program; refused where the kernel has none.
fn set_labels(process: &ProcessSpec) -> Result<(), ContainerError> {
    if let Some(profile) = &process.apparmor {
        let modern = "/proc/self/attr/apparmor/exec";
        let path = if Path::new(modern).exists() { modern } else { "/proc/self/attr/exec" };
        std::fs::write(path, format!("exec {profile}")).during(|| format!("apply AppArmor profile {profile:?}"))?;
    }
    if let Some(label) = &process.selinux {
        std::fs::write("/proc/self/attr/exec", label).during(|| format!("apply SELinux label {label:?}"))?;
    }
    Ok(())
}

/// Enters the working directory, which is made if it is missing and must be below the container's root.
fn enter_directory(directory: &Path) -> Result<(), ContainerError> {
    let what = || format!("enter the working directory {:?}", directory.display().to_string());
    let directory = if directory.as_os_str().is_empty() { Path::new("/") } else { directory };
    if !directory.is_absolute() {
        return Err(ContainerError::Invalid(format!(
            "Cwd must be an absolute path, not {:?}",
            directory.display().to_string()
        )));
    }
    let root = ContainerRoot::open(Path::new("/")).during(what)?;
    let opened = root.create_path(directory, sys::beneath::PathKind::Directory).during(what)?;
    rustix::process::fchdir(&opened).during(what)?;
    // A directory outside of the root has no path here.
    match rustix::process::getcwd(Vec::new()) {
        Ok(path) if path.as_bytes().starts_with(b"/") => Ok(()),
        _ => Err(ContainerError::Invalid(
            "current working directory is outside of container mount namespace root".into(),
        )),
    }
}

fn environment(process: &ProcessSpec, user: &ResolvedUser) -> Vec<String> {
    let mut variables = process.environment.clone();
    if !variables.iter().any(|variable| variable.starts_with("HOME=") && variable.len() > 5) {
        let home = user.home.as_deref().unwrap_or("/");
        variables.push(format!("HOME={home}"));
    }
    variables
}

fn find_program(arguments: &[String], environment: &[String]) -> Result<CString, ContainerError> {
    let Some(name) = arguments.first().filter(|name| !name.is_empty()) else {
        return Err(ContainerError::Invalid("no command specified".into()));
    };
    if name.contains('/') {
        return match check_executable(name) {
            Ok(()) => c_string(name),
            Err(error) => Err(exec_error(name, &error)),
        };
    }
    let path = environment.iter().rev().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    let mut denied = false;
    for directory in path.split(':') {
        let candidate = if directory.is_empty() { format!("./{name}") } else { format!("{directory}/{name}") };
        match check_executable(&candidate) {
            Ok(()) => return c_string(&candidate),
            Err(error) => denied |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
    let why = if denied { "permission denied" } else { "executable file not found in $PATH" };
    Err(ContainerError::Invalid(format!("exec: {name:?}: {why}")))
}

fn check_executable(path: &str) -> io::Result<()> {
    let stat = rustix::fs::stat(path)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory {
        return Err(io::Error::from_raw_os_error(Errno::ISDIR.raw_os_error()));
    }
    Ok(rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::EXEC_OK, rustix::fs::AtFlags::EACCESS)?)
}

/// The error of an `execve`, in Go's words, which people search for.
fn exec_error(name: &str, error: &io::Error) -> ContainerError {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => format!("stat {name}: no such file or directory"),
        Some(Errno::ACCESS | Errno::PERM) => "permission denied".into(),
        Some(Errno::ISDIR) => "is a directory".into(),
        Some(Errno::NOEXEC) => "exec format error".into(),
        _ => error.to_string(),
    };
    ContainerError::Invalid(format!("exec: {name:?}: {why}"))
}
