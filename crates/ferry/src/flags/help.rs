//! Renders `--help`: every flag under upstream's headings, with its type, its default and whether it has an effect.

use super::{FlagDefinition, FlagStatus, FlagTable, ValueKind};

const WIDTH: usize = 46;

/// The whole text.
pub fn render_help(table: &FlagTable, component: &str, about: &str) -> String {
    let mut out = format!("{about}\n\nUsage:\n  {component} [flags]\n");
    let mut section = "";
    for flag in table.flags() {
        if flag.section != section {
            section = flag.section;
            out += &format!("\n{section}:\n\n");
        }
        out += &render_flag(flag);
    }
    out
}

fn render_flag(flag: &FlagDefinition) -> String {
    let short = match flag.name {
        "v" => "-v, ",
        "help" => "-h, ",
        _ => "    ",
    };
    let value = if flag.kind() == ValueKind::Bool { String::new() } else { format!(" {}", flag.type_name) };
    let default = if flag.default.is_empty() { String::new() } else { format!(" (default {})", flag.default) };
    let state = match flag.state {
        FlagStatus::Used => "",
        FlagStatus::Ignored => " [no effect here]",
        FlagStatus::Refused => " [not supported]",
    };
    format!("  {:<WIDTH$} {}{default}{state}\n", format!("{short}--{}{value}", flag.name), flag.help)
}
