//! The promises of CRI to a kubelet.

use std::{fs, time::Duration};

use ferry_runtime::cri::types::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::subject::{RuntimeName, Subject, container};

/// Tries all of them.
pub async fn check_all(subject: &Subject) {
    lives_of_containers(subject).await;
    logs(subject).await;
    mounts(subject).await;
    stops(subject).await;
    memory(subject).await;
    ports(subject).await;
}

async fn lives_of_containers(subject: &Subject) {
    let pod = subject.pod("lives").await;
    let status = subject.cri.sandbox_status(&pod.id).await.unwrap();
    assert!(status.network.unwrap().ip.starts_with("10.235.0."));
    for (name, script, code, reason) in
        [("done", "exit 0", 0, "Completed"), ("failed", "exit 7", 7, "Error"), ("killed", "kill -9 $$", 137, "Error")]
    {
        let id = subject.run(&pod, container(name, script)).await.unwrap();
        let ended = subject.exit_of(&id).await;
        assert_eq!((ended.exit_code, ended.reason.as_str()), (code, reason), "{name}");
        // containerd may note the end of a container that ends at once before it notes the start.
        let is_ordered = ended.started_at <= ended.finished_at || subject.name == RuntimeName::Containerd;
        assert!(ended.created_at <= ended.started_at && is_ordered, "{name}");
        assert!(subject.cri.start_container(&id).await.is_err(), "a container starts once");
    }
    let mut absent = container("absent", "");
    absent.command = vec!["/does/not/exist".into()];
    let error = subject.run(&pod, absent).await.unwrap_err();
    assert!(error.contains("/does/not/exist"), "{error}");
    subject.remove(pod).await;
}

async fn logs(subject: &Subject) {
    let pod = subject.pod("logs").await;
    let script = "echo out; echo err >&2; printf 'no newline'";
    let id = subject.run(&pod, container("c", script)).await.unwrap();
    subject.exit_of(&id).await;
    let text = fs::read_to_string(format!("{}/c.log", pod.config.log_directory)).unwrap();
    let mut lines: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["stderr F err", "stdout F out", "stdout P no newline"], "{text}");

    // A line longer than the buffer comes in parts.
    let long = "i=0; while [ $i -lt 3000 ]; do printf 0123456789; i=$((i+1)); done; echo";
    let id = subject.run(&pod, container("long", long)).await.unwrap();
    subject.exit_of(&id).await;
    let text = fs::read_to_string(format!("{}/long.log", pod.config.log_directory)).unwrap();
    let parts: Vec<(&str, &str)> =
        text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap().split_once(' ').unwrap()).collect();
    assert!(parts.len() >= 2 && parts.last().unwrap().0 == "F", "{} parts", parts.len());
    assert_eq!(parts.iter().map(|(_, text)| text.len()).sum::<usize>(), 30_000);
    subject.remove(pod).await;
}

async fn mounts(subject: &Subject) {
    let pod = subject.pod("mounts").await;
    let host = subject.directory.join("volume");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "content").unwrap();
    let mount = |path: &str, readonly: bool| Mount {
        container_path: path.into(),
        host_path: host.display().to_string(),
        readonly,
        ..Default::default()
    };
    let mut config = container("c", "sleep 1000");
    config.mounts = vec![mount("/a/b", false), mount("/ro", true)];
    let id = subject.run(&pod, config).await.unwrap();
    assert_eq!(subject.shell(&id, "cat /a/b/file /ro/file").await, ("contentcontent".into(), 0));
    assert_ne!(subject.shell(&id, "echo x > /ro/new").await.1, 0);
    assert_eq!(subject.shell(&id, "echo x > /a/b/new").await.1, 0);
    assert!(host.join("new").exists());
    assert_eq!(subject.shell(&id, "cat /etc/hostname; echo $$ > /dev/null").await.1, 0);
    subject.remove(pod).await;
}

async fn stops(subject: &Subject) {
    let pod = subject.pod("stops").await;
    let polite =
        subject.run(&pod, container("polite", "trap 'exit 3' TERM; while :; do sleep 0.1; done")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    subject.cri.stop_container(&polite, Duration::from_secs(20)).await.unwrap();
    assert_eq!(subject.exit_of(&polite).await.exit_code, 3);
    let stubborn = subject.run(&pod, container("stubborn", "trap '' TERM; while :; do sleep 0.1; done")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    subject.cri.stop_container(&stubborn, Duration::from_secs(1)).await.unwrap();
    assert_eq!(subject.exit_of(&stubborn).await.exit_code, 137);
    subject.cri.stop_container(&stubborn, Duration::ZERO).await.unwrap();
    let error = subject.cri.exec_sync(&stubborn, vec!["/bin/true".into()], Duration::from_secs(5)).await;
    assert!(error.is_err(), "no commands in a container that has ended");
    subject.remove(pod).await;
}

async fn memory(subject: &Subject) {
    let pod = subject.pod("memory").await;
    let mut config = container("hungry", "x=0123456789; while :; do x=$x$x; done");
    let resources = LinuxContainerResources { memory_limit_in_bytes: 32 << 20, ..Default::default() };
    config.linux.as_mut().unwrap().resources = Some(resources);
    let id = subject.run(&pod, config).await.unwrap();
    let ended = subject.exit_of(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "OOMKilled"));
    subject.remove(pod).await;
}

/// A server answers at the pod's address.
async fn ports(subject: &Subject) {
    let pod = subject.pod("ports").await;
    let id = subject.run(&pod, container("c", "exec busybox httpd -f -p 80 -h /bin")).await.unwrap();
    let ip = subject.cri.sandbox_status(&pod.id).await.unwrap().network.unwrap().ip;
    for attempt in 0.. {
        let asked = async {
            let mut stream = tokio::net::TcpStream::connect((ip.as_str(), 80)).await?;
            stream.write_all(b"GET /none HTTP/1.0\r\n\r\n").await?;
            let mut head = [0; 8];
            stream.read_exact(&mut head).await.map(|_| head)
        };
        match asked.await {
            Ok(head) => {
                assert_eq!(&head, b"HTTP/1.1");
                break;
            }
            Err(error) if attempt > 100 => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    subject.cri.stop_container(&id, Duration::ZERO).await.unwrap();
    subject.remove(pod).await;
}
