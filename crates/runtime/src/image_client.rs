//! The client of what the runtime in this program can do with images beyond CRI: load, save, tag.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Deserialize;
use tokio::{net::UnixStream, sync::mpsc};

use crate::server::IMAGE_PATH;

/// Bytes of an archive that are sent at once.
const PART: usize = 256 << 10;
/// The longest answer besides archives.
const LONGEST_ANSWER: usize = 1 << 20;

/// Loading, saving or tagging failed.
#[derive(Debug, thiserror::Error)]
pub enum ImageClientError {
    /// The runtime cannot be reached, or a file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The connection failed.
    #[error("the container runtime: {0}")]
    Connection(#[from] hyper::Error),
    /// The runtime refuses.
    #[error("{0}")]
    Refused(String),
    /// The answer is not understood.
    #[error("the container runtime sent an unexpected answer: {0}")]
    Unexpected(String),
}

/// An image that was loaded.
#[derive(Debug, Deserialize)]
pub struct LoadedImage {
    /// The id.
    pub id: String,
    /// Names with tags.
    pub tags: Vec<String>,
}

type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// A client of the runtime that listens at a socket.
pub struct ImageClient {
    socket: PathBuf,
}

impl ImageClient {
    /// The client of a socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Loads all images of an archive; those without a name get `name`.
    pub async fn load(
        &self,
        mut archive: impl Read + Send + 'static,
        name: Option<&str>,
    ) -> Result<Vec<LoadedImage>, ImageClientError> {
        let (parts, received) = mpsc::channel::<io::Result<Bytes>>(4);
        tokio::task::spawn_blocking(move || {
            loop {
                let mut part = vec![0; PART];
                let read = match archive.read(&mut part) {
                    Ok(0) => return,
                    Ok(length) => Ok(part[..length].to_vec().into()),
                    Err(error) => Err(error),
                };
                // The runtime may refuse before the end.
                if read.is_err() | parts.blocking_send(read).is_err() {
                    return;
                }
            }
        });
        let frames = futures::stream::unfold(received, async |mut received| {
            let part = received.recv().await?;
            Some((part.map(Frame::data), received))
        });
        let names: Vec<(&str, &str)> = name.map(|name| ("name", name)).into_iter().collect();
        let response = self.send("load", &names, StreamBody::new(Box::pin(frames)).boxed_unsync()).await?;
        let text = read_text(response).await?;
        serde_json::from_str(&text).map_err(|error| ImageClientError::Unexpected(error.to_string()))
    }

    /// Writes images as an archive.
    pub async fn save(&self, names: &[String], mut output: impl Write) -> Result<(), ImageClientError> {
        let names: Vec<(&str, &str)> = names.iter().map(|name| ("name", name.as_str())).collect();
        let mut body = self.send("save", &names, empty()).await?.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                output.write_all(&data)?;
            }
        }
        Ok(output.flush()?)
    }

    /// Gives an image one more name.
    pub async fn tag(&self, image: &str, name: &str) -> Result<(), ImageClientError> {
        self.send("tag", &[("image", image), ("name", name)], empty()).await.map(drop)
    }

    async fn send(
        &self,
        method: &str,
        parameters: &[(&str, &str)],
        body: RequestBody,
    ) -> Result<Response<Incoming>, ImageClientError> {
        let stream = UnixStream::connect(&self.socket).await?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await?;
        // It ends with the last request; its error is that of the request.
        tokio::spawn(connection);
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let request = Request::post(format!("http://runtime{IMAGE_PATH}{method}?{query}")).body(body);
        let request = request.map_err(|error| ImageClientError::Unexpected(error.to_string()))?;
        let response = sender.send_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(ImageClientError::Refused(read_text(response).await?))
    }
}

fn empty() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

async fn read_text(response: Response<Incoming>) -> Result<String, ImageClientError> {
    let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
    let body = body.map_err(|error| ImageClientError::Unexpected(error.to_string()))?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}
