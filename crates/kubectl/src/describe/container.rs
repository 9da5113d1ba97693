//! Containers in descriptions of pods and pod templates.

use api::{Value, quantity::Quantity};

use super::description::{Description, format_time, scalar_text};
use crate::object::ObjectFields;

/// Describes containers under a title.
pub fn describe_containers(
    out: &mut Description,
    title: &str,
    containers: &[Value],
    statuses: &[Value],
    pod: Option<&Value>,
    space: &str,
) {
    if title.is_empty() {
        out.raw("Containers:\n");
    } else {
        out.raw(&format!("{space}{title}:\n"));
    }
    for container in containers {
        let name = container.text("name");
        let status = statuses.iter().find(|status| status.text("name") == name);
        out.raw(&format!("{space} {}:\n", if space.is_empty() { format!(" {name}") } else { name.to_owned() }));
        container_basics(out, container, status);
        list_lines(out, "Command", container.list("command"));
        list_lines(out, "Args", container.list("args"));
        if let Some(status) = status {
            container_state(out, container, status);
        }
        quantities(out, "Limits", container.at("resources.limits"));
        quantities(out, "Requests", container.at("resources.requests"));
        for (field, label) in
            [("livenessProbe", "Liveness"), ("readinessProbe", "Readiness"), ("startupProbe", "Startup")]
        {
            if let Some(probe) = container.at(field) {
                out.raw(&format!("    {label}:\t{}\n", probe_text(probe)));
            }
        }
        env_from(out, container.list("envFrom"));
        environment(out, container, pod);
        mounts(out, container);
    }
}

fn list_lines(out: &mut Description, label: &str, items: &[Value]) {
    if items.is_empty() {
        return;
    }
    out.raw(&format!("    {label}:\n"));
    for item in items.iter().filter_map(Value::as_str) {
        for line in item.split('\n') {
            out.raw(&format!("      {line}\n"));
        }
    }
}

fn ports_text(ports: &[Value], host: bool) -> String {
    let port = |port: &Value| {
        let protocol = port.text("protocol");
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        let number = port.integer(if host { "hostPort" } else { "containerPort" }).unwrap_or(0);
        let name = port.text("name");
        if name.is_empty() { format!("{number}/{protocol}") } else { format!("{number}/{protocol} ({name})") }
    };
    ports.iter().map(port).collect::<Vec<_>>().join(", ")
}

fn container_basics(out: &mut Description, container: &Value, status: Option<&Value>) {
    if let Some(status) = status {
        out.raw(&format!("    Container ID:\t{}\n", status.text("containerID")));
    }
    out.raw(&format!("    Image:\t{}\n", container.text("image")));
    if let Some(status) = status {
        out.raw(&format!("    Image ID:\t{}\n", status.text("imageID")));
    }
    let ports = container.list("ports");
    let label = if ports.len() > 1 || ports.iter().any(|port| !port.text("name").is_empty()) && ports.len() > 1 {
        "s"
    } else {
        ""
    };
    let text = |host: bool| if ports.is_empty() { "<none>".to_owned() } else { ports_text(ports, host) };
    out.raw(&format!("    Port{label}:\t{}\n", text(false)));
    out.raw(&format!("    Host Port{label}:\t{}\n", text(true)));
    let seccomp = container.text("securityContext.seccompProfile.type");
    if !seccomp.is_empty() {
        out.raw(&format!("    SeccompProfile:\t{seccomp}\n"));
        if seccomp == "Localhost" {
            out.raw(&format!(
                "      LocalhostProfile:\t{}\n",
                container.text("securityContext.seccompProfile.localhostProfile")
            ));
        }
    }
}

fn container_state(out: &mut Description, container: &Value, status: &Value) {
    state(out, "State", status.at("state"));
    if status.at("lastState.terminated").is_some() {
        state(out, "Last State", status.at("lastState"));
    }
    let ready = if status.flag("ready") { "True" } else { "False" };
    out.raw(&format!("    Ready:\t{ready}\n    Restart Count:\t{}\n", status.integer("restartCount").unwrap_or(0)));
    let _ = container;
}

