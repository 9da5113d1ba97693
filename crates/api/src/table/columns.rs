//! How the objects of each kind are printed: `schema/columns.txt`, parsed once.

use std::sync::LazyLock;

use super::{cell::Cell, functions, row::Row};
use crate::Value;

const TABLE: &str = include_str!("../../schema/columns.txt");
const NAME: &str = "Name/name = metadata.name";
const AGE: &str = "Age = age(metadata.creationTimestamp)";

/// One column.
pub(super) struct Column {
    pub name: &'static str,
    pub ty: &'static str,
    pub format: &'static str,
    /// Clients show what is above 0 only in wide output.
    pub priority: u8,
}

/// How the objects of one kind are printed.
#[derive(Default)]
pub(super) struct Printer {
    pub columns: Vec<Column>,
    cells: Vec<Cell>,
    /// The group-version that cells are made of, where versions differ in form.
    pub reads: Option<(&'static str, &'static str)>,
    /// Marks on the row.
    pub marks: Option<functions::Function>,
    /// The number that rows are sorted by, where they are not in the order of the list.
    pub order: Option<&'static str>,
}

/// Printers with the group and kind that they print; the first is for everything else.
type Printers = Vec<((&'static str, &'static str), Printer)>;

static PRINTERS: LazyLock<Printers> = LazyLock::new(load);

/// The printer of a kind; what is not in the table gets a name and a time of creation.
pub(super) fn of(group: &str, kind: &str) -> &'static Printer {
    let known = PRINTERS.iter().find(|(printed, _)| *printed == (group, kind));
    &known.unwrap_or(&PRINTERS[0]).1
}

impl Printer {
    /// The cells of a row.
    pub fn cells(&self, row: &Row) -> Vec<Value> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for cell in &self.cells {
            match cell.value(row) {
                Value::Array(several) => cells.extend(several),
                one => cells.push(one),
            }
        }
        cells
    }

    fn head(flags: &'static str) -> Self {
        let mut printer = Self::default();
        for (word, argument) in flags.split_whitespace().filter_map(|flag| flag.strip_suffix(')')?.split_once('(')) {
            match word {
                "reads" => {
                    printer.reads = argument.split_once('/').map(|(group, v)| (group.trim_start_matches("core"), v))
                }
                "marks" => printer.marks = Some(functions::of(&argument[1..])),
                "sorted" => printer.order = Some(argument),
                _ => {}
            }
        }
        printer
    }

    fn line(&mut self, line: &'static str) {
        let line = match line {
            "name" => NAME,
            "age" => AGE,
            line => line,
        };
        let (columns, cell) = line.split_once(" = ").unwrap_or_else(|| panic!("a column has cells: {line}"));
        self.columns.extend(columns.split(" & ").filter(|column| *column != "-").map(Column::parse));
        self.cells.push(Cell::parse(cell));
    }
}

impl Column {
    /// `Ready:integer/name@1`
    fn parse(text: &'static str) -> Self {
        let (text, priority) = text.split_once('@').map_or((text, 0), |(text, _)| (text, 1));
        let (text, format) = text.split_once('/').unwrap_or((text, ""));
        let (name, ty) = text.split_once(':').unwrap_or((text, "string"));
        Self { name, ty, format, priority }
    }
}

fn load() -> Printers {
    let mut printers = Printers::new();
    let lines: Vec<&str> = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    for block in lines.chunk_by(|_, line| line.starts_with(' ')) {
        let (kinds, flags) = block[0].split_once(':').expect("a block has kinds");
        let groups =
            flags.split_once("of(").and_then(|(_, rest)| rest.split_once(')')).map_or("", |(groups, _)| groups);
        for (group, kind) in groups.split(',').flat_map(|group| kinds.split(' ').map(move |kind| (group, kind))) {
            let mut printer = Printer::head(flags);
            block[1..].iter().for_each(|line| printer.line(line.trim()));
            printers.push(((group, kind), printer));
        }
    }
    printers
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_printer_fills_its_columns_even_of_an_empty_object() {
        let object = json!({"metadata": {"name": "x"}});
        let row = Row { object: &object, now: Timestamp::UNIX_EPOCH };
        for ((_, kind), printer) in PRINTERS.iter() {
            // Upstream's rows of addresses have an age without a column.
            let extra = usize::from(*kind == "IPAddress");
            assert_eq!(printer.cells(&row).len(), printer.columns.len() + extra, "{kind}");
        }
    }
}
