//! The HTTP client of commands.
//!
//! [`RestClient::send`] sends one request and waits for the whole answer, [`RestClient::open_stream`] hands out the body
//! as it comes. Answers with an error become [`CommandError::Status`];
//! warnings of the server are printed once each.

mod connection;
mod request;
mod request_log;
mod response;
mod retry;
mod tls;
mod wire_error;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    future::Future,
    sync::LazyLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

pub use crate::klog::{LogLevel, log_line};
pub use connection::{ClientConnection, Dialer};
pub use request::{RestRequest, encode_query};
pub use response::{BodyStream, RestResponse};

use crate::{
    errors::{CommandError, CommandResult, ConnectionError},
    kubeconfig::{ClientSettings, load_exec_credentials},
    output::write_err,
};

/// Larger answers are refused: far above the largest list of a cluster, below the memory of a machine.
const ANSWER_LIMIT: usize = 2 << 30;

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
    /// The largest answer that is read as a whole.
    answer_limit: usize,
}

impl RestClient {
    /// A client with the credentials of the settings; `command` is the name of the command for the server's logs.
    pub fn new(mut settings: ClientSettings, command: &str, level: LogLevel) -> CommandResult<Self> {
        load_exec_credentials(&mut settings)?;
        let dialer = Dialer::new(&settings)?;
        let headers = RefCell::new(request::client_headers(&settings, command));
        let (idle, warnings) = (RefCell::default(), RefCell::default());
        Ok(RestClient { settings, dialer, idle, headers, warnings, level, answer_limit: ANSWER_LIMIT })
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
                let response = self.exchange(request, true).await?;
                self.read_answer(response).await
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
        (settings.user.token, settings.user.certificate, settings.user.key) = Default::default();
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

    /// Sends a request and returns the JSON object of its answer.
    pub fn send_json(&self, request: RestRequest) -> CommandResult<api::Value> {
        let answer = self.send(request)?.json()?;
        if answer.is_object() {
            return Ok(answer);
        }
        if answer.is_null() {
            return Err(CommandError::new("Object 'Kind' is missing in 'null'"));
        }
        let found = api::json::value_type_name(&answer);
        Err(CommandError::new(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )))
    }

    /// Sends a request whose answer is read bit by bit.
    pub fn open_stream(&self, request: RestRequest) -> CommandResult<BodyStream> {
        block_on(self.open_stream_async(request))
    }

    /// Sends a request whose answer is read bit by bit, within a running task.
    pub async fn open_stream_async(&self, request: RestRequest) -> CommandResult<BodyStream> {
        let response = self.exchange(&request, request.is_watch()).await?;
        if !response.status().is_success() {
            self.read_answer(response).await?.check_status(&request)?;
            return Err(self.broken(&request, "unexpected status"));
        }
        let body = response.into_body();
        let deadline = u64::try_from(self.settings.timeout).ok().filter(|nanos| *nanos > 0);
        Ok(BodyStream::new(body, deadline.map(|nanos| Instant::now() + Duration::from_nanos(nanos)), self.level))
    }

    /// Sends a request that asks for another protocol, on a connection of its own.
    pub async fn send_upgrade(&self, request: &RestRequest) -> CommandResult<http::Response<Incoming>> {
        let dialed = self.dialer.connect(true).await.map_err(|cause| self.broken(request, &cause.to_string()))?;
        let mut connection = dialed;
        self.deliver(&mut connection, request).await.map_err(|failure| self.send_error(request, failure))
    }

