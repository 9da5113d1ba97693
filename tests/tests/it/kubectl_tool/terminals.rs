//! Terminals: their size, raw mode and exit codes in `exec`, `attach`, `run` and `debug`.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread,
};

use ferry_tests::{eventually, machine::built_program};
use rustix::{
    fs::OFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use super::KubectlPair;

const SHELL: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: sh, image: nginx, imagePullPolicy: Never, command: [sh], stdin: true, tty: true}]
"#;

/// A program on a pseudo-terminal.
struct TerminalSession {
    child: Child,
    terminal: File,
    text: Arc<Mutex<String>>,
}

impl TerminalSession {
    fn start(mut command: Command) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("its other side");
        let name = ptsname(&terminal, Vec::new()).expect("a name");
        let open = |_| -> OwnedFd {
            rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, rustix::fs::Mode::empty()).expect("its other side")
        };
        set_size(&terminal, 120, 40);
        let [stdin, stdout, stderr] = [0, 1, 2].map(open);
        let child = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().expect("kubectl starts");
        // The command keeps copies of the descriptors.
        drop(command);
        let terminal = File::from(terminal);
        let text: Arc<Mutex<String>> = Arc::default();
        let (mut source, sink) = (terminal.try_clone().expect("a descriptor"), text.clone());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                sink.lock().expect("no panic while it is held").push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { child, terminal, text }
    }

    fn text(&self) -> String {
        self.text.lock().expect("no panic while it is held").clone()
    }

    fn wait_for_text(&self, wanted: &str) {
        eventually(&format!("{wanted:?} on the terminal"), || match self.text() {
            text if text.contains(wanted) => Ok(()),
            text => Err(text),
        });
    }

    fn write(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).expect("a terminal");
    }

    /// Asks the program in the container for the size until it is the wanted one.
    fn wait_for_size(&mut self, wanted: &str) {
        eventually(&format!("the size {wanted}"), || {
            self.write("stty size\r");
            match self.text() {
                text if text.contains(wanted) => Ok(()),
                text => Err(text),
            }
        });
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).expect("a terminal").local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end; the mode must be the one of before.
    fn finish(&mut self) -> i32 {
        let status = eventually("the end on the terminal", || match self.child.try_wait().expect("a child") {
            Some(status) => Ok(status),
            None => Err(self.text()),
        });
        assert!(!self.is_raw(), "{}", self.text());
        status.code().unwrap_or(-1)
    }
}

fn set_size(terminal: impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal");
}

impl KubectlPair<'_> {
    pub(super) fn compare_terminals(&self) {
        self.cluster.kubectl_args(&["apply", "-f", "-"], Some(SHELL)).expect_success();
        self.cluster.kubectl("wait --for=condition=Ready pod/shell pod/talker --timeout=60s").expect_success();
        for (number, ours) in [(1, true), (2, false)] {
            self.check_sizes(ours);
            self.check_broken_ends(ours, number);
            self.check_attachment(ours);
            self.check_new_containers(ours, number);
        }
    }

    /// Starts a program as the leader of a session with the terminal.
    fn on_terminal(&self, ours: bool, line: &str) -> TerminalSession {
        let mut words = vec!["--ctty", "--wait"];
        let ferry = built_program("ferry");
        let program = if ours { &ferry } else { &self.upstream };
        words.push(program.to_str().expect("text"));
        if ours {
            words.push("kubectl");
        }
        words.extend(line.split(' '));
        TerminalSession::start(self.cluster.prepared("setsid", &words))
    }

    /// The size arrives in the container, follows the terminal, and the exit code comes back.
    fn check_sizes(&self, ours: bool) {
        let mut session = self.on_terminal(ours, "exec -it talker -c second -- sh");
        session.wait_for_text("# ");
        assert!(session.is_raw());
        session.wait_for_size("40 120");
        set_size(&session.terminal, 99, 33);
        session.wait_for_size("33 99");
        session.write("exit 7\r");
        assert_eq!(session.finish(), 7);
        session.wait_for_text("command terminated with exit code 7");
    }

    /// The terminal is restored when the process in the container or kubectl itself is killed.
    fn check_broken_ends(&self, ours: bool, number: u32) {
        let mut session = self.on_terminal(ours, "exec -it talker -c second -- sh");
        session.wait_for_text("# ");
        session.write("kill -9 $$\r");
        assert_eq!(session.finish(), 137);
        let mut session = self.on_terminal(ours, "exec -it talker -c second -- sh");
        session.wait_for_text("# ");
        let pid = session.child.id().to_string();
        ferry_tests::run_command(Command::new("kill").args(["-TERM", &pid]), None).expect_success();
        assert_ne!(session.finish(), 0);
        let name = format!("gone-{number}");
        let run = format!("run {name} --image=nginx --image-pull-policy=Never -- sleep 9999");
        self.cluster.kubectl(&run).expect_success();
        self.cluster.kubectl(&format!("wait --for=condition=Ready pod/{name} --timeout=60s")).expect_success();
        let mut session = self.on_terminal(ours, &format!("exec -it {name} -- sh"));
        session.wait_for_text("# ");
        self.cluster.kubectl(&format!("delete pod {name} --force --grace-period=0")).expect_success();
        assert_eq!(session.finish(), 137);
    }

    /// Keys detach from a container, which goes on. Upstream's kubectl only closes its input then, and waits for the container.
    fn check_attachment(&self, ours: bool) {
        let mut session = self.on_terminal(ours, "attach -it shell");
        session.wait_for_text("try pressing enter");
        session.write("\r");
        session.wait_for_text("# ");
        assert!(session.is_raw());
        session.wait_for_size("40 120");
        if ours {
            session.write("\x10\x11");
            assert_eq!(session.finish(), 0, "ours");
            session.wait_for_text("Session ended, resume using 'kubectl attach shell -c sh -n default -i -t' command");
        } else {
            let pid = session.child.id().to_string();
            ferry_tests::run_command(Command::new("kill").args(["-TERM", &pid]), None).expect_success();
            session.finish();
        }
        assert_eq!(self.cluster.get("pod shell")[0]["status"]["containerStatuses"][0]["restartCount"], 0);
    }

    /// `run --rm` and `debug` end with the code of the container.
    fn check_new_containers(&self, ours: bool, number: u32) {
        let line = format!("run once-{number} -it --rm --restart=Never --image=nginx --image-pull-policy=Never -- sh");
        let session = self.exit_from_shell(ours, &line, 3);
        session.wait_for_text(&format!("pod \"once-{number}\" deleted"));
        assert!(self.cluster.kubectl(&format!("get pod once-{number}")).code != 0);
        let line = format!("debug talker -it --image=nginx --image-pull-policy=Never -c shell-{number} -- sh");
        self.exit_from_shell(ours, &line, 0);
    }

    /// Starts a shell in a new container and leaves it with a code, which becomes that of the program.
    fn exit_from_shell(&self, ours: bool, line: &str, code: i32) -> TerminalSession {
        let mut session = self.on_terminal(ours, line);
        session.wait_for_text("try pressing enter");
        session.write("\r");
        session.wait_for_size("40 120");
        session.write(&format!("exit {code}\r"));
        assert_eq!(session.finish(), code);
        session
    }
}
