//! `kubectl top`

use api::{Value, quantity::Quantity};

use crate::{
    errors::CommandResult,
    object::{ObjectFields, name_of, namespace_of},
    output::{write_err, write_out},
    rest::RestRequest,
    session::Session,
    tab_writer::TabWriter,
    usage::usage_error,
};

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";
/// Age up to which a pod may be without metrics.
const METRICS_DELAY_SECONDS: i64 = 120;

fn check_available(session: &Session) -> CommandResult {
    if !session.has_group("metrics.k8s.io")? {
        crate::bail!("Metrics API not available");
    }
    Ok(())
}

fn check_sort(session: &Session) -> CommandResult<String> {
    let sort = session.flags.string("sort-by");
    if !["", "cpu", "memory"].contains(&sort.as_str()) {
        crate::bail!("--sort-by accepts only cpu or memory");
    }
    if session.arguments().len() > 1 {
        return Err(usage_error(session, &session.command.usage));
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

/// Reads the metrics of the object that the command line names, or of all that its selectors choose.
fn read_metrics(session: &Session, path: String) -> CommandResult<Vec<Value>> {
    let client = session.client()?;
    if let Some(name) = session.arguments().first() {
        return Ok(vec![client.send_json(RestRequest::get(format!("{path}/{name}")))?]);
    }
    Ok(client.send_json(select(session, path))?.list("items").to_vec())
}

fn select(session: &Session, path: String) -> RestRequest {
    let request = RestRequest::get(path).with_optional("labelSelector", &session.flags.string("selector"));
    match session.command.path.ends_with("node") {
        true => request,
        false => request.with_optional("fieldSelector", &session.flags.string("field-selector")),
    }
}

/// Returns an error if there are pods that should have metrics; new ones may lack them.
fn check_pods_without_metrics(session: &Session, namespace: &str) -> CommandResult {
    let path = match session.flags.bool("all-namespaces") {
        true => "/api/v1/pods".to_owned(),
        false => format!("/api/v1/namespaces/{namespace}/pods"),
    };
    let pods = session.client()?.send_json(select(session, path))?;
    let now = jiff::Timestamp::now();
    for pod in pods.list("items") {
        let created = api::time::parse(pod.text("metadata.creationTimestamp"));
        let age = created.map(|created| now.duration_since(created)).unwrap_or_default();
        if age.as_secs() > METRICS_DELAY_SECONDS {
            let age = formats::duration::format(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
            crate::bail!("Metrics not available for pod {}/{}, age: {age}", namespace_of(pod), name_of(pod));
        }
    }
    if !pods.list("items").is_empty() {
        crate::bail!("metrics not available yet");
    }
    Ok(())
}

/// `top node`
pub fn run_nodes(session: &Session) -> CommandResult {
    let sort = check_sort(session)?;
    check_available(session)?;
    let mut metrics = read_metrics(session, format!("{GROUP}/nodes"))?;
    if metrics.is_empty() {
        crate::bail!("metrics not available yet");
    }
    sort_items(&mut metrics, &sort, |item| item.at("usage").cloned().unwrap_or_default());
    let mut nodes = read_metrics(session, "/api/v1/nodes".to_owned())?;
    let resources = measured(session);
    let mut writer = TabWriter::for_tables();
    if !session.flags.bool("no-headers") {
        let columns =
            resources.iter().map(|resource| format!("{}\t{}(%)\t", resource.header, resource.name.to_uppercase()));
        writer.push(&format!("NAME\t{}\n", columns.collect::<String>()));
    }
    let field = if session.flags.bool("show-capacity") { "status.capacity" } else { "status.allocatable" };
    for item in &metrics {
        let node = nodes.iter().position(|node| name_of(node) == name_of(item)).map(|at| nodes.remove(at));
        let columns = resources.iter().map(|resource| match resource.available(node.as_ref(), field) {
            None => UNKNOWN.repeat(2),
            Some(whole) => {
                let used = amount(item.at("usage"), resource.name);
                let percent = if whole == 0 { 0 } else { used.millis().saturating_mul(100) / whole };
                format!("{}{percent}%\t", resource.cell(used))
            }
        });
        writer.push(&format!("{}\t{}\n", name_of(item), columns.collect::<String>()));
    }
    for node in &nodes {
        writer.push(&format!("{}\t{}\n", name_of(node), UNKNOWN.repeat(2 * resources.len())));
    }
    write_out(&writer.flush());
    Ok(())
}

const UNKNOWN: &str = "<unknown>\t";

/// A resource whose usage is shown.
struct MeasuredResource {
    name: &'static str,
    header: &'static str,
}

/// The resources to show: swap on request only.
fn measured(session: &Session) -> Vec<MeasuredResource> {
    let mut resources = vec![
        MeasuredResource { name: "cpu", header: "CPU(cores)" },
        MeasuredResource { name: "memory", header: "MEMORY(bytes)" },
    ];
    if session.flags.bool("show-swap") {
        resources.push(MeasuredResource { name: "swap", header: "SWAP(bytes)" });
    }
    resources
}

impl MeasuredResource {
    /// An amount as a cell.
    fn cell(&self, used: Quantity) -> String {
        match self.name {
            "cpu" => format!("{}m\t", used.millis()),
            _ => format!("{}Mi\t", used.value() / (1 << 20)),
        }
    }

    /// Returns the capacity of a node in thousandths; `None` for swap if the node does not report it.
    fn available(&self, node: Option<&Value>, field: &str) -> Option<i64> {
        match self.name {
            "swap" => node?.integer("status.nodeInfo.swap.capacity").map(|capacity| capacity.saturating_mul(1000)),
            name => Some(amount(node.and_then(|node| node.at(field)), name).millis()),
        }
    }
}

/// `top pod`
pub fn run_pods(session: &Session) -> CommandResult {
    let sort = check_sort(session)?;
    check_available(session)?;
    let all = session.flags.bool("all-namespaces");
    let namespace = session.namespace()?.0;
    let path = if all { format!("{GROUP}/pods") } else { format!("{GROUP}/namespaces/{namespace}/pods") };
    let mut items = read_metrics(session, path)?;
    if items.is_empty() {
        check_pods_without_metrics(session, &namespace)?;
        write_err(&match all {
            true => "No resources found\n".to_owned(),
            false => format!("No resources found in {namespace} namespace.\n"),
        });
        return Ok(());
    }
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
    let resources = measured(session);
    let headers = !session.flags.bool("no-headers");
    let mut writer = TabWriter::for_tables();
    if headers {
        let (namespace, name) = (if all { "NAMESPACE\t" } else { "" }, if containers { "POD\tNAME" } else { "NAME" });
        let columns: String = resources.iter().map(|resource| format!("{}\t", resource.header)).collect();
        writer.push(&format!("{namespace}{name}\t{columns}\n"));
    }
    for item in &items {
        let prefix = if all { format!("{}\t", namespace_of(item)) } else { String::new() };
        if !containers {
            let cells = resources.iter().map(|resource| resource.cell(total(item, resource.name)));
            writer.push(&format!("{prefix}{}\t{}\n", name_of(item), cells.collect::<String>()));
            continue;
        }
        let mut all: Vec<Value> = item.list("containers").to_vec();
        all.sort_by_key(|container| {
            let used = if sort.is_empty() { 0 } else { amount(container.at("usage"), &sort).millis() };
            (std::cmp::Reverse(used), container.text("name").to_owned())
        });
        for container in &all {
            let cells = resources.iter().map(|resource| resource.cell(amount(container.at("usage"), resource.name)));
            let (pod, name) = (name_of(item), container.text("name"));
            writer.push(&format!("{prefix}{pod}\t{name}\t{}\n", cells.collect::<String>()));
        }
    }
    if session.flags.bool("sum") {
        let sum = |name| items.iter().fold(Quantity::from_integer(0), |sum, item| sum.plus(total(item, name)));
        let cells: String = resources.iter().map(|resource| resource.cell(sum(resource.name))).collect();
        // Columns before the amounts are counted with the headers; the line is always two columns wide.
        let before = 1 + usize::from(headers && all) + usize::from(headers && containers);
        let line = "\t".repeat(before + resources.len() - 2);
        writer.push(&format!("{line}________\t________\t\n{line}{cells}\n"));
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