fn state(out: &mut Description, label: &str, state: Option<&Value>) {
    let empty = Value::Null;
    let state = state.unwrap_or(&empty);
    if let Some(running) = state.at("running") {
        out.raw(&format!("    {label}:\tRunning\n      Started:\t{}\n", format_time(running.text("startedAt"))));
    } else if let Some(terminated) = state.at("terminated") {
        out.raw(&format!("    {label}:\tTerminated\n"));
        for (field, name) in [("reason", "Reason"), ("message", "Message")] {
            if !terminated.text(field).is_empty() {
                out.raw(&format!("      {name}:\t{}\n", terminated.text(field)));
            }
        }
        out.raw(&format!("      Exit Code:\t{}\n", terminated.integer("exitCode").unwrap_or(0)));
        if let Some(signal) = terminated.integer("signal").filter(|signal| *signal > 0) {
            out.raw(&format!("      Signal:\t{signal}\n"));
        }
        out.raw(&format!("      Started:\t{}\n", format_time(terminated.text("startedAt"))));
        out.raw(&format!("      Finished:\t{}\n", format_time(terminated.text("finishedAt"))));
    } else {
        let waiting = state.at("waiting");
        out.raw(&format!("    {label}:\tWaiting\n"));
        if let Some(reason) = waiting.map(|waiting| waiting.text("reason")).filter(|reason| !reason.is_empty()) {
            out.raw(&format!("      Reason:\t{reason}\n"));
        }
    }
}

/// Requests or limits, sorted by name.
pub fn quantities(out: &mut Description, label: &str, list: Option<&Value>) {
    let Some(map) = list.and_then(Value::as_object).filter(|map| !map.is_empty()) else { return };
    out.raw(&format!("    {label}:\n"));
    for (name, amount) in map {
        out.raw(&format!("      {name}:\t{}\n", scalar_text(Some(amount))));
    }
}

/// The text of a probe.
pub fn probe_text(probe: &Value) -> String {
    let number = |field: &str| probe.integer(field).unwrap_or(0);
    let attributes = format!(
        "delay={}s timeout={}s period={}s #success={} #failure={}",
        number("initialDelaySeconds"),
        number("timeoutSeconds"),
        number("periodSeconds"),
        number("successThreshold"),
        number("failureThreshold")
    );
    format!("{} {attributes}", handler_text(probe))
}

fn handler_text(probe: &Value) -> String {
    if let Some(exec) = probe.at("exec") {
        let command: Vec<&str> = exec.list("command").iter().filter_map(Value::as_str).collect();
        return format!("exec [{}]", command.join(" "));
    }
    if let Some(http) = probe.at("httpGet") {
        let port = scalar_text(http.at("port"));
        let host = if port.is_empty() { http.text("host").to_owned() } else { format!("{}:{port}", http.text("host")) };
        let scheme = http.text("scheme").to_lowercase();
        let scheme = if scheme.is_empty() { "http".to_owned() } else { scheme };
        return format!("http-get {scheme}://{host}{}", http.text("path"));
    }
    if let Some(socket) = probe.at("tcpSocket") {
        return format!("tcp-socket {}:{}", socket.text("host"), scalar_text(socket.at("port")));
    }
    if let Some(grpc) = probe.at("grpc") {
        return format!("grpc <pod>:{} {}", scalar_text(grpc.at("port")), grpc.text("service"));
    }
    "unknown".to_owned()
}

