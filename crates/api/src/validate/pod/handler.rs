//! Validation of probes and of what happens when a container starts and stops.

use super::spec::Whole;
use crate::validate::{Errors, at::At, names};

/// The kinds of probes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Probe {
    Liveness,
    Readiness,
    Startup,
}

/// The faults of a probe.
pub(super) fn probe(at: &At, kind: Probe, grace: Option<i64>, e: &mut Errors) {
    handler(at, &["exec", "httpGet", "tcpSocket", "grpc"], grace, e);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        at.get(field).nonnegative(e);
    }
    let own_grace = at.get("terminationGracePeriodSeconds");
    if own_grace.exists() && own_grace.int() <= 0 {
        own_grace.invalid(e, "must be greater than 0");
    }
    if kind == Probe::Readiness {
        if own_grace.exists() {
            own_grace.invalid(e, "must not be set for readinessProbes");
        }
    } else if at.get("successThreshold").int() != 1 {
        at.get("successThreshold").invalid_int(e, "must be 1");
    }
}

/// The faults of what is done when a container starts and stops.
pub(super) fn lifecycle(at: &At, whole: &Whole, e: &mut Errors) {
    for name in ["postStart", "preStop"] {
        if at.get(name).exists() {
            handler(&at.get(name), &["exec", "httpGet", "tcpSocket", "sleep"], whole.grace, e);
        }
    }
    let signal = at.get("stopSignal");
    if !signal.exists() {
        return;
    }
    match whole.os {
        None => signal.forbidden(e, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => signal.one_of(e, &["SIGKILL", "SIGTERM"]),
        Some("linux") => {
            let all = linux_signals();
            signal.one_of(e, &all.iter().map(String::as_str).collect::<Vec<_>>());
        }
        Some(_) => {}
    }
}

/// All signals of Linux by name, sorted.
fn linux_signals() -> Vec<String> {
    const NAMED: &[&str] = &[
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL",
        "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1",
        "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ", "RTMIN", "RTMAX",
    ];
    let mut all: Vec<String> = NAMED.iter().map(|name| format!("SIG{name}")).collect();
    all.extend((1..=15).map(|n| format!("SIGRTMIN+{n}")));
    all.extend((1..=14).map(|n| format!("SIGRTMAX-{n}")));
    all.sort_unstable();
    all
}

fn handler(at: &At, kinds: &[&str], grace: Option<i64>, e: &mut Errors) {
    let mut count = 0;
    for kind in kinds {
        let action = at.get(kind);
        if !action.exists() {
            continue;
        }
        if count > 0 {
            action.forbidden(e, "may not specify more than 1 handler type");
            continue;
        }
        count += 1;
        match *kind {
            "exec" => {
                action.get("command").require(e);
            }
            "httpGet" => http_get(&action, e),
            "sleep" => sleep(&action, grace, e),
            "grpc" => action.get("port").port_number(e),
            _ => action.get("port").port_number_or_name(e),
        }
    }
    if count == 0 {
        at.required(e, "must specify a handler type");
    }
}

fn http_get(at: &At, e: &mut Errors) {
    at.get("path").require(e);
    at.get("port").port_number_or_name(e);
    if !["HTTP", "HTTPS"].contains(&at.get("scheme").text()) {
        at.get("scheme").unsupported(e, &["HTTP", "HTTPS"]);
    }
    let headers = at.get("httpHeaders");
    for header in headers.items() {
        let name = header.get("name").text();
        names::header(name).into_iter().for_each(|fault| headers.invalid_as(e, name, fault));
    }
}

fn sleep(at: &At, grace: Option<i64>, e: &mut Errors) {
    let seconds = at.get("seconds").int();
    if let Some(grace) = grace
        && !(0..=grace).contains(&seconds)
    {
        let message = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        at.invalid_as(e, seconds, message);
    }
}
