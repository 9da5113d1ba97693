//! root-ca-certificate-publisher-controller: publishes the cluster CA as ConfigMap `kube-root-ca.crt` in every
//! namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::{
    ControllerContext,
    namespaced_default::{self, NamespacedDefault},
};

const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions \
    of Kubernetes clusters.";

struct RootCaConfigMap {
    data: BTreeMap<String, String>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let data = [("ca.crt".to_owned(), context.options.root_ca.clone())].into();
    namespaced_default::run(context, RootCaConfigMap { data }).await;
}

impl NamespacedDefault for RootCaConfigMap {
    type Object = ConfigMap;
    const NAME: &'static str = "kube-root-ca.crt";

    fn apply(&self, object: &mut ConfigMap) {
        object.data = Some(self.data.clone());
        object.metadata.annotations.get_or_insert_default().insert(DESCRIPTION.into(), DESCRIPTION_TEXT.into());
    }

    fn is_up_to_date(&self, object: &ConfigMap) -> bool {
        let described = object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(DESCRIPTION));
        described && object.data.as_ref() == Some(&self.data)
    }
}
