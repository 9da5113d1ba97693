//! Images from and to archives, and names of images, for which CRI has no calls. Served on CRI's socket below [`IMAGE_PATH`], for
//! `image_client`.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::json;
use tokio::sync::mpsc;
use tonic::body::Body;
use transport::query::Query;

use super::RuntimeServer;
use crate::image::{ImageError, ImageReference, load_archive, save_archive};

/// The path below which images are loaded, saved and tagged.
pub const IMAGE_PATH: &str = "/ferry.images.v1/";
/// Parts of an archive that wait between connection and disk.
const WAITING_PARTS: usize = 8;

/// Answers a request below [`IMAGE_PATH`].
pub async fn serve_image_request(server: Arc<RuntimeServer>, request: Request<Incoming>) -> Response<Body> {
    let name = request.uri().path().strip_prefix(IMAGE_PATH).unwrap_or_default().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let names: Vec<String> = query.get_all("name").map(str::to_owned).collect();
    match name.as_str() {
        "load" => answer(load(server, names, request.into_body()).await),
        "save" => save(server, names).await,
        "tag" => answer(tag(&server, query.get("image"), &names)),
        _ => respond(StatusCode::NOT_FOUND, format!("unknown method {name:?}")),
    }
}

fn respond(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::from(text)));
    *response.status_mut() = status;
    response
}

fn answer(outcome: Result<String, ImageError>) -> Response<Body> {
    match outcome {
        Ok(text) => respond(StatusCode::OK, text),
        Err(error @ ImageError::NotFound(_)) => respond(StatusCode::NOT_FOUND, error.to_string()),
        Err(error) => respond(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    }
}

async fn load(server: Arc<RuntimeServer>, names: Vec<String>, mut body: Incoming) -> Result<String, ImageError> {
    let name = names.first().map(|name| ImageReference::parse(name)).transpose()?;
    let (parts, received) = mpsc::channel::<io::Result<Bytes>>(WAITING_PARTS);
    let images = server.images.clone();
    let loading = tokio::task::spawn_blocking(move || {
        load_archive(&images, PartReader { parts: received, part: Bytes::new() }, name.as_ref())
    });
    while let Some(frame) = body.frame().await {
        let part = frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(io::Error::other);
        if parts.send(part).await.is_err() {
            break;
        }
    }
    drop(parts);
    let loaded = loading.await.map_err(|error| ImageError::Invalid(error.to_string()))??;
    let described = loaded.iter().map(|image| json!({ "id": image.id, "tags": image.tags }));
    Ok(described.collect::<serde_json::Value>().to_string())
}

async fn save(server: Arc<RuntimeServer>, names: Vec<String>) -> Response<Body> {
    if let Some(missing) = names.iter().find(|name| server.images.find(name).is_none()) {
        return answer(Err(ImageError::NotFound(missing.clone())));
    }
    let (parts, received) = mpsc::channel::<io::Result<Bytes>>(WAITING_PARTS);
    tokio::task::spawn_blocking(move || {
        let writer = io::BufWriter::with_capacity(256 << 10, PartWriter { parts: parts.clone() });
        if let Err(error) = save_archive(&server.images, &names, writer) {
            // The client sees a body that is cut off; without a client there is no need to tell.
            let _ = parts.blocking_send(Err(io::Error::other(error)));
        }
    });
    let frames = futures::stream::unfold(received, async |mut received| {
        let part = received.recv().await?;
        Some((part.map(Frame::data), received))
    });
    Response::new(Body::new(StreamBody::new(Box::pin(frames))))
}

fn tag(server: &RuntimeServer, image: Option<&str>, names: &[String]) -> Result<String, ImageError> {
    let (Some(image), [name]) = (image, names) else {
        return Err(ImageError::Invalid("an image and a name are needed".into()));
    };
    server.images.tag(image, &ImageReference::parse(name)?)?;
    Ok(String::new())
}

/// Reads parts that another task receives.
struct PartReader {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    part: Bytes,
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.part.len());
        buffer[..length].copy_from_slice(&self.part.split_to(length));
        Ok(length)
    }
}

/// Writes parts that another task sends.
struct PartWriter {
    parts: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for PartWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let part = Bytes::copy_from_slice(buffer);
        self.parts.blocking_send(Ok(part)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
