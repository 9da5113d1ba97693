//! `kubectl get`

mod watching;

use api::Value;

use super::raw;
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{self, ObjectFields},
    output::{write_err, write_out},
    printers::{CustomColumns, OBJECT_FORMATS, ObjectPrinter, TableOptions, TablePrinter, sort_values},
    resource::{BuildResult, ResourceBuilder, ResourceInfo},
    rest::RestRequest,
    session::Session,
    tab_writer::TabWriter,
    usage::usage_error,
};

const TABLE_ACCEPT: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// The output of `get`.
enum GetPrinter {
    Table(Box<TablePrinter>),
    Columns(Box<CustomColumns>),
    Object(Box<ObjectPrinter>),
}

/// Shows objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let path = flags.string("raw");
    if !path.is_empty() {
        if !session.arguments().is_empty() {
            crate::bail!("arguments may not be passed when --raw is specified");
        }
        if flags.bool("watch") || flags.bool("watch-only") || flags.changed("selector") {
            crate::bail!(
                "--raw may not be specified with other flags that filter the server request or alter the output"
            );
        }
        if !flags.string("output").is_empty() {
            crate::bail!("--raw and --output are mutually exclusive");
        }
        raw::check_path(&path)?;
        return raw::send(session, http::Method::GET, &path, None);
    }
    let builder = make_builder(session)?;
    let watching = flags.bool("watch") || flags.bool("watch-only");
    if session.arguments().is_empty() && !builder.has_files() && !watching {
        write_err(
            "You must specify the type of resource to get. Use \"kubectl api-resources\" for a complete list of supported \
             resources.\n\n",
        );
        let text = "Required resource not specified.\nUse \"kubectl explain <resource>\" for a detailed description of that \
                    resource (e.g. kubectl explain pods).";
        return Err(usage_error(session, text));
    }
    let output = flags.string("output");
    if flags.bool("show-labels") && !["", "wide"].contains(&output.as_str()) {
        crate::bail!("--show-labels option cannot be used with {output} printer");
    }
    if flags.bool("output-watch-events") && !watching {
        crate::bail!("--output-watch-events option can only be used with --watch or --watch-only");
    }
    if watching {
        return watching::watch(session, builder);
    }
    let result = builder.build(session)?;
    if is_table(session) { print_tables(session, &builder, result) } else { print_objects(session, result) }
}

fn is_table(session: &Session) -> bool {
    let output = session.flags.string("output");
    output.is_empty() && session.flags.string("template").is_empty() || output == "wide"
}

fn make_builder(session: &Session) -> CommandResult<ResourceBuilder> {
    let flags = &session.flags;
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = session.arguments().to_vec();
    builder.allow_empty_selector = true;
    builder.latest = true;
    builder.flatten = true;
    builder.continue_on_error = true;
    builder.select_all = false;
    builder.subresource = flags.string("subresource");
    builder.chunk_size = if flags.string("sort-by").is_empty() { flags.int("chunk-size") } else { 0 };
    if builder.all_namespaces {
        builder.enforce_namespace = false;
    }
    if is_table(session) && flags.bool("server-print") {
        builder.accept = TABLE_ACCEPT.to_owned();
        builder.include_object = !flags.string("sort-by").is_empty();
    }
    Ok(builder)
}

/// The printer for objects of one resource.
pub fn table_printer(session: &Session, info: &ResourceInfo, with_namespace: bool, with_kind: bool) -> TablePrinter {
    let flags = &session.flags;
    let with_kind = with_kind || flags.bool("show-kind");
    TablePrinter::new(TableOptions {
        no_headers: flags.bool("no-headers"),
        wide: flags.string("output") == "wide",
        with_namespace,
        show_labels: flags.bool("show-labels"),
        label_columns: flags.strings("label-columns"),
        kind: if with_kind { info.mapping.qualified_kind() } else { String::new() },
    })
}

