//! `cargo xtask upstream`: builds upstream's programs from their Go modules, to compare with and to test with.
//!
//! `conformance/programs.txt` names them, the modules beside it pin their versions. They land in
//! `${XDG_CACHE_HOME:-~/.cache}/ferry/upstream` and are built once per version.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{cache_dir, process, process::step, repository};

/// Build upstream programs into the cache and print where they are
#[derive(Debug, clap::Args)]
pub struct UpstreamArgs {
    /// Which programs of `conformance/programs.txt`
    #[arg(required = true)]
    programs: Vec<String>,
}

pub fn run(args: &UpstreamArgs) -> Result<()> {
    for name in &args.programs {
        println!("{}", ensure_built(name)?.display());
    }
    Ok(())
}

/// The path of a program of `conformance/programs.txt`, built if it is not there.
pub fn ensure_built(name: &str) -> Result<PathBuf> {
    let conformance = repository().join("conformance");
    let table = fs::read_to_string(conformance.join("programs.txt")).context("conformance/programs.txt")?;
    let Some(program) = table.lines().filter_map(UpstreamProgram::parse).find(|program| program.name == name) else {
        bail!("conformance/programs.txt has no {name:?}");
    };
    program.ensure(&conformance)
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct UpstreamProgram<'a> {
    name: &'a str,
    /// The folder of its module.
    module: &'a str,
    package: &'a str,
    /// Build tags, or nothing.
    tags: &'a str,
}

impl<'a> UpstreamProgram<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (name, module, package) = (words.next()?, words.next()?, words.next()?);
        (name != "#").then(|| Self { name, module, package, tags: words.next().unwrap_or_default() })
    }

    /// The path of the program, built if it is not there.
    fn ensure(&self, conformance: &Path) -> Result<PathBuf> {
        let module = conformance.join(self.module);
        let pins = fs::read_to_string(module.join("go.mod")).with_context(|| module.display().to_string())?;
        let version = version(&pins, self.package)
            .with_context(|| format!("{}/go.mod requires nothing that holds {}", self.module, self.package))?;
        let path = cache_dir("upstream")?.join(format!("{}-{version}", self.name));
        if !path.is_file() {
            step(&format!("build {} {version}", self.name), || self.build(&module, version, &path))?;
        }
        Ok(path)
    }

    /// Builds under another name first, so that a file under the final name is always whole.
    fn build(&self, module: &Path, version: &str, path: &Path) -> Result<()> {
        let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut go = Command::new("go");
        go.arg("-C").arg(module).env("CGO_ENABLED", "0");
        // A suite of tests is compiled by another command than a program.
        let verb: &[&str] = if self.name.ends_with(".test") { &["test", "-c"] } else { &["build"] };
        go.args(verb).args(["-tags", self.tags, "-ldflags", &linked(version), "-o"]);
        process::run(go.arg(&unfinished).arg(self.package))?;
        fs::rename(&unfinished, path).context("cannot move the program into place")
    }
}

/// The version of the required module that holds the package: the one with the longest name.
fn version<'a>(pins: &'a str, package: &str) -> Option<&'a str> {
    let holds =
        |module: &str| package.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let lines = pins.lines().map(|line| line.trim().trim_start_matches("require "));
    let words = lines.filter(|line| !line.contains("=>")).filter_map(|line| line.split_once(' '));
    let pinned = words.filter(|(module, _)| holds(module)).max_by_key(|(module, _)| module.len())?;
    pinned.1.split_whitespace().next()
}

/// Kubernetes' programs learn their version from the linker; others do not look there. Its modules have the number 0.36 where it
/// has 1.36.
fn linked(version: &str) -> String {
    let version = &version.strip_prefix("v0.").map_or_else(|| version.to_owned(), |rest| format!("v1.{rest}"));
    let bare = version.trim_start_matches('v');
    let (major, rest) = bare.split_once('.').unwrap_or((bare, ""));
    let minor = rest.split('.').next().unwrap_or_default();
    let base = "k8s.io/component-base/version";
    format!(
        "-s -w -X {base}.gitVersion={version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={version}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_comments_are_not() {
        let row = UpstreamProgram { name: "ctr", module: "modules/c", package: "x.io/c/cmd/ctr", tags: "no_btrfs" };
        assert_eq!(UpstreamProgram::parse("ctr  modules/c x.io/c/cmd/ctr no_btrfs"), Some(row));
        assert_eq!(UpstreamProgram::parse("# Programs that are built"), None);
        assert_eq!(UpstreamProgram::parse(""), None);
    }

    #[test]
    fn the_version_is_that_of_the_longest_module() {
        let pins = "module m\n\nrequire (\n\tx.io/a v1.0.0\n\tx.io/a/b v2.0.0 // indirect\n)\nrequire y.io/c v3.1.4\n\
                    replace (\n\tx.io/a/b/c => x.io/a/b/c v9.0.0\n)\n";
        for (package, wanted) in [
            ("x.io/a/cmd/d", Some("v1.0.0")),
            ("x.io/a/b", Some("v2.0.0")),
            ("x.io/a/b/c", Some("v2.0.0")),
            ("x.io/ab", None),
            ("y.io/c/cmd", Some("v3.1.4")),
        ] {
            assert_eq!(version(pins, package), wanted, "{package}");
        }
    }

    #[test]
    fn every_program_has_a_pinned_version() {
        let conformance = repository().join("conformance");
        let table = fs::read_to_string(conformance.join("programs.txt")).unwrap();
        for program in table.lines().filter_map(UpstreamProgram::parse) {
            let pins = fs::read_to_string(conformance.join(program.module).join("go.mod")).unwrap();
            assert!(version(&pins, program.package).is_some(), "{}", program.name);
        }
    }
}
