//! serviceaccount-token-controller: fills Secrets of type `kubernetes.io/service-account-token` with a token, deletes
//! those of deleted service accounts, and removes references to deleted Secrets.

pub(crate) mod legacy_cleaner;
mod token_secret;

use std::sync::Arc;

use authn::TokenIssuer;
use client::{ApiErrorExt, RequeueAction, SharedInformer};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};

use self::token_secret::TokenSecrets;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

/// Index of token Secrets by namespace and service account name.
const BY_SERVICE_ACCOUNT: &str = "service-account";
/// Attempts to remove a reference after conflicts.
const REMOVE_REFERENCE_ATTEMPTS: usize = 10;

struct ServiceAccountTokenController {
    client: Client,
    accounts: SharedInformer<ServiceAccount>,
    secrets: SharedInformer<Secret>,
    tokens: TokenSecrets,
}

/// The identity of an object: namespace, name and uid; an empty uid stands for any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    namespace: String,
    name: String,
    uid: String,
}

/// The unit of work. A Secret carries the service account that its annotations name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TokenWork {
    Account(Identity),
    Secret { secret: Identity, account: Identity },
}

/// A token could not be written.
#[derive(Debug, thiserror::Error)]
enum TokenSyncError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("cannot sign a service account token: {0}")]
    Sign(#[from] authn::KeyError),
}

/// Runs the controller until shutdown; without a private key there is nothing to sign with.
pub(crate) async fn run(context: ControllerContext) {
    let Some(key) = &context.options.service_account_private_key else {
        tracing::warn!("service account token controller: no private key, not started");
        return;
    };
    let issuer = match TokenIssuer::new(token_secret::LEGACY_ISSUER, key) {
        Ok(issuer) => issuer,
        Err(error) => {
            tracing::error!(%error, "service account token controller: unusable private key, not started");
            return;
        }
    };
    let build = |_| ServiceAccountTokenController {
        accounts: context.informers.informer_for(),
        secrets: context.informers.informer_for(),
        tokens: TokenSecrets { issuer, root_ca: context.options.root_ca.clone() },
        // Its own service account would depend on the tokens that it writes.
        client: context.informers.client().clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for ServiceAccountTokenController {
    type Key = TokenWork;
    type Error = TokenSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        self.secrets.add_index(BY_SERVICE_ACCOUNT, |secret| {
            token_secret::account_of(secret).map(|account| account.index_value()).into_iter().collect()
        });
        watches.add(&self.accounts, |_, event, queue| {
            queue.add(TokenWork::Account(Identity::from_object(event.object().as_ref())));
        });
        watches.add(&self.secrets, |_, event, queue| {
            if let Some(account) = token_secret::account_of(event.object()) {
                let secret = Identity::from_object(event.object().as_ref());
                queue.add(TokenWork::Secret { secret, account });
            }
        });
    }

    async fn sync(&self, work: &TokenWork) -> Result<RequeueAction, TokenSyncError> {
        match work {
            TokenWork::Account(account) => self.sync_account(account).await?,
            TokenWork::Secret { secret, account } => self.sync_secret(secret, account).await?,
        }
        Ok(RequeueAction::AwaitChange)
    }
}

impl Identity {
    fn from_object<K: kube::Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    fn index_value(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn matches_uid(&self, uid: Option<&str>) -> bool {
        self.uid.is_empty() || Some(self.uid.as_str()) == uid
    }
}

impl ServiceAccountTokenController {
    /// Deletes the tokens of a deleted service account.
    async fn sync_account(&self, account: &Identity) -> Result<(), kube::Error> {
        if self.cached_account(account).is_some() {
            return Ok(());
        }
        for secret in self.secrets.by_index(BY_SERVICE_ACCOUNT, &account.index_value()) {
            let named = token_secret::account_of(&secret);
            if named.is_some_and(|named| named.uid.is_empty() || named.uid == account.uid) {
                self.delete_token(&Identity::from_object(secret.as_ref())).await?;
            }
        }
        Ok(())
    }

    async fn sync_secret(&self, identity: &Identity, account: &Identity) -> Result<(), TokenSyncError> {
        let secret = self.secrets.get(&identity.namespace, &identity.name);
        match secret.filter(|secret| identity.matches_uid(secret.metadata.uid.as_deref())) {
            None if self.cached_account(account).is_some() => self.remove_reference(account, &identity.name).await?,
            None => {}
            Some(secret) => match self.find_account(account).await? {
                Some(account) => self.write_token(&account, &secret).await?,
                None => self.delete_token(identity).await?,
            },
        }
        Ok(())
    }

    fn cached_account(&self, account: &Identity) -> Option<Arc<ServiceAccount>> {
        let cached = self.accounts.get(&account.namespace, &account.name)?;
        account.matches_uid(cached.metadata.uid.as_deref()).then_some(cached)
    }

    /// Returns the service account from the cache, or else from the server.
    async fn find_account(&self, account: &Identity) -> Result<Option<Arc<ServiceAccount>>, kube::Error> {
        if let Some(cached) = self.cached_account(account) {
            return Ok(Some(cached));
        }
        let live = self.account_api(account).get_opt(&account.name).await?;
        Ok(live.filter(|live| account.matches_uid(live.metadata.uid.as_deref())).map(Arc::new))
    }

    /// Fills the Secret if something is missing and the cache is current.
    async fn write_token(&self, account: &ServiceAccount, cached: &Secret) -> Result<(), TokenSyncError> {
        if self.tokens.is_complete(cached) {
            return Ok(());
        }
        let api: Api<Secret> =
            Api::namespaced(self.client.clone(), cached.metadata.namespace.as_deref().unwrap_or_default());
        let Some(mut live) = api.get_opt(&cached.name_any()).await? else { return Ok(()) };
        if live.metadata.resource_version != cached.metadata.resource_version || self.tokens.is_complete(&live) {
            return Ok(());
        }
        self.tokens.complete_secret(account, &mut live)?;
        match api.replace(&live.name_any(), &PostParams::default(), &live).await {
            Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn delete_token(&self, secret: &Identity) -> Result<(), kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace);
        let this_one = Preconditions { uid: Some(secret.uid.clone()), ..Default::default() };
        match api.delete(&secret.name, &DeleteParams::default().preconditions(this_one)).await {
            Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the reference to a deleted Secret from the service account.
    async fn remove_reference(&self, account: &Identity, secret: &str) -> Result<(), kube::Error> {
        let api = self.account_api(account);
        for _ in 0..REMOVE_REFERENCE_ATTEMPTS {
            let live = api.get_opt(&account.name).await?;
            let Some(mut live) = live.filter(|live| account.matches_uid(live.metadata.uid.as_deref())) else {
                return Ok(());
            };
            let references = live.secrets.get_or_insert_default();
            let count = references.len();
            references.retain(|reference| reference.name.as_deref() != Some(secret));
            if references.len() == count {
                return Ok(());
            }
            match api.replace(&account.name, &PostParams::default(), &live).await {
                Err(error) if error.is_conflict() => {}
                Err(error) if !error.is_not_found() => return Err(error),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn account_api(&self, account: &Identity) -> Api<ServiceAccount> {
        Api::namespaced(self.client.clone(), &account.namespace)
    }
}
