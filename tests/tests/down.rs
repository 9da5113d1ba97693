//! `ferry down` leaves nothing behind, whatever ran.

use ferry_tests::{Cluster, Host, machine::Picture, skip_reason};

#[test]
fn down_leaves_nothing() {
    if skip_reason().is_some() {
        return;
    }
    let host = Host::new();
    let before = Picture::take(&host.netns);
    let cluster = Cluster::up_on(host);
    cluster.kubectl("create deployment nginx --image=nginx --replicas=3").ok();
    cluster.running("app=nginx", 3);
    let during = Picture::take(&cluster.host.netns).new_since(&before);
    for what in ["process", "mount", "link", "rule", "cgroup"] {
        assert!(during.iter().any(|entry| entry.starts_with(what)), "a cluster has a {what}: {during:#?}");
    }
    let status = cluster.host.ferry(&["status"]);
    assert_eq!(status.code, 0, "{}{}", status.stdout, status.stderr);

    cluster.host.ferry(&["down"]).ok();
    let left = Picture::take(&cluster.host.netns).new_since(&before);
    assert!(left.is_empty(), "left behind: {left:#?}");
    assert!(cluster.host.data_dir().join("store").exists(), "the data is kept");
    cluster.host.ferry(&["down"]).ok();

    cluster.start().ok();
    cluster.running("app=nginx", 3);
    cluster.host.ferry(&["down", "--purge"]).ok();
    let left = Picture::take(&cluster.host.netns).new_since(&before);
    assert!(left.is_empty(), "left behind: {left:#?}");
    assert!(!cluster.host.data_dir().exists(), "the data is gone");
}
