//! Images from and to archives: what is built on the machine runs without a registry.

use ferry_tests::{TestCluster, TestHost, run_command, skip_reason};

const FLAG: &str = "--container-runtime=ferry";

#[test]
fn images_run_from_archives() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up_with(TestHost::new(), &[FLAG]);
    let host = &cluster.host;
    host.ferry(&["image", "pull", "nginx"]).expect_success();
    host.ferry(&["image", "tag", "nginx", "example.com/team/app:1"]).expect_success();
    let archive = host.file("app.tar");
    let archive = archive.to_str().expect("text");
    host.ferry(&["image", "save", "example.com/team/app:1", "--output", archive]).expect_success();
    host.ferry(&["image", "rm", "nginx"]).expect_success();
    assert!(!host.ferry(&["image", "ls"]).expect_success().contains("nginx"), "all names are gone");

    // Compressed, as people send archives.
    run_command(std::process::Command::new("gzip").arg(archive), None).expect_success();
    let told = host.ferry(&["image", "load", "--input", &format!("{archive}.gz")]).expect_success();
    assert!(told.contains("example.com/team/app:1"), "{told}");
    let listed = host.ferry(&["image", "ls"]).expect_success();
    assert!(listed.contains("example.com/team/app:1") && !listed.contains("nginx"), "{listed}");

    cluster.kubectl("create deployment app --image=example.com/team/app:1").expect_success();
    cluster.running("app=app", 1);

    let missing = host.ferry(&["image", "save", "absent:1", "--output", archive]).expect_failure();
    assert!(missing.contains("absent:1: not found"), "{missing}");
    assert!(!host.file("app.tar").exists(), "no half archive");
    let refused = host.ferry(&["image", "load", "--input", "/etc/hostname"]).expect_failure();
    assert!(refused.contains("archive"), "{refused}");
    host.ferry(&["image", "tag", "absent:1", "other:1"]).expect_failure();
}
