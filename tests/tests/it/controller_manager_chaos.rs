//! The controller manager is killed at random moments while workloads are created, updated and deleted: every object must
//! come to its right state, with every pod of a Job counted once, one pod per ordinal, and nothing orphaned.
//!
//! `FERRY_STRESS=full` kills it 100 times under 200 objects; otherwise it is a small run of the same.

mod fake_kubelet;
mod final_state;
mod workloads;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use ferry_tests::TestApiServer;
use futures::future::join_all;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{Instant, sleep};

use self::{fake_kubelet::FakeKubelet, workloads::Workload};
use crate::kube_controller_manager::ControllerManager;

/// Time for the last state after the last kill.
const PATIENCE: Duration = Duration::from_secs(300);

/// The size of the run.
struct ChaosScale {
    objects: usize,
    kills: usize,
}

impl ChaosScale {
    fn chosen() -> Self {
        match std::env::var("FERRY_STRESS").as_deref() {
            Ok("full") => Self { objects: 200, kills: 100 },
            _ => Self { objects: 16, kills: 8 },
        }
    }
}

/// Pseudo-random numbers, whose seed a failed run prints.
#[derive(Clone)]
struct Dice(Arc<Mutex<u64>>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed | 1)))
    }

    /// A number below `end`.
    fn below(&self, end: u64) -> u64 {
        let mut state = self.0.lock().expect("the dice");
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % end
    }

    async fn pause(&self, most: Duration) {
        let most = u64::try_from(most.as_millis()).expect("a short time");
        sleep(Duration::from_millis(self.below(most))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_controller_manager_leaves_every_object_right() {
    let scale = ChaosScale::chosen();
    let seed = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
    println!("seed {seed}");
    let dice = Dice::new(seed);
    let server = TestApiServer::start();
    let client = client(&server.kubeconfig()).await;
    let kubelet = FakeKubelet::start(client.clone(), dice.clone()).await;

    let mut manager = start_manager(&server);
    workloads::wait_for_service_account(&client).await;
    // The work takes about as long as the kills.
    let span = Duration::from_millis(500) * u32::try_from(scale.kills).expect("few kills");
    let work = (0..scale.objects).map(|number| Workload::new(number).run(client.clone(), dice.clone(), span));
    let work = tokio::spawn(join_all(work.collect::<Vec<_>>()));
    for _ in 0..scale.kills {
        dice.pause(Duration::from_millis(2000)).await;
        manager.kill();
        manager = start_manager(&server);
    }
    let workloads = work.await.expect("the work is done");

    let deadline = Instant::now() + PATIENCE;
    loop {
        kubelet.expect_invariants();
        match final_state::check(&client, &workloads, &kubelet).await {
            Ok(()) => break,
            Err(difference) => assert!(Instant::now() < deadline, "after {PATIENCE:?}: {difference}"),
        }
        sleep(Duration::from_millis(500)).await;
    }
    kubelet.expect_invariants();
}

fn start_manager(server: &TestApiServer) -> ControllerManager {
    ControllerManager::start(server, "manager", &["--leader-elect=false"])
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("it is usable");
    Client::try_from(config).expect("a client")
}
