//! `cargo xtask tidy`: the habits of this repository that a program can check. Its tests check the repository itself.

mod code;
mod crates;
mod modules;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use self::code::StrippedCode;

const MAX_LINES: usize = 600;
const VAGUE_NAMES: [&str; 4] = ["common", "utils", "helpers", "misc"];
/// Crates that may contain `unsafe`.
const MAY_BE_UNSAFE: [&str; 2] = ["crates/sys", "crates/runtime"];

/// Something to mend.
#[derive(Debug, PartialEq, Eq)]
struct TidyProblem {
    /// Relative to the repository.
    file: PathBuf,
    /// Counted from 1; 0: the file as a whole.
    line: usize,
    rule: String,
}

impl TidyProblem {
    fn new(file: &Path, line: usize, rule: impl Into<String>) -> Self {
        Self { file: file.into(), line, rule: rule.into() }
    }
}

impl fmt::Display for TidyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.rule),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.rule),
        }
    }
}

pub fn run(repository: &Path) -> Result<()> {
    let problems = check(repository)?;
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    if !problems.is_empty() {
        bail!("{} untidy", problems.len());
    }
    Ok(())
}

fn check(repository: &Path) -> Result<Vec<TidyProblem>> {
    let mut problems = crates::check(repository)?;
    let folders = ["crates", "examples", "tests", "xtask"].map(|folder| repository.join(folder));
    let files = folders.into_iter().try_fold(Vec::new(), rust_files)?;
    let files = files.iter().map(|file| file.strip_prefix(repository)).collect::<Result<Vec<_>, _>>()?;
    for file in &files {
        let text = fs::read_to_string(repository.join(file)).with_context(|| file.display().to_string())?;
        check_file(file, &text, &mut problems);
    }
    // The sources of a crate are in one folder, and the files are sorted.
    for sources in files.chunk_by(|a, b| source_folder(a) == source_folder(b)) {
        if let Some(folder) = source_folder(sources[0]) {
            problems.extend(modules::check(repository, &folder, sources)?);
        }
    }
    Ok(problems)
}

/// `…/src` of the crate that a source file belongs to; `None` for other files.
fn source_folder(file: &Path) -> Option<PathBuf> {
    file.ancestors().find(|folder| folder.ends_with("src")).map(Path::to_owned)
}

/// Adds the Rust files under `dir`, in a steady order.
fn rust_files(mut found: Vec<PathBuf>, dir: PathBuf) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            found = rust_files(found, path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

fn check_file(file: &Path, text: &str, problems: &mut Vec<TidyProblem>) {
    let mut add = |line, rule: String| problems.push(TidyProblem::new(file, line, rule));
    let in_crate_sources =
        file.starts_with("crates") && file.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
    if in_crate_sources && !text.starts_with("//!") {
        add(1, "a module begins with `//!` and says what it is for".into());
    }
    let lines = text.lines().count();
    if in_crate_sources && lines > MAX_LINES {
        add(0, format!("{lines} lines; a file is one concept and has at most {MAX_LINES}"));
    }
    for part in file.iter().filter_map(|part| Path::new(part).file_stem()) {
        if VAGUE_NAMES.iter().any(|vague| part == *vague) {
            add(0, vague(&part.to_string_lossy()));
        }
    }
    let may_be_unsafe = MAY_BE_UNSAFE.iter().any(|dir| file.starts_with(dir));
    for (number, line) in StrippedCode::of(text).lines().enumerate() {
        for rule in check_line(&line, may_be_unsafe) {
            add(number + 1, rule);
        }
    }
}

/// Checks a line of code without comments and literals.
fn check_line(line: &str, may_be_unsafe: bool) -> Vec<String> {
    let words: Vec<_> =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let dense: String = line.split_whitespace().collect();
    let mut rules = Vec::new();
    if dense.contains("#[ignore") {
        rules.push("no test is ignored".into());
    }
    for word in ["todo", "unimplemented"].iter().filter(|word| words.contains(word)) {
        if dense.contains(&format!("{word}!")) {
            rules.push(format!("no `{word}!`: what is not supported is refused by name"));
        }
    }
    if words.contains(&"unsafe") && !may_be_unsafe {
        rules.push(format!("`unsafe` belongs into {}", MAY_BE_UNSAFE.join(" and ")));
    }
    if let Some(pair) = words.windows(2).find(|pair| pair[0] == "mod" && VAGUE_NAMES.contains(&pair[1])) {
        rules.push(vague(pair[1]));
    }
    rules
}

fn vague(name: &str) -> String {
    format!("`{name}` says nothing; name it after what is in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let problems = check(crate::repository()).unwrap();
        let list: Vec<_> = problems.iter().map(TidyProblem::to_string).collect();
        assert!(list.is_empty(), "\n{}\n", list.join("\n"));
    }

    #[test]
    fn searches_of_the_documentation_find_the_code() {
        let repository = crate::repository();
        let page = fs::read_to_string(repository.join("docs/find-the-code.md")).unwrap();
        let cells = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        // The header and the line below it have no code.
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with('|')).map(cells).skip(2).collect();
        assert!(rows.len() >= 10, "{rows:?}");
        for row in rows {
            let [.., pattern, file] = row.as_slice() else { panic!("a row without a search and a file: {row:?}") };
            let text = fs::read_to_string(repository.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.to_lowercase().contains(&pattern.to_lowercase()), "{file} lacks {pattern}");
        }
    }

    fn expect(file: &str, text: &str, lines: &[usize]) {
        let mut problems = Vec::new();
        check_file(Path::new(file), text, &mut problems);
        assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), lines, "{text}");
    }

    #[test]
    fn each_rule_finds_its_line() {
        let file = "crates/api/src/a.rs";
        expect(file, "//! A.\n\nfn a() {}\n", &[]);
        expect(file, "fn a() {}\n", &[1]);
        expect(file, &"//! A.\n".repeat(601), &[0]);
        expect("crates/api/src/utils.rs", "//! A.\n", &[0]);
        expect("crates/api/src/misc/a.rs", "//! A.\n", &[0]);
        expect(file, "//! A.\nmod helpers;\n", &[2]);
        expect(file, "//! A.\n#[test]\n#[ignore = \"slow\"]\n", &[3]);
        expect(file, "//! A.\nfn a() { todo!() }\nfn b() { unimplemented!(\"x\") }\n", &[2, 3]);
        expect(file, "//! A.\nfn a() { unsafe { b() } }\n", &[2]);
        expect("crates/sys/src/a.rs", "//! A.\nfn a() { unsafe { b() } }\n", &[]);
        expect(file, "//! todo!\n// unsafe\nconst A: &str = \"unsafe\"; /* #[ignore] */\n", &[]);
    }
}
