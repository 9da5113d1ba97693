//! `/statusz` and `/flagz`: debug pages.

use apiserver_core::{Body, body::text_response, clock};
use http::Response;

use crate::Server;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
and is for debugging purposes only.";

/// Start time, uptime and version.
pub fn statusz_response(server: &Server) -> Response<Body> {
    let started = server.shared.started;
    let seconds = clock::now().duration_since(started).as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    text_response(format!(
        "\napiserver statusz\n{WARNING}\n\nStarted= {}\nUp= {hours} hr {minutes:02} min {rest:02} sec\n\
         Ferry version= {}\nBinary version= 1.36\nEmulation version= 1.36\n\
         Paths= /flagz /healthz /livez /metrics /readyz /statusz /version\n",
        started.strftime("%a %b %d %H:%M:%S UTC %Y"),
        env!("CARGO_PKG_VERSION"),
    ))
}

/// The flags with their effective values.
pub fn flagz_response(server: &Server) -> Response<Body> {
    let lines: String = server.shared.options.flags.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    text_response(format!("\napiserver flagz\n{WARNING}\n{lines}"))
}