    /// Reads a whole answer.
    async fn read_answer(&self, response: http::Response<Incoming>) -> CommandResult<RestResponse> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, self.answer_limit).collect().await.map_err(|error| {
            let cause = match error.downcast_ref::<hyper::Error>() {
                Some(error) => wire_error::body_error_text(error),
                None => format!("the answer is longer than {} MiB", self.answer_limit >> 20),
            };
            let line = format!("\"Unexpected error when reading response body\" err={}", api::json::go_quote(&cause));
            log_line('E', "request.go:1196", &line);
            CommandError::new(format!(
                "unexpected error when reading response body. Please retry. Original error: {cause}"
            ))
        })?;
        Ok(RestResponse { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    /// Sends a request of another program with the client's credentials; its own headers win, warnings are left to it.
    pub async fn forward(&self, request: &RestRequest) -> CommandResult<http::Response<Incoming>> {
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect(request).await?,
        };
        let message = self.build_message(request, &self.url_of(request))?;
        let response = connection.send(message).await;
        self.idle.borrow_mut().push(connection);
        response.map_err(|error| self.broken(request, &wire_error::exchange_error_text(&error)))
    }

    /// A connection that is ready for a request.
    fn take_idle(&self) -> Option<ClientConnection> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|connection| !connection.is_closed());
        idle.iter().position(ClientConnection::is_ready).map(|at| idle.remove(at))
    }

    /// Sends a request, again where upstream's client does: when the server asks for a pause, and, for `lost_again`, when
    /// a reading request lost its connection.
    async fn exchange(&self, request: &RestRequest, lost_again: bool) -> CommandResult<http::Response<Incoming>> {
        let mut retries = 0;
        loop {
            let idle = self.take_idle();
            let reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect(request).await?,
            };
            let outcome = self.deliver(&mut connection, request).await;
            if let Err(SendFailure::Exchange(error)) = &outcome
                && reused
                && retry::is_stale_connection(error, request)
            {
                continue;
            }
            self.idle.borrow_mut().push(connection);
            let pause = match &outcome {
                Ok(response) => retry::requested_pause(response),
                Err(SendFailure::Exchange(error)) if lost_again && request.method == http::Method::GET => {
                    retry::pause_after_error(error)
                }
                Err(_) => None,
            };
            match pause {
                Some(pause) if retries < retry::MAX_RETRIES => {
                    retries += 1;
                    drop(outcome);
                    tokio::time::sleep(pause).await;
                }
                _ => return outcome.map_err(|failure| self.send_error(request, failure)),
            }
        }
    }

    async fn connect(&self, request: &RestRequest) -> CommandResult<ClientConnection> {
        self.dialer.connect(false).await.map_err(|cause| self.broken(request, &cause.to_string()))
    }

    async fn deliver(
        &self,
        connection: &mut ClientConnection,
        request: &RestRequest,
    ) -> Result<http::Response<Incoming>, SendFailure> {
        let url = self.url_of(request);
        let message = self.build_message(request, &url).map_err(SendFailure::Request)?;
        request_log::log_request(self.level, request, &url, message.headers());
        if let Some(body) = &request.body {
            request_log::log_body(self.level, "Request Body", body);
        }
        let start = Instant::now();
        let response = connection.send(message).await.map_err(SendFailure::Exchange);
        request_log::log_response(self.level, request, &url, response.as_ref().ok(), start.elapsed());
        let response = response?;
        self.print_warnings(&response);
        Ok(response)
    }

    fn send_error(&self, request: &RestRequest, failure: SendFailure) -> CommandError {
        match failure {
            SendFailure::Request(error) => error,
            SendFailure::Exchange(error) => self.broken(request, &wire_error::exchange_error_text(&error)),
        }
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

/// Why a request got no answer on a connection.
enum SendFailure {
    /// It cannot be sent.
    Request(CommandError),
    /// The connection failed.
    Exchange(hyper::Error),
}

/// Go's text for a request that took too long.
const TIMED_OUT: &str = "net/http: request canceled (Client.Timeout exceeded while awaiting headers)";

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
    };

    use super::*;

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

    /// A client of a server that gives one answer per connection, then the last one again.
    fn client_of(answers: &[&str]) -> RestClient {
        let answers: Vec<String> = answers.iter().map(ToString::to_string).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let last = answers.last().into_iter().cycle();
            for (mut stream, answer) in listener.incoming().flatten().zip(answers.iter().chain(last)) {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.find(|line| line.as_ref().is_ok_and(String::is_empty));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        RestClient::new(ClientSettings { host, ..Default::default() }, "", LogLevel(0)).unwrap()
    }

    #[test]
    fn request_is_sent_again_after_the_pause_that_the_server_asks_for() {
        let busy = "HTTP/1.1 429 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
        let client = client_of(&[busy, busy, OK]);
        assert_eq!(client.send(RestRequest::new(http::Method::POST, "/")).unwrap().body, "{}");
        let client = client_of(&[busy]);
        assert_eq!(client.send(RestRequest::get("/")).unwrap_err().reason(), "TooManyRequests");
    }

    #[test]
    fn only_reading_requests_are_sent_again_when_the_connection_is_lost() {
        assert!(client_of(&["", OK]).send(RestRequest::get("/")).is_ok());
        let error = client_of(&["", OK]).send(RestRequest::new(http::Method::POST, "/")).unwrap_err();
        assert_eq!(error.standard_message(), "Unable to connect to the server: EOF");
    }

    #[test]
    fn cut_answer_is_an_error() {
        let client = client_of(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"]);
        let error = client.send(RestRequest::get("/")).unwrap_err();
        let message = "unexpected error when reading response body. Please retry. Original error: unexpected EOF";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn answer_above_the_limit_is_an_error() {
        let mut client = client_of(&[OK]);
        client.answer_limit = 1;
        assert!(client.send(RestRequest::get("/")).unwrap_err().to_string().ends_with("longer than 0 MiB"));
    }

    #[test]
    fn event_without_an_end_is_an_error() {
        let event = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(17 << 20));
        let mut stream = client_of(&[&event]).open_stream(RestRequest::get("/")).unwrap();
        assert!(stream.next_event(None).unwrap_err().to_string().ends_with("longer than maximum allowed size"));
    }
}
