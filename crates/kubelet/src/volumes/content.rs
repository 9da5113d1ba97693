//! The files of `configMap`, `secret`, `downwardAPI` and `projected` volumes, gathered from the API.

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
    Error,
    atomic::{File, Files},
};
use crate::{
    env::pod_field,
    objects::{Data, Objects},
    resources,
};

const DEFAULT_MODE: i32 = 0o644;

/// Where the content of a pod's volumes comes from.
pub struct Gather<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// ConfigMaps and Secrets of its namespace.
    pub objects: &'a Objects,
    /// For tokens.
    pub client: &'a kube::Client,
    /// Thousandths of a processor and bytes of memory that the node has.
    pub capacity: [i64; 2],
    /// The tokens that are still good.
    pub tokens: &'a super::Tokens,
}

impl Gather<'_> {
    /// The files of a volume, or `None` for a volume of another kind.
    pub async fn files(&self, volume: &Volume) -> Result<Option<Files>, Error> {
        let mut files = Files::new();
        if let Some(source) = &volume.config_map {
            let data = self.objects.config_map(&source.name, source.optional).await?;
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            select(&mut files, data, source.items.as_deref(), mode, source.optional)?;
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let data = self.objects.secret(name, source.optional).await?;
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            select(&mut files, data, source.items.as_deref(), mode, source.optional)?;
        } else if let Some(source) = &volume.downward_api {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            self.downward(&mut files, source.items.as_deref(), mode)?;
        } else if let Some(source) = &volume.projected {
            self.projected(&mut files, &volume.name, source).await?;
        } else {
            return Ok(None);
        }
        Ok(Some(files))
    }

    async fn projected(&self, files: &mut Files, volume: &str, source: &ProjectedVolumeSource) -> Result<(), Error> {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        for source in source.sources.iter().flatten() {
            self.projection(files, volume, source, mode).await?;
        }
        Ok(())
    }

    async fn projection(
        &self,
        files: &mut Files,
        volume: &str,
        source: &VolumeProjection,
        mode: i32,
    ) -> Result<(), Error> {
        if let Some(source) = &source.config_map {
            let data = self.objects.config_map(&source.name, source.optional).await?;
            select(files, data, source.items.as_deref(), mode, source.optional)?;
        }
        if let Some(source) = &source.secret {
            let data = self.objects.secret(&source.name, source.optional).await?;
            select(files, data, source.items.as_deref(), mode, source.optional)?;
        }
        if let Some(source) = &source.downward_api {
            self.downward(files, source.items.as_deref(), mode)?;
        }
        if let Some(source) = &source.service_account_token {
            let data = self.token(volume, source).await?.into_bytes();
            files.insert(source.path.clone(), File { data, mode: mode as u32 });
        }
        Ok(())
    }

    fn downward(&self, files: &mut Files, items: Option<&[DownwardAPIVolumeFile]>, mode: i32) -> Result<(), Error> {
        for item in items.unwrap_or_default() {
            let unsupported = || Error::Unsupported(format!("the downward API cannot show {:?}", item.path));
            let value = if let Some(reference) = &item.field_ref {
                pod_field(self.pod, &reference.field_path)
            } else if let Some(reference) = &item.resource_field_ref {
                let name = reference.container_name.as_deref().unwrap_or_default();
                let mut containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
                let container = containers.find(|container| container.name == name).ok_or_else(unsupported)?;
                resources::field(container, &reference.resource, reference.divisor.as_ref(), self.capacity)
            } else {
                None
            };
            let data = value.ok_or_else(unsupported)?.into_bytes();
            files.insert(item.path.clone(), File { data, mode: item.mode.unwrap_or(mode) as u32 });
        }
        Ok(())
    }

    /// A token for the pod's service account, renewed after four fifths of its life.
    async fn token(&self, volume: &str, source: &ServiceAccountTokenProjection) -> Result<String, Error> {
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
        let answer: TokenRequest = api
            .create_subresource("token", account, &PostParams::default(), &request)
            .await
            .map_err(|source| Error::Token { account: account.into(), source: Box::new(source) })?;
        let status = answer.status.unwrap_or_default();
        let expires = status.expiration_timestamp.map_or(now, |time| time.0);
        let life = expires.duration_since(now);
        let renew = now.checked_add(life * 4 / 5).unwrap_or(now);
        let token = status.token.unwrap_or_default();
        self.tokens.put(key, token.clone(), renew);
        Ok(token)
    }
}

/// All keys as files, or those that `items` name.
fn select(
    files: &mut Files,
    data: Data,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: Option<bool>,
) -> Result<(), Error> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        files.extend(data.into_iter().map(|(key, data)| (key, File { data, mode: mode as u32 })));
        return Ok(());
    };
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                let file = File { data: value.clone(), mode: item.mode.unwrap_or(mode) as u32 };
                files.insert(item.path.clone(), file);
            }
            None if optional == Some(true) => {}
            None => return Err(Error::Unsupported(format!("references non-existent config key: {}", item.key))),
        }
    }
    Ok(())
}