fn print_tables(session: &Session, builder: &ResourceBuilder, mut result: BuildResult) -> CommandResult {
    let flags = &session.flags;
    let ignore = flags.bool("ignore-not-found");
    if ignore {
        result.errors.retain(|error| !error.is_not_found());
    }
    let sort = flags.string("sort-by");
    let all_namespaced = !builder.all_namespaces && result.infos.iter().all(|info| info.mapping.namespaced);
    if !sort.is_empty() {
        sort_infos(&mut result.infos, &sort)?;
    }
    let kinds =
        |info: &ResourceInfo| (info.mapping.group.clone(), info.mapping.version.clone(), info.mapping.kind.clone());
    let with_kind = result.infos.iter().any(|info| kinds(info) != kinds(&result.infos[0]));
    let mut writer = TabWriter::for_tables();
    let mut printer: Option<(String, TablePrinter)> = None;
    let mut written = false;
    for info in &result.infos {
        let identity = info.mapping.path("", "");
        if printer.as_ref().is_none_or(|(last, _)| *last != identity) {
            written |= flush_group(&mut writer, written && !flags.bool("no-headers"));
            writer.reset_widths();
            let with_namespace = builder.all_namespaces && info.mapping.namespaced;
            printer = Some((identity, table_printer(session, info, with_namespace, with_kind)));
        }
        if let Some((_, printer)) = &mut printer {
            printer.write(&mut writer, &info.object, "");
        }
    }
    written |= flush_group(&mut writer, written && !flags.bool("no-headers"));
    if !written && !ignore && result.errors.is_empty() {
        if all_namespaced {
            errln!("No resources found in {} namespace.", builder.namespace);
        } else {
            errln!("No resources found");
        }
    }
    if result.errors.is_empty() {
        return Ok(());
    }
    // The errors are a list of their own in that of the printing, so that a single one has no prefix.
    Err(CommandError::Aggregate(vec![CommandError::Aggregate(result.errors)]))
}

/// Writes a table; another one before it is set apart by an empty line.
fn flush_group(writer: &mut TabWriter, separate: bool) -> bool {
    let text = writer.flush();
    if text.is_empty() {
        return false;
    }
    if separate {
        write_out("\n");
    }
    write_out(&text);
    true
}

/// Sorts lists by a field of their own, and the rows of each by the field of their object. A list whose rows do not have the
/// field is left out, as upstream does.
fn sort_infos(infos: &mut Vec<ResourceInfo>, field: &str) -> CommandResult {
    if infos.len() > 1 {
        sort_values(infos, field, |info| &info.object)?;
    }
    infos.retain_mut(|info| match info.object.get_mut("rows").and_then(Value::as_array_mut) {
        Some(rows) if rows.len() > 1 => {
            sort_values(rows, field, |row| row.get("object").unwrap_or(&Value::Null)).is_ok()
        }
        _ => true,
    });
    Ok(())
}

/// The printer of `-o` other than tables.
fn object_printer(session: &Session) -> CommandResult<GetPrinter> {
    let output = session.flags.string("output");
    let no_headers = session.flags.bool("no-headers");
    if let Some(spec) = output.strip_prefix("custom-columns=") {
        return Ok(GetPrinter::Columns(Box::new(CustomColumns::from_spec(spec, no_headers)?)));
    }
    if output == "custom-columns" {
        return CustomColumns::from_spec("", no_headers).map(|columns| GetPrinter::Columns(Box::new(columns)));
    }
    if let Some(file) = output.strip_prefix("custom-columns-file=") {
        if file.is_empty() {
            return CustomColumns::from_spec("", no_headers).map(|columns| GetPrinter::Columns(Box::new(columns)));
        }
        let read = crate::files::read_file(file);
        let text = read.map_err(|error| CommandError::new(format!("error reading template {file}, {error}\n")))?;
        let columns = CustomColumns::from_template(&String::from_utf8_lossy(&text), no_headers)?;
        return Ok(GetPrinter::Columns(Box::new(columns)));
    }
    let formats = ["custom-columns", "custom-columns-file", "wide"];
    let formats: Vec<&str> = OBJECT_FORMATS.iter().chain(&formats).copied().collect();
    Ok(GetPrinter::Object(Box::new(ObjectPrinter::with_formats(&session.flags, "", &formats)?)))
}

impl GetPrinter {
    /// The printer for a session: a table for `info`, or the format of `-o`.
    pub fn for_session(session: &Session, info: &ResourceInfo, with_namespace: bool) -> CommandResult<Self> {
        if is_table(session) {
            return Ok(GetPrinter::Table(Box::new(table_printer(session, info, with_namespace, false))));
        }
        object_printer(session)
    }

