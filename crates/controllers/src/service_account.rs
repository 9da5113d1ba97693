//! A ServiceAccount `default` in every active namespace, for pods that name none.

use k8s_openapi::api::core::v1::ServiceAccount;

use crate::{
    Context,
    per_namespace::{self, Kept},
};

struct DefaultAccount;

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    per_namespace::run(context, DefaultAccount).await;
}

impl Kept for DefaultAccount {
    type Object = ServiceAccount;
    const NAME: &'static str = "default";

    fn mend(&self, _: &mut ServiceAccount) {}

    fn is_right(&self, _: &ServiceAccount) -> bool {
        true
    }
}
