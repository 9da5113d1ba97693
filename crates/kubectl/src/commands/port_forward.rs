//! `kubectl port-forward`

use std::{net::IpAddr, rc::Rc};

use api::{Value, json::go_quote};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use transport::spdy::SpdyConnection;

use super::pod_selection::{attachable_pod, pod_running_timeout};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    files::os_error,
    flag_value::parse_decimal,
    object::{ObjectFields, name_of, namespace_of},
    outln,
    resource::ResourceBuilder,
    rest::{RestRequest, block_on, log_line},
    session::Session,
    streams::open_tunnel,
    usage::usage_error,
};

/// A local and a remote port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ForwardedPort {
    local: u16,
    remote: u16,
}

/// Forwards local ports to a pod.
pub fn run(session: &Session) -> CommandResult {
    let [target, ports @ ..] = session.arguments() else {
        return Err(usage_error(session, "TYPE/NAME and list of ports are required for port-forward"));
    };
    if ports.is_empty() {
        return Err(usage_error(session, "TYPE/NAME and list of ports are required for port-forward"));
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    let timeout = pod_running_timeout(session).map_err(|error| usage_error(session, &error.to_string()))?;
    builder.default_resource = "pods".to_owned();
    builder.arguments = vec![target.clone()];
    let infos = builder.infos(session)?;
    let Some(info) = infos.first() else { crate::bail!("expected a resource") };
    let pod = attachable_pod(session, &info.object, timeout)?;
    let ports = if info.object.text("kind") == "Service" {
        check_udp(ports, &info.object, "spec.ports", "port")?;
        ports.iter().map(|port| target_port(port, &info.object, &pod)).collect::<CommandResult<Vec<_>>>()?
    } else {
        check_udp(ports, &pod, "", "containerPort")?;
        ports.iter().map(|port| container_port(port, &pod)).collect::<CommandResult<Vec<_>>>()?
    };
    let path = format!("/api/v1/namespaces/{}/pods/{}", namespace_of(&pod), name_of(&pod));
    let client = session.client()?;
    let pod = client.send_json(RestRequest::get(&path))?;
    let phase = pod.text("status.phase");
    if phase != "Running" {
        crate::bail!("unable to forward port because pod is not running. Current status={phase}");
    }
    let addresses = parse_addresses(&session.flags.strings("address"))?;
    let ports = ports.iter().map(|port| parse_port_pair(port)).collect::<CommandResult<Vec<_>>>()?;
    block_on(async {
        let tunnel = open_tunnel(client, &RestRequest::get(format!("{path}/portforward"))).await?;
        forward_ports(tunnel, &addresses, ports).await
    })
}

/// Splits `LOCAL:REMOTE`; one port is both.
fn split_port(port: &str) -> (&str, &str) {
    let parts: Vec<&str> = port.split(':').collect();
    match parts.as_slice() {
        [local, remote] => (local, remote),
        parts => (parts[0], parts[0]),
    }
}

fn join_ports(local: &str, named: &str, remote: i64) -> String {
    let remote = remote.to_string();
    if local == named || local == remote { remote } else { format!("{local}:{remote}") }
}

/// The ports of a service, or of a pod's containers.
fn declared_ports<'a>(object: &'a Value, field: &str) -> Vec<&'a Value> {
    if !field.is_empty() {
        return object.list(field).iter().collect();
    }
    object.list("spec.containers").iter().flat_map(|container| container.list("ports")).collect()
}

fn named_port(object: &Value, field: &str, number: &str, name: &str) -> CommandResult<i64> {
    let found = declared_ports(object, field).into_iter().find(|port| port.text("name") == name);
    let what = if field.is_empty() { "Pod" } else { "Service" };
    found
        .and_then(|port| port.integer(number))
        .ok_or_else(|| CommandError::new(format!("{what} '{}' does not have a named port '{name}'", name_of(object))))
}

/// Refuses ports that are declared for UDP only.
fn check_udp(ports: &[String], object: &Value, field: &str, number: &str) -> CommandResult {
    let declared = declared_ports(object, field);
    let has = |wanted: i64, protocol: &str| {
        declared.iter().any(|port| port.integer(number) == Some(wanted) && port.text("protocol") == protocol)
    };
    for port in ports {
        let (_, remote) = split_port(port);
        let wanted = match remote.parse() {
            Ok(wanted) => wanted,
            Err(_) if remote.is_empty() && field.is_empty() => crate::bail!("remote port cannot be empty"),
            Err(_) => named_port(object, field, number, remote)?,
        };
        if has(wanted, "UDP") && !has(wanted, "TCP") {
            crate::bail!("UDP protocol is not supported for {remote}");
        }
    }
    Ok(())
}

