//! A read-only image registry on loopback, for images that were loaded by hand. (contract only)
//!
//! The runtime asks it before the registry that an image name points to, so that `imagePullPolicy: Always` works for a
//! loaded image with no registry in reach, and everything else is pulled as usual.

use std::path::PathBuf;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves the OCI image layout in `dir` (which need not exist yet, and may change) until `shutdown`.
///
/// `index.json` names images by the annotation `org.opencontainers.image.ref.name`, with the whole reference, for example
/// `docker.io/library/nginx:latest`; the runtime tells the registry's host in the query `ns=docker.io`.
pub async fn serve(_listener: TcpListener, _dir: PathBuf, shutdown: CancellationToken) {
    shutdown.cancelled().await;
}
