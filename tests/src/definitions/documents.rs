//! YAML documents in the files of a module: those of YAML files, and those in examples of texts and comments.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Shows every document below a folder, in the order of paths.
pub fn visit(folder: &Path, examples: bool, show: &mut impl FnMut(&Path, &str)) {
    for path in files(folder) {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        // What is no text is no YAML.
        let text = || fs::read_to_string(&path).unwrap_or_default();
        match end {
            "yaml" | "yml" => split(&text()).into_iter().for_each(|document| show(&path, document)),
            "md" | "proto" if examples => {
                for example in fenced(&text()) {
                    split(&example).into_iter().for_each(|document| show(&path, document));
                }
            }
            _ => {}
        }
    }
}

/// The files below a folder, in the order of their paths.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        match entry.file_type().expect("a type").is_dir() {
            true => out.extend(files(&entry.path())),
            false => out.push(entry.path()),
        }
    }
    out
}

/// Blocks of YAML in a text, without what its lines begin with: space, or the marks of a comment.
fn fenced(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines() {
        let fence = line.split_once("```");
        match (&mut open, fence) {
            (None, Some((before, "yaml" | "yml"))) => open = Some((before, String::new())),
            (Some(_), Some(_)) => out.extend(open.take().map(|(_, block)| block)),
            (Some((before, block)), None) => {
                *block += line.strip_prefix(*before).unwrap_or_default();
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    out
}

/// The documents of a file: lines `---`, with a comment or not, are between them.
fn split(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            out.push(&text[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    out.push(&text[start..]);
    out
}

/// A plain value at the top of a document.
pub fn top<'a>(document: &'a str, key: &str) -> Option<&'a str> {
    document.lines().find_map(|line| plain(line.strip_prefix(key)?.strip_prefix(':')?))
}

/// The `metadata.name` of a document.
pub fn name(document: &str) -> Option<String> {
    let below = document.lines().skip_while(|line| line.trim_end() != "metadata:").skip(1);
    let mut inside = below.take_while(|line| line.starts_with([' ', '#']));
    inside.find_map(|line| plain(line.strip_prefix("  name:")?)).map(str::to_owned)
}

/// A scalar without its quotes; nothing where a template would put one.
fn plain(text: &str) -> Option<&str> {
    let text = text.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    (!text.is_empty() && !text.contains("{{")).then_some(text)
}
