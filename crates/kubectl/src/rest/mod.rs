//! The HTTP client of commands.
//!
//! [`RestClient::send`] sends one request and waits for the whole answer, [`RestClient::open_stream`] hands out the body
//! as it comes. Answers with an error become [`CommandError::Status`];
//! warnings of the server are printed once each.

mod connection;
mod request;
mod request_log;
mod response;
mod tls;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    future::Future,
    sync::LazyLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

pub use connection::{ClientConnection, Dialer};
pub use request::{RestRequest, encode_query};
pub use request_log::{LogLevel, log_line};
pub use response::{BodyStream, RestResponse};

use crate::{
    errors::{CommandError, CommandResult, ConnectionError},
    kubeconfig::{ClientSettings, load_exec_credentials},
    output::write_err,
};

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap_or_else(|error| {
        write_err(&format!("error: cannot start: {error}\n"));
        std::process::exit(1)
    })
});

/// Waits for a future.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// A client of one API server.
#[derive(Debug)]
pub struct RestClient {
    /// The settings of the connection.
    pub settings: ClientSettings,
    dialer: Dialer,
    idle: RefCell<Vec<ClientConnection>>,
    headers: RefCell<Vec<(String, String)>>,
    warnings: RefCell<BTreeSet<String>>,
    level: LogLevel,
}

impl RestClient {
    /// A client with the credentials of the settings; `command` is the name of the command for the server's logs.
    pub fn new(mut settings: ClientSettings, command: &str, level: LogLevel) -> CommandResult<Self> {
        load_exec_credentials(&mut settings)?;
        let dialer = Dialer::new(&settings)?;
        let headers = RefCell::new(request::client_headers(&settings, command));
        let (idle, warnings) = (RefCell::default(), RefCell::default());
        Ok(RestClient { settings, dialer, idle, headers, warnings, level })
    }

    /// The number of distinct warnings that the server sent.
    pub fn warning_count(&self) -> usize {
        self.warnings.borrow().len()
    }

    /// The URL of a request.
    pub fn url_of(&self, request: &RestRequest) -> String {
        format!("{}{}", self.settings.host, request.target(self.request_timeout(request)))
    }

    /// The `timeout` parameter: that of the request, or `--request-timeout`.
    fn request_timeout(&self, request: &RestRequest) -> i64 {
        if self.settings.timeout != 0 { self.settings.timeout } else { request.default_timeout }
    }

    /// Sends a request and reads the whole answer; an error status is an error.
    pub fn send(&self, request: RestRequest) -> CommandResult<RestResponse> {
        let response = self.send_any(&request)?;
        response.check_status(&request)?;
        Ok(response)
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub fn send_any(&self, request: &RestRequest) -> CommandResult<RestResponse> {
        let limit = self.request_timeout(request);
        block_on(async {
            let exchange = async {
                let (parts, body) = self.exchange(request).await?.into_parts();
                let bytes = body.collect().await.map_err(|error| self.broken(request, &error.to_string()))?.to_bytes();
                Ok(RestResponse { status: parts.status, headers: parts.headers, body: bytes })
            };
            let response = match self.with_deadline(limit, exchange).await {
                Some(result) => result?,
                None => return Err(self.broken(request, TIMED_OUT)),
            };
            request_log::log_body(self.level, "Response Body", &response.body);
            if response.status == http::StatusCode::UNAUTHORIZED {
                self.refresh_credentials();
            }
            Ok(response)
        })
    }

    /// Asks the exec plug-in for another token, which the next requests use; the refused one stays refused.
    fn refresh_credentials(&self) {
        let mut settings = self.settings.clone();
        if settings.user.exec.is_none() || load_exec_credentials(&mut settings).is_err() {
            return;
        }
        let mut headers = self.headers.borrow_mut();
        for (_, value) in headers.iter_mut().filter(|(name, _)| name == "Authorization") {
            *value = format!("Bearer {}", settings.user.token);
        }
    }

    async fn with_deadline<T>(&self, limit: i64, work: impl Future<Output = T>) -> Option<T> {
        match u64::try_from(limit) {
            Ok(nanos) if nanos > 0 => tokio::time::timeout(Duration::from_nanos(nanos), work).await.ok(),
            _ => Some(work.await),
        }
    }

    /// Sends a request and returns its answer as JSON.
    pub fn send_json(&self, request: RestRequest) -> CommandResult<api::Value> {
        let response = self.send(request)?;
        response.json()
    }

    /// Sends a request whose answer is read bit by bit.
    pub fn open_stream(&self, request: RestRequest) -> CommandResult<BodyStream> {
        block_on(self.open_stream_async(request))
    }

    /// Sends a request whose answer is read bit by bit, within a running task.
    pub async fn open_stream_async(&self, request: RestRequest) -> CommandResult<BodyStream> {
        let response = self.exchange(&request).await?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            let bytes = body.collect().await.map_err(|error| self.broken(&request, &error.to_string()))?.to_bytes();
            let answer = RestResponse { status: parts.status, headers: parts.headers, body: bytes };
            answer.check_status(&request)?;
            return Err(self.broken(&request, "unexpected status"));
        }
        let deadline = u64::try_from(self.settings.timeout).ok().filter(|nanos| *nanos > 0);
        Ok(BodyStream::new(body, deadline.map(|nanos| Instant::now() + Duration::from_nanos(nanos))))
    }

