//! serviceaccount-controller: maintains the ServiceAccount `default` in every namespace.

use k8s_openapi::api::core::v1::ServiceAccount;

use crate::{
    ControllerContext,
    namespaced_default::{self, NamespacedDefault},
};

struct DefaultServiceAccount;

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    namespaced_default::run(context, DefaultServiceAccount).await;
}

impl NamespacedDefault for DefaultServiceAccount {
    type Object = ServiceAccount;
    const NAME: &'static str = "default";

    fn apply(&self, _: &mut ServiceAccount) {}

    fn is_up_to_date(&self, _: &ServiceAccount) -> bool {
        true
    }
}
