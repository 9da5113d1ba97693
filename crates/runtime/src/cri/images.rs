//! Images in the runtime's store.

use std::time::Duration;

use super::{CALL_TIMEOUT, CriClient, CriError, call_with_deadline, types};

/// Deadline of a pull.
const PULL_TIMEOUT: Duration = Duration::from_secs(3600);

impl CriClient {
    /// Returns an image by name or id.
    pub async fn image_status(&self, image: &str) -> Result<Option<types::Image>, CriError> {
        let request = types::ImageStatusRequest { image: Some(image_spec(image)), verbose: false };
        Ok(call_with_deadline(
            "ImageStatus",
            CALL_TIMEOUT,
            async move { self.image_service().image_status(request).await },
        )
        .await?
        .image)
    }

    /// Pulls an image with optional credentials; returns its reference.
    pub async fn pull_image(
        &self,
        image: &str,
        auth: Option<types::AuthConfig>,
        sandbox: Option<types::PodSandboxConfig>,
    ) -> Result<String, CriError> {
        let request = types::PullImageRequest { image: Some(image_spec(image)), auth, sandbox_config: sandbox };
        Ok(call_with_deadline("PullImage", PULL_TIMEOUT, async move { self.image_service().pull_image(request).await })
            .await?
            .image_ref)
    }

    /// Returns the file systems of images and of containers' layers.
    pub async fn image_fs_info(&self) -> Result<types::ImageFsInfoResponse, CriError> {
        let request = types::ImageFsInfoRequest {};
        let call = async move { self.image_service().image_fs_info(request).await };
        call_with_deadline("ImageFsInfo", CALL_TIMEOUT, call).await
    }

    /// Lists all images.
    pub async fn list_images(&self) -> Result<Vec<types::Image>, CriError> {
        let request = types::ListImagesRequest { filter: None };
        Ok(call_with_deadline(
            "ListImages",
            CALL_TIMEOUT,
            async move { self.image_service().list_images(request).await },
        )
        .await?
        .images)
    }

    /// Removes an image. Idempotent.
    pub async fn remove_image(&self, image: &str) -> Result<(), CriError> {
        let request = types::RemoveImageRequest { image: Some(image_spec(image)) };
        call_with_deadline("RemoveImage", CALL_TIMEOUT, async move { self.image_service().remove_image(request).await })
            .await
            .map(drop)
    }
}

fn image_spec(image: &str) -> types::ImageSpec {
    types::ImageSpec { image: image.into(), user_specified_image: image.into(), ..Default::default() }
}