fn env_from(out: &mut Description, sources: &[Value]) {
    if sources.is_empty() {
        return;
    }
    out.raw("    Environment Variables from:\n");
    for source in sources {
        let (kind, reference) = match source.at("configMapRef") {
            Some(reference) => ("ConfigMap", Some(reference)),
            None => ("Secret", source.at("secretRef")),
        };
        let (name, optional) =
            reference.map_or(("", false), |reference| (reference.text("name"), reference.flag("optional")));
        let prefix = source.text("prefix");
        let kind = if prefix.is_empty() { kind.to_owned() } else { format!("{kind} with prefix '{prefix}'") };
        out.raw(&format!("      {name}\t{kind}\tOptional: {optional}\n"));
    }
}

fn environment(out: &mut Description, container: &Value, pod: Option<&Value>) {
    let variables = container.list("env");
    out.raw(&format!("    Environment:{}\n", if variables.is_empty() { "\t<none>" } else { "" }));
    for variable in variables {
        let name = variable.text("name");
        let text = match variable.at("valueFrom") {
            None => {
                let value = variable.text("value");
                let lines: Vec<&str> = value.split('\n').collect();
                lines
                    .iter()
                    .enumerate()
                    .map(|(at, line)| if at == 0 { format!("{name}:\t{line}") } else { format!("\t{line}") })
                    .collect::<Vec<_>>()
                    .join("\n      ")
            }
            Some(source) => format!("{name}:\t{}", source_text(source, container, pod)),
        };
        out.raw(&format!("      {text}\n"));
    }
}

fn source_text(source: &Value, container: &Value, pod: Option<&Value>) -> String {
    if let Some(field) = source.at("fieldRef") {
        let path = field.text("fieldPath");
        let value = pod.map(|pod| pod.text(path)).unwrap_or_default();
        let version = field.text("apiVersion");
        return format!("{value} ({}:{path})", if version.is_empty() { "v1" } else { version });
    }
    if let Some(field) = source.at("resourceFieldRef") {
        let resource = field.text("resource");
        let divisor = Quantity::parse(&scalar_text(field.at("divisor"))).filter(|divisor| !divisor.is_zero());
        let value = resource
            .split_once('.')
            .and_then(|(kind, name)| container.at(&format!("resources.{kind}"))?.get(name).cloned())
            .and_then(|value| Quantity::parse(&scalar_text(Some(&value))))
            .map(|quantity| {
                let divisor = divisor.map_or(1.0, Quantity::as_approximate_float);
                (quantity.as_approximate_float() / divisor).ceil().to_string()
            });
        return format!("{} ({resource})", value.unwrap_or_else(|| "0".to_owned()));
    }
    if let Some(secret) = source.at("secretKeyRef") {
        return format!(
            "<set to the key '{}' in secret '{}'>\tOptional: {}",
            secret.text("key"),
            secret.text("name"),
            secret.flag("optional")
        );
    }
    if let Some(map) = source.at("configMapKeyRef") {
        return format!(
            "<set to the key '{}' of config map '{}'>\tOptional: {}",
            map.text("key"),
            map.text("name"),
            map.flag("optional")
        );
    }
    String::new()
}

fn mounts(out: &mut Description, container: &Value) {
    let list = container.list("volumeMounts");
    out.raw(&format!("    Mounts:{}\n", if list.is_empty() { "\t<none>" } else { "" }));
    let mut sorted: Vec<&Value> = list.iter().collect();
    sorted.sort_by_key(|mount| mount.text("mountPath").to_owned());
    for mount in sorted {
        let mut flags = vec![if mount.flag("readOnly") { "ro".to_owned() } else { "rw".to_owned() }];
        if !mount.text("subPath").is_empty() {
            flags.push(format!("path={}", api::json::go_quote(mount.text("subPath"))));
        }
        out.raw(&format!("      {} from {} ({})\n", mount.text("mountPath"), mount.text("name"), flags.join(",")));
    }
    let devices = container.list("volumeDevices");
    if !devices.is_empty() {
        out.raw("    Devices:\n");
        for device in devices {
            out.raw(&format!("      {} from {}\n", device.text("devicePath"), device.text("name")));
        }
    }
}
