//! `ferry down` leaves nothing behind, whatever ran.

use ferry_tests::{TestCluster, TestHost, machine::MachineSnapshot, skip_reason};

#[test]
fn down_leaves_nothing() {
    if skip_reason().is_some() {
        return;
    }
    let host = TestHost::new();
    let before = MachineSnapshot::take(&host.netns);
    let cluster = TestCluster::up_on(host);
    cluster.kubectl("create deployment nginx --image=nginx --replicas=3").expect_success();
    cluster.running("app=nginx", 3);
    let status = cluster.host.ferry(&["status"]).expect_success();
    let name = status.split_whitespace().nth(1).expect("status begins with the cluster's name");
    let dir = cluster.host.data_dir().display().to_string();
    let ours = [cluster.host.netns.as_str(), dir.as_str(), name];
    let during = MachineSnapshot::take(&cluster.host.netns).new_since(&before, &ours);
    for what in ["process", "mount", "link", "rule", "cgroup"] {
        assert!(during.iter().any(|entry| entry.starts_with(what)), "a cluster has a {what}: {during:#?}");
    }

    cluster.host.ferry(&["down"]).expect_success();
    let left = MachineSnapshot::take(&cluster.host.netns).new_since(&before, &ours);
    assert!(left.is_empty(), "left behind: {left:#?}");
    assert!(cluster.host.data_dir().join("store").exists(), "the data is kept");
    cluster.host.ferry(&["down"]).expect_success();

    cluster.start().expect_success();
    cluster.running("app=nginx", 3);
    cluster.host.ferry(&["down", "--purge"]).expect_success();
    let left = MachineSnapshot::take(&cluster.host.netns).new_since(&before, &ours);
    assert!(left.is_empty(), "left behind: {left:#?}");
    assert!(!cluster.host.data_dir().exists(), "the data is gone");
}
