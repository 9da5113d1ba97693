//! kube-apiserver-serving-clustertrustbundle-publisher-controller: publishes the CA of the API server as a
//! ClusterTrustBundle, where the API server has them.

use client::{ApiErrorExt, RequeueAction, SharedInformer};
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
    runtime::watcher,
};
use ring::digest;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    discovery::check_served,
};

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

struct TrustBundlePublisher {
    client: Client,
    bundles: SharedInformer<ClusterTrustBundle>,
    root_ca: String,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let served = check_served::<ClusterTrustBundle>(context.informers.client());
    let root_ca = context.options.root_ca.clone();
    if root_ca.is_empty() || context.shutdown.run_until_cancelled(served).await != Some(true) {
        return;
    }
    let of_signer = watcher::Config::default().fields(&format!("spec.signerName={SIGNER}"));
    let bundles = Api::all(context.informers.client().clone());
    let build = |queue: client::WorkQueue<()>| {
        queue.add(());
        TrustBundlePublisher {
            bundles: SharedInformer::start(bundles, of_signer, context.shutdown.clone()),
            client: context.client.clone(),
            root_ca,
        }
    };
    run_controller(&context, build).await;
}

impl Controller for TrustBundlePublisher {
    type Key = ();
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.bundles, |_, _, queue| queue.add(()));
    }

    async fn sync(&self, (): &()) -> Result<RequeueAction, kube::Error> {
        let api: Api<ClusterTrustBundle> = Api::all(self.client.clone());
        let name = bundle_name(&self.root_ca);
        match self.bundles.get("", &name) {
            None => {
                let spec =
                    ClusterTrustBundleSpec { signer_name: Some(SIGNER.into()), trust_bundle: self.root_ca.clone() };
                let mut bundle = ClusterTrustBundle { spec, ..Default::default() };
                bundle.metadata.name = Some(name.clone());
                api.create(&PostParams::default(), &bundle).await?;
            }
            Some(bundle) if bundle.spec.trust_bundle != self.root_ca => {
                let mut updated = ClusterTrustBundle::clone(&bundle);
                updated.spec.trust_bundle.clone_from(&self.root_ca);
                api.replace(&name, &PostParams::default(), &updated).await?;
            }
            Some(_) => {}
        }
        for former in self.bundles.list().into_iter().filter(|bundle| bundle.name_any() != name) {
            match api.delete(&former.name_any(), &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(RequeueAction::AwaitChange)
    }
}

/// Returns the name of the bundle: the signer and a digest of the content.
fn bundle_name(content: &str) -> String {
    let digest = digest::digest(&digest::SHA256, content.as_bytes());
    let hex: String = digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hex}", SIGNER.replace('/', ":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_a_digest_of_the_content() {
        assert_eq!(bundle_name("abc"), "kubernetes.io:kube-apiserver-serving:ba7816bf8f01cfea414140de");
    }
}