fn container_port(port: &str, pod: &Value) -> CommandResult<String> {
    let (local, remote) = split_port(port);
    if remote.is_empty() {
        crate::bail!("remote port cannot be empty");
    }
    if remote.parse::<i64>().is_ok() {
        return Ok(if local == remote { remote.to_owned() } else { format!("{local}:{remote}") });
    }
    let number = named_port(pod, "", "containerPort", remote)?;
    Ok(if local == remote { number.to_string() } else { format!("{local}:{number}") })
}

/// Translates a port of a service to one of the pod.
fn target_port(port: &str, service: &Value, pod: &Value) -> CommandResult<String> {
    let (local, remote) = split_port(port);
    let number = match remote.parse::<i64>() {
        Ok(number) => number,
        Err(_) => named_port(service, "spec.ports", "port", remote)?,
    };
    let local = if local == remote { number.to_string() } else { local.to_owned() };
    let declared = service.list("spec.ports").iter().find(|port| port.integer("port") == Some(number));
    let Some(declared) = declared else {
        crate::bail!("Service {} does not have a service port {number}", name_of(service));
    };
    if service.text("spec.clusterIP") == "None" {
        return Ok(join_ports(&local, "", number));
    }
    let target = match declared.at("targetPort") {
        None => number,
        Some(Value::String(name)) => named_port(pod, "", "containerPort", name)?,
        Some(value) => match value.as_i64() {
            Some(0) | None => number,
            Some(target) => target,
        },
    };
    Ok(join_ports(&local, "", target))
}

fn parse_port_pair(text: &str) -> CommandResult<ForwardedPort> {
    let parts: Vec<&str> = text.split(':').collect();
    let (local, remote) = match parts.as_slice() {
        [one] => (*one, *one),
        ["", remote] => ("0", *remote),
        [local, remote] => (*local, *remote),
        _ => crate::bail!("invalid port format '{text}'"),
    };
    let parse = |what: &str, text: &str| {
        parse_decimal(text, 16)
            .map_err(|error| CommandError::new(format!("error parsing {what} port '{text}': {error}")))
    };
    let (local, remote) = (parse("local", local)?, parse("remote", remote)?);
    if remote == 0 {
        crate::bail!("remote port must be > 0");
    }
    Ok(ForwardedPort { local: local as u16, remote: remote as u16 })
}

/// The addresses to listen on, and whether each must succeed.
fn parse_addresses(texts: &[String]) -> CommandResult<Vec<(IpAddr, bool)>> {
    let mut addresses: Vec<(String, IpAddr, bool)> = Vec::new();
    let mut add = |text: &str, address: IpAddr, required: bool| {
        addresses.retain(|(known, ..)| known != text || !required);
        if !addresses.iter().any(|(known, ..)| known == text) {
            addresses.push((text.to_owned(), address, required));
        }
    };
    for text in texts {
        if text == "localhost" {
            add("127.0.0.1", IpAddr::from([127, 0, 0, 1]), false);
            add("::1", IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]), false);
            continue;
        }
        let address = text.parse().map_err(|_| CommandError::new(format!("{text} is not a valid IP")))?;
        add(text, address, true);
    }
    if addresses.is_empty() {
        crate::bail!("you must specify at least 1 address");
    }
    addresses.sort();
    Ok(addresses.into_iter().map(|(_, address, required)| (address, required)).collect())
}

async fn forward_ports(
    tunnel: SpdyConnection,
    addresses: &[(IpAddr, bool)],
    mut ports: Vec<ForwardedPort>,
) -> CommandResult {
    let mut listeners = Vec::new();
    let mut listening = false;
    for port in &mut ports {
        match listen(addresses, port).await {
            Ok(opened) => {
                listening = true;
                listeners.extend(opened.into_iter().map(|listener| (listener, *port)));
            }
            Err(error) => errln!("Unable to listen on port {}: {error}", port.local),
        }
    }
    if !listening {
        let shown: Vec<String> = ports.iter().map(|port| format!("{{{} {}}}", port.local, port.remote)).collect();
        crate::bail!("unable to listen on any of the requested ports: [{}]", shown.join(" "));
    }
    let shared = Rc::new(tunnel);
    let counter = Rc::new(std::cell::Cell::new(0u64));
    let accepting = listeners.iter().map(|(listener, port)| accept_connections(listener, *port, &shared, &counter));
    tokio::select! {
        _ = futures::future::join_all(accepting) => Ok(()),
        () = shared.wait_for_close() => Err(CommandError::new("lost connection to pod")),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn listen(addresses: &[(IpAddr, bool)], port: &mut ForwardedPort) -> CommandResult<Vec<TcpListener>> {
    let (mut opened, mut failures) = (Vec::new(), Vec::new());
    let mut fatal = false;
    for (address, required) in addresses {
        match TcpListener::bind((*address, port.local)).await {
            Ok(listener) => {
                if let Ok(bound) = listener.local_addr() {
                    port.local = bound.port();
                }
                let shown = std::net::SocketAddr::new(*address, port.local);
                outln!("Forwarding from {shown} -> {}", port.remote);
                opened.push(listener);
            }
            Err(error) => {
                fatal |= required;
                let protocol = if address.is_ipv4() { "tcp4" } else { "tcp6" };
                let shown = std::net::SocketAddr::new(*address, port.local);
                let cause = os_error(&error);
                failures.push(format!("unable to create listener: Error listen {protocol} {shown}: bind: {cause}"));
            }
        }
    }
    if fatal || opened.is_empty() {
        crate::bail!("Listeners failed to create with the following errors: [{}]", failures.join(" "));
    }
    Ok(opened)
}

async fn accept_connections(
    listener: &TcpListener,
    port: ForwardedPort,
    tunnel: &Rc<SpdyConnection>,
    counter: &Rc<std::cell::Cell<u64>>,
) {
    let mut running = futures::stream::FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((connection, _)) = accepted else { return };
                let id = counter.replace(counter.get() + 1);
                running.push(handle_connection(connection, port, tunnel.clone(), id));
            }
            Some(()) = futures::StreamExt::next(&mut running), if !running.is_empty() => {}
        }
    }
}

