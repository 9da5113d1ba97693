//! Every command of the README, in its order, as a reader would type them.

use std::{fs, path::Path, process::Command};

use ferry_tests::{TestCluster, machine, run_command, skip_reason};

/// The lines of the README's shell blocks.
fn commands() -> Vec<String> {
    let readme = fs::read_to_string(repository().join("README.md")).expect("the README");
    let mut out = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        match line.trim() {
            "```sh" => inside = true,
            "```" => inside = false,
            command if inside => out.push(command.to_owned()),
            _ => {}
        }
    }
    out
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository")
}

#[test]
fn every_command_works() {
    if skip_reason().is_some() {
        return;
    }
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    // The first cluster fills the image cache, which the walk cannot do from a network that leads nowhere.
    let cluster = TestCluster::up();
    cluster.host.ferry(&["down", "--purge"]).expect_success();
    for line in &commands {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["cargo", "xtask", "walk"] => walk(&cluster),
            // It runs this very test.
            ["cargo", "xtask", "test"] => {
                let script = fs::read_to_string(repository().join(".ci/run")).expect(".ci/run");
                assert!(script.lines().any(|l| l.ends_with(line.as_str())), "CI runs `{line}`");
            }
            ["cargo", "xtask", "image", "nginx"] => cluster.load_nginx(&["docker.io/library/nginx:latest"]),
            ["ferry", "up"] => {
                cluster.start_again().expect_success();
            }
            ["ferry", arguments @ ..] => {
                cluster.host.ferry(arguments).expect_success();
            }
            ["kubectl", arguments @ ..] => {
                cluster.kubectl_args(arguments, None).expect_success();
            }
            _ => panic!("the README has a command that no test knows: {line}"),
        }
    }
}

/// With the debug build, which is there; a reader gets the release build.
fn walk(cluster: &TestCluster) {
    let data = cluster.host.data_dir();
    let data = data.to_str().expect("text");
    let mut command = cluster
        .host
        .prepared(machine::built_program("xtask"), &["walk", "--data-dir", data, "--profile", "dev", "--purge"]);
    for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR"] {
        match std::env::var_os(name) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let told = run_command(&mut command, None).expect_success();
    assert_eq!(told.matches("200 OK").count(), 3, "three pods answer: {told}");
    assert_eq!(told.matches("Running").count(), 3, "{told}");
    // Nothing of it is left.
    assert_eq!(run_command(Command::new("test").args(["-e", data]), None).code, 1);
}
