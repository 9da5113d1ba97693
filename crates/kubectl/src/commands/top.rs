//! `kubectl top`

use api::{Value, quantity::Quantity};

use crate::{
    errors::CommandResult,
    object::{ObjectFields, name_of, namespace_of},
    output::write_out,
    rest::RestRequest,
    session::Session,
    tab_writer::TabWriter,
};

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

fn check_available(session: &Session) -> CommandResult {
    if !session.fresh_discovery()?.groups.iter().any(|group| group.name == "metrics.k8s.io") {
        crate::bail!("Metrics API not available");
    }
    Ok(())
}

fn check_sort(session: &Session) -> CommandResult<String> {
    let sort = session.flags.string("sort-by");
    if !["", "cpu", "memory"].contains(&sort.as_str()) {
        crate::bail!("--sort-by accepts only cpu or memory");
    }
    if !session.arguments().is_empty() && !session.flags.string("selector").is_empty() {
        let word = if session.command.path.ends_with("node") { "--selector" } else { "selector" };
        crate::bail!("only one of NAME or {word} can be provided");
    }
    Ok(sort)
}

fn amount(usage: Option<&Value>, name: &str) -> Quantity {
    let text = usage.and_then(|usage| usage.get(name)).and_then(Value::as_str).unwrap_or("0");
    Quantity::parse(text).unwrap_or_else(|| Quantity::from_integer(0))
}

fn cells(cpu: Quantity, memory: Quantity) -> String {
    format!("{}m\t{}Mi", cpu.millis(), memory.value() / (1 << 20))
}

/// `top node`
pub fn run_nodes(session: &Session) -> CommandResult {
    let sort = check_sort(session)?;
    check_available(session)?;
    let client = session.client()?;
    let request =
        RestRequest::get(format!("{GROUP}/nodes")).with_optional("labelSelector", &session.flags.string("selector"));
    let mut metrics = client.send_json(request)?.list("items").to_vec();
    metrics
        .retain(|item| session.arguments().is_empty() || session.arguments().iter().any(|name| name == name_of(item)));
    sort_items(&mut metrics, &sort, |item| item.at("usage").cloned().unwrap_or_default());
    let nodes = client.send_json(RestRequest::get("/api/v1/nodes"))?;
    let mut writer = TabWriter::for_tables();
    if !session.flags.bool("no-headers") {
        writer.push("NAME\tCPU(cores)\tCPU(%)\tMEMORY(bytes)\tMEMORY(%)\n");
    }
    for item in &metrics {
        let node = nodes.list("items").iter().find(|node| name_of(node) == name_of(item));
        let field = if session.flags.bool("show-capacity") { "status.capacity" } else { "status.allocatable" };
        let whole = |name: &str| amount(node.and_then(|node| node.at(field)), name).millis().max(1);
        let (cpu, memory) = (amount(item.at("usage"), "cpu"), amount(item.at("usage"), "memory"));
        let percent = |part: Quantity, name: &str| part.millis() * 100 / whole(name);
        writer.push(&format!(
            "{}\t{}m\t{}%\t{}Mi\t{}%\n",
            name_of(item),
            cpu.millis(),
            percent(cpu, "cpu"),
            memory.value() / (1 << 20),
            percent(memory, "memory")
        ));
    }
    write_out(&writer.flush());
    Ok(())
}

/// `top pod`
pub fn run_pods(session: &Session) -> CommandResult {
    let sort = check_sort(session)?;
    check_available(session)?;
    let all = session.flags.bool("all-namespaces");
    let namespace = session.namespace()?.0;
    let path = if all { format!("{GROUP}/pods") } else { format!("{GROUP}/namespaces/{namespace}/pods") };
    let request = RestRequest::get(path)
        .with_optional("labelSelector", &session.flags.string("selector"))
        .with_optional("fieldSelector", &session.flags.string("field-selector"));
    let mut items = session.client()?.send_json(request)?.list("items").to_vec();
    items.retain(|item| session.arguments().is_empty() || session.arguments().iter().any(|name| name == name_of(item)));
    let total = |item: &Value, name: &str| {
        item.list("containers")
            .iter()
            .fold(Quantity::from_integer(0), |sum, container| sum.plus(amount(container.at("usage"), name)))
    };
    sort_items(
        &mut items,
        &sort,
        |item| serde_json::json!({"cpu": total(item, "cpu").to_string(), "memory": total(item, "memory").to_string()}),
    );
    let containers = session.flags.bool("containers");
    let mut writer = TabWriter::for_tables();
    if !session.flags.bool("no-headers") {
        let (namespace, name) = (if all { "NAMESPACE\t" } else { "" }, if containers { "POD\tNAME" } else { "NAME" });
        writer.push(&format!("{namespace}{name}\tCPU(cores)\tMEMORY(bytes)\n"));
    }
    for item in &items {
        let prefix = if all { format!("{}\t", namespace_of(item)) } else { String::new() };
        if containers {
            for container in item.list("containers") {
                let usage = container.at("usage");
                writer.push(&format!(
                    "{prefix}{}\t{}\t{}\n",
                    name_of(item),
                    container.text("name"),
                    cells(amount(usage, "cpu"), amount(usage, "memory"))
                ));
            }
        } else {
            writer.push(&format!("{prefix}{}\t{}\n", name_of(item), cells(total(item, "cpu"), total(item, "memory"))));
        }
    }
    write_out(&writer.flush());
    Ok(())
}

/// Sorts by usage, the largest first, or by name.
fn sort_items(items: &mut [Value], sort: &str, usage: impl Fn(&Value) -> Value) {
    items.sort_by_key(|item| {
        let used = if sort.is_empty() { 0 } else { amount(Some(&usage(item)), sort).millis() };
        (std::cmp::Reverse(used), namespace_of(item).to_owned(), name_of(item).to_owned())
    });
}