/// Copies between a local connection and the streams of one request.
async fn handle_connection(mut local: TcpStream, port: ForwardedPort, tunnel: Rc<SpdyConnection>, id: u64) {
    outln!("Handling connection for {}", port.local);
    if let Err(error) = forward_connection(&mut local, port, &tunnel, id).await {
        log_line('E', "portforward.go:424", &format!("\"Unhandled Error\" err={}", go_quote(&error.to_string())));
    }
}

async fn forward_connection(
    local: &mut TcpStream,
    port: ForwardedPort,
    tunnel: &SpdyConnection,
    id: u64,
) -> CommandResult {
    let (remote, id) = (port.remote.to_string(), id.to_string());
    let headers = |kind| [("streamtype", kind), ("port", remote.as_str()), ("requestid", id.as_str())];
    let failed = |what: &str, error: std::io::Error| {
        CommandError::new(format!("error creating {what} stream for port {} -> {}: {error}", port.local, port.remote))
    };
    let mut errors = tunnel.open_stream(&headers("error")).await.map_err(|error| failed("error", error))?;
    errors.writer.close().await.map_err(|error| failed("error", error))?;
    let mut data = tunnel.open_stream(&headers("data")).await.map_err(|error| failed("forwarding", error))?;
    let writer = data.writer.clone();
    let (mut reading, mut writing) = local.split();
    let upload = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(count @ 1..) = reading.read(&mut buffer).await {
            if writer.write(&buffer[..count]).await.is_err() {
                return;
            }
        }
        // The connection may have ended.
        let _ = writer.close().await;
        std::future::pending::<()>().await;
    };
    let download = async {
        while let Some(chunk) = data.read_chunk().await {
            if writing.write_all(&chunk).await.is_err() {
                return;
            }
        }
        // The local side may be gone.
        let _ = writing.shutdown().await;
    };
    tokio::select! {
        () = upload => {}
        () = download => {}
    }
    // The connection may have ended.
    let _ = writer.reset().await;
    let mut message = Vec::new();
    while let Some(chunk) = errors.read_chunk().await {
        message.extend_from_slice(&chunk);
    }
    if message.is_empty() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&message);
    crate::bail!("an error occurred forwarding {} -> {}: {text}", port.local, port.remote)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_pairs_of_numbers() {
        let check = |text: &str| parse_port_pair(text).map(|port| (port.local, port.remote));
        assert_eq!(check("80").unwrap(), (80, 80));
        assert_eq!(check(":80").unwrap(), (0, 80));
        assert_eq!(check("8080:80").unwrap(), (8080, 80));
        assert_eq!(check("1:2:3").unwrap_err().to_string(), "invalid port format '1:2:3'");
        assert_eq!(check("1:0").unwrap_err().to_string(), "remote port must be > 0");
        assert!(check("99999").unwrap_err().to_string().contains("value out of range"));
    }

    #[test]
    fn ports_of_services_become_ports_of_pods() {
        let service =
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80, "targetPort": "http"}]}});
        let pod = json!({"spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]}});
        assert_eq!(target_port("80", &service, &pod).unwrap(), "80:8080");
        assert_eq!(target_port("8443:web", &service, &pod).unwrap(), "8443:8080");
        assert!(target_port("81", &service, &pod).is_err());
        assert_eq!(container_port("http", &pod).unwrap(), "8080");
    }
}
