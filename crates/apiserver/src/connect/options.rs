//! Query options of connect requests, parsed as upstream does.

use api::{
    Value,
    status::Status,
    validate::{FieldError, FieldErrorType},
};
use apiserver_core::query::{Query, encode_query};
use jiff::Timestamp;
use serde_json::json;

/// Options of a log request.
#[derive(Debug, Default, PartialEq)]
pub struct LogOptions {
    /// Do not verify the kubelet's certificate.
    pub insecure: bool,
    /// The query for the kubelet.
    pub query: String,
}

impl LogOptions {
    /// Reads and checks the query of a request for the log of `pod`.
    pub fn from_query(query: &Query, pod: &str) -> Result<Self, Status> {
        let number = |name: &str| query.get(name).map(parse_integer).transpose();
        let (tail, limit) = (number("tailLines")?, number("limitBytes")?);
        let since = number("sinceSeconds")?;
        let time = query.get("sinceTime").map(parse_timestamp).transpose()?;
        let mut errors = Vec::new();
        check_minimum(&mut errors, "tailLines", tail, 0, "must be greater than or equal to 0");
        check_minimum(&mut errors, "limitBytes", limit, 1, "must be greater than 0");
        if since.is_some() && time.is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::new("[]", FieldErrorType::Forbidden, why));
        } else {
            check_minimum(&mut errors, "sinceSeconds", since, 1, "must be greater than 0");
        }
        if query.get("stream").is_some() {
            errors.push(FieldError::forbidden("stream", "may not be specified"));
        }
        if !errors.is_empty() {
            return Err(Status::invalid_kind("", "PodLogOptions", pod, &errors));
        }
        let flag = |name: &'static str| query.is_set(name).then(|| (name, "true".to_owned()));
        let value = |name: &'static str, value: Option<i64>| value.map(|value| (name, value.to_string()));
        let pairs = [
            flag("follow"),
            value("limitBytes", limit),
            flag("previous"),
            value("sinceSeconds", since),
            time.map(|time| ("sinceTime", api::time::format_seconds(time))),
            value("tailLines", tail),
            flag("timestamps"),
        ];
        Ok(Self {
            insecure: query.is_set("insecureSkipTLSVerifyBackend"),
            query: encode_query(pairs.into_iter().flatten()),
        })
    }
}

/// The options object that admission sees.
pub fn options_object(query: &Query, subresource: &str) -> Value {
    let mut options = json!({});
    match subresource.split_once('/').unwrap_or((subresource, "")) {
        ("proxy", rest) if !rest.is_empty() => options["path"] = format!("/{rest}").into(),
        ("portforward", _) => {
            let ports: Vec<i64> =
                query.get_all("ports").flat_map(|text| text.split(',')).flat_map(str::parse).collect();
            if !ports.is_empty() {
                options["ports"] = json!(ports);
            }
        }
        (kind @ ("exec" | "attach"), _) => {
            for flag in ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|flag| query.is_set(flag)) {
                options[flag] = true.into();
            }
            if let Some(container) = query.get("container").filter(|name| !name.is_empty()) {
                options["container"] = container.into();
            }
            if kind == "exec" {
                options["command"] = query.get_all("command").collect();
            }
        }
        _ => {}
    }
    options
}

fn check_minimum(errors: &mut Vec<FieldError>, name: &str, value: Option<i64>, least: i64, why: &str) {
    if let Some(value) = value.filter(|value| *value < least) {
        errors.push(FieldError::invalid(name, value, why));
    }
}

/// The kubelet's port-forward query: the ports that clients without SPDY request.
pub fn kubelet_ports_query(query: &Query) -> Result<String, Status> {
    let number = |text: &str| {
        let why =
            |_| Status::bad_request(format!("cannot convert to []int32: {}", parse_error_text("ParseUint", text)));
        text.parse::<u32>().map_err(why)
    };
    let ports = query.get_all("ports").flat_map(|value| value.split(',')).filter(|port| !port.is_empty());
    let ports = ports.map(|port| number(port).map(|port| port.to_string())).collect::<Result<Vec<_>, _>>()?;
    Ok(if ports.is_empty() { String::new() } else { encode_query([("port", ports.join(","))].into_iter()) })
}

fn parse_integer(text: &str) -> Result<i64, Status> {
    text.parse().map_err(|_| Status::bad_request(parse_error_text("ParseInt", text)))
}

/// Go's error text for a malformed number.
fn parse_error_text(function: &str, text: &str) -> String {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let large = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if large && (function == "ParseInt" || !text.starts_with('-')) {
        "value out of range"
    } else {
        "invalid syntax"
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

fn parse_timestamp(text: &str) -> Result<Timestamp, Status> {
    text.parse().map_err(|_| {
        Status::bad_request(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use streaming::RemoteCommandOptions;

    use super::*;

    #[test]
    fn log_options_become_kubelet_query() {
        let check = |query: &str| LogOptions::from_query(&Query::parse(query), "p").map(|options| options.query);
        assert_eq!(check("follow=1&tailLines=5&previous=false&container=c").unwrap(), "follow=true&tailLines=5");
        assert_eq!(check("sinceTime=2026-01-02T03:04:05%2B01:00").unwrap(), "sinceTime=2026-01-02T02%3A04%3A05Z");
        let refused = |query: &str| check(query).unwrap_err().message;
        let prefix = "PodLogOptions \"p\" is invalid: ";
        assert_eq!(refused("limitBytes=0"), format!("{prefix}limitBytes: Invalid value: 0: must be greater than 0"));
        assert_eq!(refused("tailLines=x"), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert!(refused("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z").contains("at most one of"));
        assert!(refused("stream=Stdout").contains("may not be specified"));
    }

    #[test]
    fn stream_options_use_kubelet_names() {
        let streams = RemoteCommandOptions::from_query(&Query::parse("stdin=true&stdout=1&stderr=0&tty"));
        assert_eq!(
            streams.kubelet_query(["sh", "-c", "a&b"].into_iter()),
            "command=sh&command=-c&command=a%26b&input=1&output=1&tty=1"
        );
    }

    #[test]
    fn invalid_port_is_rejected() {
        assert_eq!(kubelet_ports_query(&Query::parse("ports=80&ports=81,82")).unwrap(), "port=80%2C81%2C82");
        assert_eq!(kubelet_ports_query(&Query::parse("")).unwrap(), "");
        let why = kubelet_ports_query(&Query::parse("ports=a")).unwrap_err().message;
        assert_eq!(why, "cannot convert to []int32: strconv.ParseUint: parsing \"a\": invalid syntax");
    }
}
