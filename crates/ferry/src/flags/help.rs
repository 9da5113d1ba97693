//! What `--help` shows: every flag under upstream's headings, with its type, its default and whether it has an effect.

use super::{Flag, Kind, State, Table};

const WIDTH: usize = 46;

/// The whole text.
pub fn text(table: &Table, component: &str, about: &str) -> String {
    let mut out = format!("{about}\n\nUsage:\n  {component} [flags]\n");
    let mut section = "";
    for flag in table.flags() {
        if flag.section != section {
            section = flag.section;
            out += &format!("\n{section}:\n\n");
        }
        out += &line(flag);
    }
    out
}

fn line(flag: &Flag) -> String {
    let short = match flag.name {
        "v" => "-v, ",
        "help" => "-h, ",
        _ => "    ",
    };
    let value = if flag.kind() == Kind::Bool { String::new() } else { format!(" {}", flag.type_name) };
    let default = if flag.default.is_empty() { String::new() } else { format!(" (default {})", flag.default) };
    let state = match flag.state {
        State::Used => "",
        State::Ignored => " [no effect here]",
        State::Refused => " [not supported]",
    };
    format!("  {:<WIDTH$} {}{default}{state}\n", format!("{short}--{}{value}", flag.name), flag.help)
}