    /// Sends a request that asks for another protocol, on a connection of its own.
    pub async fn send_upgrade(&self, request: &RestRequest) -> CommandResult<http::Response<Incoming>> {
        let dialed = self.dialer.connect(true).await.map_err(|cause| self.broken(request, &cause.to_string()))?;
        let mut connection = dialed;
        self.deliver(&mut connection, request).await
    }

    /// Sends a request of another program with the client's credentials; its own headers win, warnings are left to it.
    pub async fn forward(&self, request: &RestRequest) -> CommandResult<http::Response<Incoming>> {
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect(request).await?,
        };
        let message = self.build_message(request, &self.url_of(request))?;
        let response = connection.send(message).await.map_err(|error| self.broken(request, &error.to_string()));
        self.idle.borrow_mut().push(connection);
        response
    }

    /// A connection that is ready for a request.
    fn take_idle(&self) -> Option<ClientConnection> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|connection| !connection.is_closed());
        idle.iter().position(ClientConnection::is_ready).map(|at| idle.remove(at))
    }

    async fn exchange(&self, request: &RestRequest) -> CommandResult<http::Response<Incoming>> {
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect(request).await?,
        };
        let response = self.deliver(&mut connection, request).await;
        self.idle.borrow_mut().push(connection);
        response
    }

    async fn connect(&self, request: &RestRequest) -> CommandResult<ClientConnection> {
        self.dialer.connect(false).await.map_err(|cause| self.broken(request, &cause.to_string()))
    }

    async fn deliver(
        &self,
        connection: &mut ClientConnection,
        request: &RestRequest,
    ) -> CommandResult<http::Response<Incoming>> {
        let url = self.url_of(request);
        let message = self.build_message(request, &url)?;
        request_log::log_request(self.level, request, &url, message.headers());
        if let Some(body) = &request.body {
            request_log::log_body(self.level, "Request Body", body);
        }
        let start = Instant::now();
        let response = connection.send(message).await.map_err(|error| self.broken(request, &error.to_string()));
        request_log::log_response(self.level, request, &url, response.as_ref().ok(), start.elapsed());
        let response = response?;
        self.print_warnings(&response);
        Ok(response)
    }

    fn build_message(
        &self,
        request: &RestRequest,
        url: &str,
    ) -> CommandResult<http::Request<http_body_util::Full<Bytes>>> {
        let mut message = http::Request::builder().method(request.method.clone()).uri(url);
        let headers = self.headers.borrow();
        let own = headers
            .iter()
            .filter(|(name, _)| !request.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        for (name, value) in own.chain(&request.headers) {
            message = message.header(name.as_str(), value.as_str());
        }
        let body = request.body.clone().unwrap_or_default();
        message
            .body(http_body_util::Full::new(body))
            .map_err(|error| CommandError::new(format!("invalid request {url}: {error}")))
    }

    /// The error of a request that got no answer.
    fn broken(&self, request: &RestRequest, cause: &str) -> CommandError {
        let method = request.method.as_str();
        let operation = format!("{}{}", &method[..1], method[1..].to_lowercase());
        CommandError::Connection(Box::new(ConnectionError {
            operation,
            url: self.url_of(request),
            cause: cause.into(),
        }))
    }

    fn print_warnings(&self, response: &http::Response<Incoming>) {
        for value in response.headers().get_all("warning") {
            let Some(text) = value.to_str().ok().and_then(response::parse_warning) else { continue };
            if self.warnings.borrow_mut().insert(text.clone()) {
                write_err(&format!("Warning: {text}\n"));
            }
        }
    }
}

/// Go's text for a request that took too long.
const TIMED_OUT: &str = "net/http: request canceled (Client.Timeout exceeded while awaiting headers)";
