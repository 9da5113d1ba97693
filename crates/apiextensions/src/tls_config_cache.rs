//! Cache of TLS client configurations for conversion webhooks, by CA bundle. It saves building the configuration for
//! each call, and lets connections resume TLS sessions.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use apiserver_core::webhook::tls_config_for_bundle;
use rustls::ClientConfig;

/// Maximum number of cached configurations. CRDs installed by one operator usually share a CA bundle.
const MOST: usize = 64;

/// TLS client configurations by CA bundle.
#[derive(Default)]
pub struct TlsConfigCache(Mutex<HashMap<String, Arc<ClientConfig>>>);

impl TlsConfigCache {
    /// Returns the TLS client configuration that trusts a CA bundle.
    pub fn of(&self, bundle: &str) -> Result<Arc<ClientConfig>, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(bundle) {
            return Ok(known.clone());
        }
        let tls = tls_config_for_bundle(bundle)?;
        if made.len() >= MOST {
            made.clear();
        }
        made.insert(bundle.to_owned(), tls.clone());
        Ok(tls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_read_once() {
        let trusts = TlsConfigCache::default();
        let (first, again) = (trusts.of("").unwrap(), trusts.of("").unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        assert!(trusts.of("no base64").is_err());
        assert_eq!(trusts.0.lock().unwrap().len(), 1);
    }
}
