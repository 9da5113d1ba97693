//! Known ways out of a container; none may lead out.

use std::{fs, path::Path};

use ferry_runtime::cri::types::*;
use sha2::{Digest, Sha256};

use crate::{
    image::{ImageFiles, build_archive},
    subject::{RuntimeName, Subject, TestPod, container},
};

const SECRET: &str = "a secret of the host";

/// Tries all of them.
pub async fn check_all(subject: &Subject) {
    let secret = subject.directory.join("secret");
    fs::write(&secret, SECRET).unwrap();
    let pod = subject.pod("escapes").await;
    commands(subject, &pod, &secret).await;
    link_at_mount_target(subject, &pod).await;
    working_directories(subject, &pod, &secret).await;
    mounts_in_proc(subject, &pod).await;
    overwrite_of_the_runtime(subject, &pod).await;
    hostile_users(subject, &pod, &secret).await;
    hostile_archives(subject).await;
    subject.remove(pod).await;
}

fn of_image(mut config: ContainerConfig, image: &str) -> ContainerConfig {
    config.image = Some(ImageSpec { image: image.into(), ..Default::default() });
    config
}

/// Attempts of a program in an ordinary container; each line must fail.
async fn commands(subject: &Subject, pod: &TestPod, secret: &Path) {
    let id = subject.run(pod, container("commands", "sleep 1000")).await.unwrap();
    for (what, script) in [
        ("another proc", "mkdir -p /tmp/p && mount -t proc proc /tmp/p"),
        ("kernel settings", "echo x > /proc/sys/kernel/core_pattern"),
        ("kernel settings of the host", "echo 1 > /proc/sys/vm/drop_caches"),
        ("system requests", "echo h > /proc/sysrq-trigger"),
        ("memory of the kernel", "head -c 1 /proc/kcore | cat | ls -l /proc/kcore | busybox grep -v 'crw-rw-rw-'"),
        ("release agent", "cd /sys/fs/cgroup/memory || cd /sys/fs/cgroup; echo x > release_agent"),
        ("new control groups", "cd /sys/fs/cgroup/memory || cd /sys/fs/cgroup; mkdir out"),
        (
            "limits",
            "cd /sys/fs/cgroup/memory || cd /sys/fs/cgroup; echo 100000000 > memory.limit_in_bytes || echo max > memory.max",
        ),
        ("disks", "mkdir -p /tmp; mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk"),
        ("memory device", "mkdir -p /tmp; mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem"),
        ("kernel log", "mkdir -p /tmp; mknod /tmp/kmsg c 1 11 && head -c 1 /tmp/kmsg"),
        ("debugfs", "mkdir -p /tmp/d && mount -t debugfs none /tmp/d"),
    ] {
        let (told, code) = subject.shell(&id, script).await;
        assert_ne!(code, 0, "{what}: {told}");
    }
    let (told, _) =
        subject.shell(&id, &format!("cat /proc/1/root{0} /proc/self/cwd/../../../..{0}", secret.display())).await;
    assert!(!told.contains(SECRET), "{told}");
    // Standard files, and the directory that ls reads.
    let (told, _) = subject.shell(&id, "ls /proc/self/fd").await;
    assert!(told.split_whitespace().count() <= 4, "descriptors of a command: {told}");
    let (told, _) = subject.shell(&id, "ls /proc/1/fd").await;
    assert!(told.split_whitespace().count() <= 4, "descriptors of the first process: {told}");
}

/// A link in the image at the target of a mount is resolved in the image.
async fn link_at_mount_target(subject: &Subject, pod: &TestPod) {
    let outside = subject.directory.join("outside");
    let volume = subject.directory.join("linked");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("mark"), "").unwrap();
    let up = format!("../../../../../../../..{}", outside.display());
    let absolute = outside.display().to_string();
    for (number, target) in [up, absolute].iter().enumerate() {
        let image = format!("ferry.local/link:{number}");
        let links = [("mnt", target.as_str())];
        subject.load(build_archive(&image, &ImageFiles { links: &links, has_base: true, ..Default::default() })).await;
        let mut config = of_image(container(&format!("link{number}"), "sleep 1000"), &image);
        let host_path = volume.display().to_string();
        config.mounts = vec![Mount { container_path: "/mnt".into(), host_path, ..Default::default() }];
        // A runtime may refuse it, too.
        if let Ok(id) = subject.run(pod, config).await {
            assert_eq!(subject.shell(&id, "ls /mnt/").await.0.trim(), "mark");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{target}");
    }
}

/// A working directory that is a descriptor of the runtime.
async fn working_directories(subject: &Subject, pod: &TestPod, secret: &Path) {
    for number in 3..16 {
        let script = format!("cat ../../../../../../../..{0} .{0}", secret.display());
        let name = format!("directory{number}");
        let mut config = container(&name, &script);
        config.working_dir = format!("/proc/self/fd/{number}");
        if let Ok(id) = subject.run(pod, config).await {
            subject.exit_of(&id).await;
            let log = fs::read_to_string(format!("{}/{name}.log", pod.config.log_directory)).unwrap_or_default();
            assert!(!log.contains(SECRET), "{log}");
        }
    }
}