    fn print(&mut self, value: &Value, event: &str, writer: &mut TabWriter) -> CommandResult {
        match self {
            GetPrinter::Table(printer) => printer.write(writer, value, event),
            GetPrinter::Columns(columns) => {
                let wrapped = (!event.is_empty()).then(|| serde_json::json!({"type": event, "object": value}));
                let written = columns.write_rows(writer, wrapped.as_ref().unwrap_or(value));
                write_out(&writer.flush());
                written?;
            }
            GetPrinter::Object(printer) if event.is_empty() => printer.print(value)?,
            GetPrinter::Object(printer) => printer.print_event(event, value)?,
        }
        write_out(&writer.flush());
        Ok(())
    }
}

fn print_objects(session: &Session, mut result: BuildResult) -> CommandResult {
    let ignore = session.flags.bool("ignore-not-found");
    if ignore {
        result.errors.retain(|error| !error.is_not_found());
    }
    if result.single_item && !result.errors.is_empty() {
        return CommandError::join(result.errors);
    }
    if result.infos.is_empty() && ignore {
        return CommandError::join(result.errors);
    }
    let mut printer = object_printer(session)?;
    let sort = session.flags.string("sort-by");
    if !sort.is_empty() && result.infos.len() > 1 {
        sort_values(&mut result.infos, &sort, |info| &info.object)?;
    }
    let single = result.single_item && result.infos.len() == 1;
    let mut writer = TabWriter::for_tables();
    let printed = if single {
        printer.print(&result.infos[0].object, "", &mut writer)
    } else {
        print_list(&mut printer, result.infos, &mut writer)
    };
    if let Err(error) = printed {
        result.errors.push(error);
    }
    CommandError::join(result.errors)
}

fn print_list(printer: &mut GetPrinter, infos: Vec<ResourceInfo>, writer: &mut TabWriter) -> CommandResult {
    let items: Vec<Value> = infos.into_iter().map(|info| info.object).collect();
    if let GetPrinter::Object(object_printer) = printer
        && object_printer.prints_names()
    {
        return items.iter().try_for_each(|item| object_printer.print(item));
    }
    let list =
        serde_json::json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": ""}, "items": items});
    printer.print(&list, "", writer)
}

/// Prints what a watch delivers.
pub struct WatchOutput {
    printer: GetPrinter,
    writer: TabWriter,
    events: bool,
}

impl WatchOutput {
    /// The output of a session's watch.
    pub fn new(session: &Session, info: &ResourceInfo) -> CommandResult<Self> {
        let with_namespace = session.flags.bool("all-namespaces") && info.mapping.namespaced;
        let printer = GetPrinter::for_session(session, info, with_namespace)?;
        let events = session.flags.bool("output-watch-events");
        Ok(WatchOutput { printer, writer: TabWriter::for_tables(), events })
    }

    /// Prints an object with the type of its event.
    pub fn print(&mut self, value: &Value, event: &str) -> CommandResult {
        self.printer.print(value, if self.events { event } else { "" }, &mut self.writer)
    }
}

/// The request that watches what a builder's info lists.
pub fn watch_request(builder: &ResourceBuilder, info: &ResourceInfo, version: &str) -> RestRequest {
    let mut request = RestRequest::get(info.mapping.path(&info.namespace, "")).with_query("watch", "true");
    if !builder.accept.is_empty() {
        request = request.accepting(&builder.accept);
    }
    let mut fields = builder.field_selector.trim().to_owned();
    if !info.name.is_empty() {
        fields = format!("metadata.name={}", info.name);
    }
    request
        .with_optional("labelSelector", builder.label_selector.trim())
        .with_optional("fieldSelector", &fields)
        .with_query("resourceVersion", version)
}

/// The resource version from which a watch of an answer continues: that of a list, or 0 for an object.
pub fn watch_version(value: &Value, named: bool) -> String {
    if named || !(object::is_list(value) || value.text("kind") == "Table") {
        return "0".to_owned();
    }
    value.text("metadata.resourceVersion").to_owned()
}
