//! Joins the tables of types and of rules, each after a line with `@` and its name, so that a new one is a file and no more;
//! takes the descriptions of types and fields, which `kubectl explain` shows, from the sources of the `k8s-openapi` crate.
//!
//! Descriptions are read where cargo has put them and kept as `descriptions.txt`: `@component<tab>text`, then `field<tab>text` for
//! each of its fields, the texts with the escapes of JSON. Where the crate is not found there are no descriptions.

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of `k8s-openapi` with the API of the version that is served.
const API: &str = "src/v1_36";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=schema");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let mut text = String::new();
    match from_cargo().or_else(from_registry) {
        Some(folder) => read(&folder, &mut text)?,
        None => println!("cargo::warning=k8s-openapi is not here: OpenAPI documents will have no descriptions"),
    }
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    fs::write(out.join("descriptions.txt"), text)?;
    for tables in ["types", "rules"] {
        fs::write(out.join(tables).with_extension("txt"), joined(&Path::new("schema").join(tables))?)?;
    }
    Ok(())
}

/// The tables in a folder, in the order of their names.
fn joined(folder: &Path) -> io::Result<String> {
    let mut out = String::new();
    for path in sorted(folder)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "@{name}\n{}", fs::read_to_string(&path)?);
    }
    Ok(out)
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Where cargo says that the crate is; it says nothing before all crates of the workspace are there.
fn from_cargo() -> Option<PathBuf> {
    let target = env::var("TARGET").ok()?;
    let arguments = ["metadata", "--offline", "--format-version=1", "--filter-platform", &target];
    let answer = Command::new(env::var_os("CARGO")?).args(arguments).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let folders =
        text.match_indices("/Cargo.toml\"").filter_map(|(end, _)| Some(&text[text[..end].rfind('"')? + 1..end]));
    let mut openapi =
        folders.filter(|folder| folder.rsplit('/').next().is_some_and(|name| name.starts_with("k8s-openapi")));
    openapi.next().map(|folder| Path::new(folder).join(API)).filter(|folder| folder.is_dir())
}

/// Where cargo unpacks crates of a registry.
fn from_registry() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))?;
    let crates =
        fs::read_dir(home.join("registry/src")).ok()?.flatten().filter_map(|index| fs::read_dir(index.path()).ok());
    let folders = crates.flat_map(|entries| entries.flatten().map(|entry| entry.path()));
    let openapi =
        folders.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("k8s-openapi-")));
    openapi.map(|path| path.join(API)).find(|folder| folder.is_dir())
}

/// Reads all files below a folder, in the order of their names.
fn read(folder: &Path, out: &mut String) -> io::Result<()> {
    for path in sorted(folder)? {
        if path.is_dir() {
            read(&path, out)?;
        } else {
            describe(&fs::read_to_string(&path)?, out);
        }
    }
    Ok(())
}

/// Takes the descriptions out of the schema that a file has for its type. The files are written by a program: how far a line
/// is indented says what it describes.
fn describe(file: &str, out: &mut String) {
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
        match (indent, text(line)) {
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

/// What a line says a description is.
fn text(line: &str) -> Option<&str> {
    let plain = line.strip_prefix("\"description\": \"").and_then(|rest| rest.strip_suffix("\","));
    plain.or_else(|| line.split_once("insert(\"description\".into(), \"")?.1.strip_suffix("\".into());"))
}
