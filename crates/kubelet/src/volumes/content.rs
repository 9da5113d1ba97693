//! Collects the files of `configMap`, `secret`, `downwardAPI` and `projected` volumes.

use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{
            DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, ServiceAccount,
            ServiceAccountTokenProjection, Volume, VolumeProjection,
        },
    },
    jiff::Timestamp,
};
use kube::api::PostParams;

use super::{
    VolumeError,
    atomic_writer::{VolumeFile, VolumeFiles},
};
use crate::{
    config_objects::{ConfigObjects, ObjectData},
    environment::pod_field,
    pod_spec::find_container,
    resources::{self, NodeResources},
};

const DEFAULT_MODE: i32 = 0o644;

/// Sources of volume content.
pub struct VolumeContent<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// ConfigMaps and Secrets of the pod's namespace.
    pub objects: &'a ConfigObjects<'a>,
    /// Client for token requests.
    pub client: &'a kube::Client,
    /// Resources that the node can allocate.
    pub allocatable: &'a NodeResources,
    /// Cached service account tokens.
    pub tokens: &'a super::TokenCache,
}

impl VolumeContent<'_> {
    /// Returns the files of a volume; `None` for other volume types.
    pub async fn collect_files(&self, volume: &Volume) -> Result<Option<VolumeFiles>, VolumeError> {
        let mut files = VolumeFiles::new();
        if let Some(source) = &volume.config_map {
            let data = self.objects.get_config_map(&source.name, source.optional).await?;
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            select_keys(&mut files, data, source.items.as_deref(), mode, source.optional)?;
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let data = self.objects.get_secret(name, source.optional).await?;
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            select_keys(&mut files, data, source.items.as_deref(), mode, source.optional)?;
        } else if let Some(source) = &volume.downward_api {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            self.collect_downward_api(&mut files, source.items.as_deref(), mode)?;
        } else if let Some(source) = &volume.projected {
            self.collect_projected(&mut files, &volume.name, source).await?;
        } else {
            return Ok(None);
        }
        Ok(Some(files))
    }

    async fn collect_projected(
        &self,
        files: &mut VolumeFiles,
        volume: &str,
        source: &ProjectedVolumeSource,
    ) -> Result<(), VolumeError> {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        for source in source.sources.iter().flatten() {
            self.collect_projection(files, volume, source, mode).await?;
        }
        Ok(())
    }

    async fn collect_projection(
        &self,
        files: &mut VolumeFiles,
        volume: &str,
        source: &VolumeProjection,
        mode: i32,
    ) -> Result<(), VolumeError> {
        if let Some(source) = &source.config_map {
            let data = self.objects.get_config_map(&source.name, source.optional).await?;
            select_keys(files, data, source.items.as_deref(), mode, source.optional)?;
        }
        if let Some(source) = &source.secret {
            let data = self.objects.get_secret(&source.name, source.optional).await?;
            select_keys(files, data, source.items.as_deref(), mode, source.optional)?;
        }
        if let Some(source) = &source.downward_api {
            self.collect_downward_api(files, source.items.as_deref(), mode)?;
        }
        if let Some(source) = &source.service_account_token {
            let data = self.service_account_token(volume, source).await?.into_bytes();
            files.insert(source.path.clone(), VolumeFile { data, mode: mode as u32 });
        }
        Ok(())
    }

    fn collect_downward_api(
        &self,
        files: &mut VolumeFiles,
        items: Option<&[DownwardAPIVolumeFile]>,
        mode: i32,
    ) -> Result<(), VolumeError> {
        for item in items.unwrap_or_default() {
            let unsupported = || VolumeError::Unsupported(format!("the downward API cannot show {:?}", item.path));
            let value = if let Some(reference) = &item.field_ref {
                pod_field(self.pod, &reference.field_path)
            } else if let Some(reference) = &item.resource_field_ref {
                let name = reference.container_name.as_deref().unwrap_or_default();
                let container = find_container(self.pod, name).ok_or_else(unsupported)?;
                let divisor = reference.divisor.as_ref();
                resources::resource_field_value(&container, &reference.resource, divisor, self.allocatable)
            } else {
                None
            };
            let data = value.ok_or_else(unsupported)?.into_bytes();
            files.insert(item.path.clone(), VolumeFile { data, mode: item.mode.unwrap_or(mode) as u32 });
        }
        Ok(())
    }

    /// Returns a service account token, renewed after 80 % of its lifetime.
    async fn service_account_token(
        &self,
        volume: &str,
        source: &ServiceAccountTokenProjection,
    ) -> Result<String, VolumeError> {
        let key = format!("{volume}/{}", source.path);
        let now = Timestamp::now();
        if let Some(token) = self.tokens.get(&key, now) {
            return Ok(token);
        }
        let metadata = &self.pod.metadata;
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let spec = TokenRequestSpec {
            audiences: source.audience.clone().map(|audience| vec![audience]),
            expiration_seconds: Some(source.expiration_seconds.unwrap_or(3600)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            }),
        };
        let request = TokenRequest { spec: Some(spec), ..Default::default() };
        let api: kube::Api<ServiceAccount> =
            kube::Api::namespaced(self.client.clone(), metadata.namespace.as_deref().unwrap_or_default());
        let response: TokenRequest =
            api.create_subresource("token", account, &PostParams::default(), &request)
                .await
                .map_err(|source| VolumeError::Token { account: account.into(), source: Box::new(source) })?;
        let status = response.status.unwrap_or_default();
        let expires = status.expiration_timestamp.map_or(now, |time| time.0);
        let life = expires.duration_since(now);
        let renew = now.checked_add(life * 4 / 5).unwrap_or(now);
        let token = status.token.unwrap_or_default();
        self.tokens.insert(key, token.clone(), renew);
        Ok(token)
    }
}

/// Adds all keys, or those selected by `items`.
fn select_keys(
    files: &mut VolumeFiles,
    data: ObjectData,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: Option<bool>,
) -> Result<(), VolumeError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        files.extend(data.into_iter().map(|(key, data)| (key, VolumeFile { data, mode: mode as u32 })));
        return Ok(());
    };
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                let file = VolumeFile { data: value.clone(), mode: item.mode.unwrap_or(mode) as u32 };
                files.insert(item.path.clone(), file);
            }
            None if optional == Some(true) => {}
            None => return Err(VolumeError::Unsupported(format!("references non-existent config key: {}", item.key))),
        }
    }
    Ok(())
}