/// Mounts over the kernel's files are refused, also through a link.
async fn mounts_in_proc(subject: &Subject, pod: &TestPod) {
    let host_path = subject.directory.join("linked").display().to_string();
    for (number, path) in ["/proc/sys", "/proc/self/attr", "/tmp/../proc/sys/kernel"].iter().enumerate() {
        let mut config = container(&format!("proc{number}"), "sleep 1000");
        config.mounts =
            vec![Mount { container_path: (*path).into(), host_path: host_path.clone(), ..Default::default() }];
        assert!(subject.run(pod, config).await.is_err(), "{path}");
    }
    // A link of the image in place of `/proc`, and of a directory above the target.
    let links = [("proc", "/tmp")];
    let image = "ferry.local/proc-link:1";
    subject.load(build_archive(image, &ImageFiles { links: &links, has_base: true, ..Default::default() })).await;
    assert!(subject.run(pod, of_image(container("proc-link", "sleep 1000"), image)).await.is_err());
}

/// The program of the runtime, seen from a container that is being entered, cannot be written.
async fn overwrite_of_the_runtime(subject: &Subject, pod: &TestPod) {
    let program = match subject.name {
        RuntimeName::Ferry => std::env::current_exe().unwrap(),
        RuntimeName::Containerd => {
            ["/usr/sbin/runc", "/usr/bin/runc"].map(Path::new).into_iter().find(|path| path.exists()).unwrap().into()
        }
    };
    let before = Sha256::digest(fs::read(&program).unwrap());
    let image = "ferry.local/overwrite:1";
    let files: [(&str, &[u8]); 1] = [("bin/evil", b"#!/proc/self/exe\n")];
    subject.load(build_archive(image, &ImageFiles { files: &files, has_base: true, ..Default::default() })).await;
    let script = "while :; do for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || { : >> $p/exe && echo opened; }; done; done 2>/dev/null";
    let id = subject.run(pod, of_image(container("overwrite", script), image)).await.unwrap();
    for _ in 0..20 {
        // Whether the command runs does not matter.
        let _ = subject.cri.exec_sync(&id, vec!["/bin/evil".into()], std::time::Duration::from_secs(5)).await;
        let _ = subject.cri.exec_sync(&id, vec!["/bin/true".into()], std::time::Duration::from_secs(5)).await;
    }
    subject.cri.stop_container(&id, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(Sha256::digest(fs::read(&program).unwrap()), before, "the runtime's program");
}

/// The image's files of users: links out of it, and numbers that overflow. containerd before 1.7.27 takes an overflow for
/// root (CVE-2024-40635).
async fn hostile_users(subject: &Subject, pod: &TestPod, secret: &Path) {
    if subject.name != RuntimeName::Ferry {
        return;
    }
    let overflow: [(&str, &[u8]); 1] = [("etc/passwd", b"evil:x:4294967296:0::/:/bin/sh\nfar:x:-1:0::/:/bin/sh\n")];
    let target = secret.display().to_string();
    let links = [("etc/passwd", target.as_str()), ("etc/group", "/dev/zero")];
    for (number, files) in [
        ImageFiles { files: &overflow, has_base: true, ..Default::default() },
        ImageFiles { links: &links, has_base: true, ..Default::default() },
    ]
    .iter()
    .enumerate()
    {
        let image = format!("ferry.local/users:{number}");
        subject.load(build_archive(&image, files)).await;
        for user in ["evil", "far", "root2"] {
            let mut config = of_image(container(&format!("users{number}-{user}"), "id -u"), &image);
            config.linux.as_mut().unwrap().security_context.as_mut().unwrap().run_as_username = user.into();
            assert!(subject.run(pod, config).await.is_err(), "{user} of image {number}");
        }
    }
}

/// Layers whose paths lead out of the root leave the host alone; whether the image can be loaded does not matter.
async fn hostile_archives(subject: &Subject) {
    if subject.name != RuntimeName::Ferry {
        return;
    }
    let outside = subject.directory.join("unpacked");
    fs::create_dir(&outside).unwrap();
    let target = outside.display().to_string();
    let links = [("way", target.as_str())];
    let files: [(&str, &[u8]); 1] = [("way/evil", b"x")];
    let client = ferry_runtime::image_client::ImageClient::new(&subject.directory.join("cri.sock"));
    for (number, files) in [ImageFiles { files: &files, links: &links, has_base: false }].iter().enumerate() {
        let archive = build_archive(&format!("ferry.local/hostile:{number}"), files);
        let _ = client.load(std::io::Cursor::new(archive), None).await;
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
