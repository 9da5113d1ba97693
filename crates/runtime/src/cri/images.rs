//! Images in the runtime's store.

use std::time::Duration;

use super::{CALL, Cri, Error, types, within};

/// A pull that takes longer than this is stuck.
const PULL: Duration = Duration::from_secs(3600);

impl Cri {
    /// The image of that name or id, if it is there.
    pub async fn image(&self, image: &str) -> Result<Option<types::Image>, Error> {
        let request = types::ImageStatusRequest { image: Some(spec(image)), verbose: false };
        Ok(within("ImageStatus", CALL, async move { self.images().image_status(request).await }).await?.image)
    }

    /// Pulls an image, with credentials if there are any; returns the reference to run it by.
    pub async fn pull_image(
        &self,
        image: &str,
        auth: Option<types::AuthConfig>,
        sandbox: Option<types::PodSandboxConfig>,
    ) -> Result<String, Error> {
        let request = types::PullImageRequest { image: Some(spec(image)), auth, sandbox_config: sandbox };
        Ok(within("PullImage", PULL, async move { self.images().pull_image(request).await }).await?.image_ref)
    }

    /// All images.
    pub async fn list_images(&self) -> Result<Vec<types::Image>, Error> {
        let request = types::ListImagesRequest { filter: None };
        Ok(within("ListImages", CALL, async move { self.images().list_images(request).await }).await?.images)
    }

    /// Removes an image. Doing it twice is no error.
    pub async fn remove_image(&self, image: &str) -> Result<(), Error> {
        let request = types::RemoveImageRequest { image: Some(spec(image)) };
        within("RemoveImage", CALL, async move { self.images().remove_image(request).await }).await.map(drop)
    }
}

fn spec(image: &str) -> types::ImageSpec {
    types::ImageSpec { image: image.into(), user_specified_image: image.into(), ..Default::default() }
}
