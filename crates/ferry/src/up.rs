//! `ferry up`: checks first, then runs the cluster in this process or in one in the background, and says what to do next.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use rustix::process::{Resource, Rlimit};
use sys::process::spawn_detached;
use tokio::runtime::Runtime;

use crate::{
    arguments::{JoinArguments, UpArguments},
    caller::CallingUser,
    containerd::install,
    log,
    options::UpOptions,
    preflight, run,
    screen::StepScreen,
    steps::{StepReport, StepReporter},
};

/// Log lines printed after a failed start.
const TAIL: usize = 10;
/// Time that abandoned tasks may delay the end of the process.
const LAST_TASKS: Duration = Duration::from_millis(200);

/// The arguments of a start.
pub enum StartArguments {
    /// `ferry up`.
    Up(UpArguments),
    /// `ferry join`.
    Join(JoinArguments),
}

impl StartArguments {
    fn resolve(&self, caller: &CallingUser) -> anyhow::Result<UpOptions> {
        match self {
            Self::Up(arguments) => UpOptions::resolve(arguments, caller),
            Self::Join(arguments) => UpOptions::resolve_join(arguments, caller),
        }
    }

    /// Whether this is the background process, whether it stays in the foreground, and the log level.
    fn process_flags(&self) -> (bool, bool, u8) {
        match self {
            Self::Up(arguments) => (arguments.report_steps, arguments.foreground, arguments.v),
            Self::Join(arguments) => (arguments.report_steps, arguments.foreground, arguments.v),
        }
    }
}

/// Starts the cluster, or a node of one.
pub fn run_up(arguments: StartArguments, caller: CallingUser) -> anyhow::Result<ExitCode> {
    let (report_steps, foreground, verbosity) = arguments.process_flags();
    if report_steps {
        return in_background(&arguments, &caller);
    }
    preflight::check_root()?;
    let options = arguments.resolve(&caller)?;
    let runtime = build_runtime()?;
    let mut steps = StepReporter::on_terminal();
    runtime.block_on(async {
        preflight::check_machine(&options).await?;
        if options.install { install::install_packages(&mut steps).await } else { Ok(()) }
    })?;
    if !foreground {
        drop(runtime);
        return start_background(&options, &steps, &caller);
    }
    log::init_logging(verbosity);
    prepare_process()?;
    let ended = runtime
        .block_on(run::run_cluster(&options, &mut steps, |steps| announce_ready(&options, steps.seconds(), &caller)));
    runtime.shutdown_timeout(LAST_TASKS);
    ended.map(|()| ExitCode::SUCCESS)
}

/// The background process: runs the cluster, and reports its start to the parent through standard output.
fn in_background(arguments: &StartArguments, caller: &CallingUser) -> anyhow::Result<ExitCode> {
    log::init_logging(arguments.process_flags().2);
    let mut steps = StepReporter::to_parent();
    let ended = (|| {
        let options = arguments.resolve(caller)?;
        // A start directory that is unmounted later must not be held.
        std::env::set_current_dir("/")?;
        prepare_process()?;
        let runtime = build_runtime()?;
        let ended = runtime.block_on(run::run_cluster(&options, &mut steps, |steps| {
            steps.ready();
            // The parent sees the end of its pipe, and what is printed later goes to the log.
            let _ = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
        }));
        runtime.shutdown_timeout(LAST_TASKS);
        ended
    })();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            steps.failed(&error);
            ExitCode::FAILURE
        }
    })
}

/// The caller's habits must not limit the cluster: pods of any user can read the files that it makes for them, and it may
/// have as many connections as the system allows.
fn prepare_process() -> anyhow::Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Nofile, most).context("cannot raise the limit of open files")
}

fn build_runtime() -> anyhow::Result<Runtime> {
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    built.context("cannot start threads")
}

/// Starts this program again in the background and shows its steps until the cluster is up.
fn start_background(options: &UpOptions, steps: &StepReporter, caller: &CallingUser) -> anyhow::Result<ExitCode> {
    let data = options.instance.data();
    fs::create_dir_all(data).with_context(|| data.display().to_string())?;
    let path = options.instance.log();
    let log = File::options().create(true).append(true).open(&path).with_context(|| path.display().to_string())?;
    let from = log.metadata()?.len();
    let mut child = spawn_background(log)?;
    match follow_steps(&mut child, &StepScreen::new()) {
        Ok(()) => {
            announce_ready(options, steps.seconds(), caller);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let status = child.wait().context("cannot wait for the background process")?;
            Err(explain_failure(error, &path, from).context(format!("the cluster did not start ({status})")))
        }
    }
}

fn spawn_background(log: File) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new(&program);
    command.arg0("ferry").args(std::env::args_os().skip(1)).arg("--report-steps");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    spawn_detached(&mut command).with_context(|| program.display().to_string())
}

/// Shows the reports of the background process until it is ready.
fn follow_steps(child: &mut Child, screen: &StepScreen) -> anyhow::Result<()> {
    let stdout = child.stdout.take().context("the background process has no output")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot hear the background process")?;
        let Ok(report) = serde_json::from_str::<StepReport>(&line) else { continue };
        report.show(screen);
        match report {
            StepReport::Ready => return Ok(()),
            StepReport::Failed { error, .. } => return Err(anyhow!(error)),
            _ => {}
        }
    }
    bail!("the background process ended without a word")
}

fn explain_failure(error: anyhow::Error, log: &Path, from: u64) -> anyhow::Error {
    match log::read_tail(log, from, TAIL) {
        Ok(tail) if !tail.is_empty() => anyhow!("{error:#}\n\nThe end of {}:\n{tail}", log.display()),
        _ => error,
    }
}

fn announce_ready(options: &UpOptions, seconds: f64, caller: &CallingUser) {
    let screen = StepScreen::new();
    if let Some(target) = &options.join {
        let (node, server) = (&options.node_name, &target.server);
        return screen.line(&format!("\nThe node {node} of the cluster at {server} is up after {seconds:.2} s.\n"));
    }
    let own = caller.kubeconfig().is_some_and(|file| file == options.kubeconfig);
    let kubectl = if own { "kubectl".into() } else { format!("kubectl --kubeconfig {}", options.kubeconfig.display()) };
    screen.line(&format!(
        "\nThe cluster is up after {seconds:.2} s. Now try:\n\n  {kubectl} get nodes\n  {kubectl} create deployment nginx --image=nginx --replicas=3\n"
    ));
}
