//! Table printers by kind, parsed once from `schema/columns.txt`.

use std::sync::LazyLock;

use super::{cell_expression::CellExpression, printed_object::PrintedObject, printer_functions};
use crate::Value;

const COLUMN_TABLE: &str = include_str!("../../schema/columns.txt");
const NAME_COLUMN: &str = "Name/name = metadata.name";
const AGE_COLUMN: &str = "Age = age(metadata.creationTimestamp)";

/// A column definition of a table.
pub(super) struct ColumnDefinition {
    pub name: &'static str,
    pub ty: &'static str,
    pub format: &'static str,
    /// Columns with a priority above 0 are shown in wide output only.
    pub priority: u8,
}

/// The printer of one kind.
#[derive(Default)]
pub(super) struct TablePrinter {
    pub columns: Vec<ColumnDefinition>,
    cells: Vec<CellExpression>,
    /// The group-version that cells read, where versions differ in structure.
    pub source_version: Option<(&'static str, &'static str)>,
    /// The function of the row's conditions.
    pub row_conditions: Option<printer_functions::PrinterFunction>,
    /// The path of the number that rows are sorted by.
    pub sort_path: Option<&'static str>,
}

/// Printers by group and kind; the first is the default.
type PrinterTable = Vec<((&'static str, &'static str), TablePrinter)>;

static PRINTERS: LazyLock<PrinterTable> = LazyLock::new(parse_printers);

/// Returns the printer of a kind; the default prints name and age.
pub(super) fn printer_for(group: &str, kind: &str) -> &'static TablePrinter {
    let known = PRINTERS.iter().find(|(printed, _)| *printed == (group, kind));
    &known.unwrap_or(&PRINTERS[0]).1
}

impl TablePrinter {
    /// Evaluates the cells of a row.
    pub fn row_cells(&self, row: &PrintedObject) -> Vec<Value> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for cell in &self.cells {
            match cell.evaluate(row) {
                Value::Array(several) => cells.extend(several),
                one => cells.push(one),
            }
        }
        cells
    }

    fn from_flags(flags: &'static str) -> Self {
        let mut printer = Self::default();
        for (word, argument) in flags.split_whitespace().filter_map(|flag| flag.strip_suffix(')')?.split_once('(')) {
            match word {
                "reads" => {
                    printer.source_version =
                        argument.split_once('/').map(|(group, v)| (group.trim_start_matches("core"), v))
                }
                "marks" => printer.row_conditions = Some(printer_functions::find_function(&argument[1..])),
                "sorted" => printer.sort_path = Some(argument),
                _ => {}
            }
        }
        printer
    }

    fn parse_line(&mut self, line: &'static str) {
        let line = match line {
            "name" => NAME_COLUMN,
            "age" => AGE_COLUMN,
            line => line,
        };
        let (columns, cell) = line.split_once(" = ").unwrap_or_else(|| panic!("a column has cells: {line}"));
        self.columns.extend(columns.split(" & ").filter(|column| *column != "-").map(ColumnDefinition::parse));
        self.cells.push(CellExpression::parse(cell));
    }
}

impl ColumnDefinition {
    /// Parses `Ready:integer/name@1`.
    fn parse(text: &'static str) -> Self {
        let (text, priority) = text.split_once('@').map_or((text, 0), |(text, _)| (text, 1));
        let (text, format) = text.split_once('/').unwrap_or((text, ""));
        let (name, ty) = text.split_once(':').unwrap_or((text, "string"));
        Self { name, ty, format, priority }
    }
}

fn parse_printers() -> PrinterTable {
    let mut printers = PrinterTable::new();
    let lines: Vec<&str> = COLUMN_TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    for block in lines.chunk_by(|_, line| line.starts_with(' ')) {
        let (kinds, flags) = block[0].split_once(':').expect("a block has kinds");
        let groups =
            flags.split_once("of(").and_then(|(_, rest)| rest.split_once(')')).map_or("", |(groups, _)| groups);
        for (group, kind) in groups.split(',').flat_map(|group| kinds.split(' ').map(move |kind| (group, kind))) {
            let mut printer = TablePrinter::from_flags(flags);
            block[1..].iter().for_each(|line| printer.parse_line(line.trim()));
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
    fn every_printer_fills_its_columns_for_an_empty_object() {
        let object = json!({"metadata": {"name": "x"}});
        let row = PrintedObject { object: &object, now: Timestamp::UNIX_EPOCH };
        for ((_, kind), printer) in PRINTERS.iter() {
            // Upstream's rows of addresses have an age without a column.
            let extra = usize::from(*kind == "IPAddress");
            assert_eq!(printer.row_cells(&row).len(), printer.columns.len() + extra, "{kind}");
        }
    }
}
