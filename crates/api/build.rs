//! Joins the type tables and the rule tables, each after a line with `@` and its name; extracts the descriptions of
//! types and fields for `kubectl explain` from the sources of the `k8s-openapi` crate.
//!
//! Descriptions are written to `descriptions.txt`: `@component<tab>text`, then `field<tab>text` per field, with JSON
//! escapes. Without the crate's sources there are no descriptions.

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of `k8s-openapi` with the served API version.
const API_FOLDER: &str = "src/v1_36";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=schema");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let mut text = String::new();
    match find_with_cargo().or_else(find_in_registry) {
        Some(folder) => read_folder(&folder, &mut text)?,
        None => println!("cargo::warning=k8s-openapi sources not found: OpenAPI documents will have no descriptions"),
    }
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    fs::write(out.join("descriptions.txt"), text)?;
    for tables in ["types", "rules"] {
        fs::write(out.join(tables).with_extension("txt"), join_tables(&Path::new("schema").join(tables))?)?;
    }
    Ok(())
}

/// Joins the tables of a folder, sorted by name.
fn join_tables(folder: &Path) -> io::Result<String> {
    let mut out = String::new();
    for path in sorted_paths(folder)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "@{name}\n{}", fs::read_to_string(&path)?);
    }
    Ok(out)
}

fn sorted_paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Finds the crate with `cargo metadata`, which fails until all crates of the workspace are downloaded.
fn find_with_cargo() -> Option<PathBuf> {
    let target = env::var("TARGET").ok()?;
    let arguments = ["metadata", "--offline", "--format-version=1", "--filter-platform", &target];
    let answer = Command::new(env::var_os("CARGO")?).args(arguments).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let folders =
        text.match_indices("/Cargo.toml\"").filter_map(|(end, _)| Some(&text[text[..end].rfind('"')? + 1..end]));
    let mut openapi =
        folders.filter(|folder| folder.rsplit('/').next().is_some_and(|name| name.starts_with("k8s-openapi")));
    openapi.next().map(|folder| Path::new(folder).join(API_FOLDER)).filter(|folder| folder.is_dir())
}

/// Finds the crate among cargo's unpacked registry sources.
fn find_in_registry() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))?;
    let crates =
        fs::read_dir(home.join("registry/src")).ok()?.flatten().filter_map(|index| fs::read_dir(index.path()).ok());
    let folders = crates.flat_map(|entries| entries.flatten().map(|entry| entry.path()));
    let openapi =
        folders.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("k8s-openapi-")));
    openapi.map(|path| path.join(API_FOLDER)).find(|folder| folder.is_dir())
}

/// Reads all files of a folder recursively, sorted by name.
fn read_folder(folder: &Path, out: &mut String) -> io::Result<()> {
    for path in sorted_paths(folder)? {
        if path.is_dir() {
            read_folder(&path, out)?;
        } else {
            extract_descriptions(&fs::read_to_string(&path)?, out);
        }
    }
    Ok(())
}

/// Extracts the descriptions from the generated schema of a file; indentation tells types from fields.
fn extract_descriptions(file: &str, out: &mut String) {
    let Some(component) = file.lines().next().and_then(|line| line.strip_prefix("// Generated from definition "))
    else {
        return;
    };
    let schema =
        file.lines().skip_while(|line| !line.ends_with("json_schema!({")).take_while(|line| *line != "        })");
    let mut field = "";
    for line in schema {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        match (indent, description_text(line)) {
            // Writing to a String cannot fail.
            (12, Some(text)) => _ = writeln!(out, "@{component}\t{text}"),
            (20, Some(text)) => _ = writeln!(out, "{field}\t{text}"),
            (16, None) => {
                field = line.strip_prefix('"').and_then(|rest| rest.split_once("\": ")).map_or(field, |(name, _)| name)
            }
            _ => {}
        }
    }
}

/// Returns the description in a line.
fn description_text(line: &str) -> Option<&str> {
    let plain = line.strip_prefix("\"description\": \"").and_then(|rest| rest.strip_suffix("\","));
    plain.or_else(|| line.split_once("insert(\"description\".into(), \"")?.1.strip_suffix("\".into());"))
}
