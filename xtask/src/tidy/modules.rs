//! Modules of a crate use each other in one direction.
//!
//! Looked at on every level of the module tree: a module stands for itself and the modules below it, and modules with the
//! same parent must not form a cycle. What a parent and its children use of each other does not count. A path through a
//! re-export leads to the module that has the item. The tests of a module may use any other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};

use super::{TidyProblem, code::StrippedCode};

/// A module or an item, by the names from the root of the crate.
type ItemPath = Vec<String>;

/// Finds the cycles of one crate whose sources are in `sources`; `files` are relative to the repository.
pub fn check(repository: &Path, sources: &Path, files: &[&Path]) -> Result<Vec<TidyProblem>> {
    let mut modules = ModuleTree::default();
    for file in files {
        let text = fs::read_to_string(repository.join(file)).with_context(|| file.display().to_string())?;
        modules.add_file(module_path(file.strip_prefix(sources)?), &text);
    }
    modules.resolve_paths();
    Ok(modules.cycles().into_iter().map(|cycle| TidyProblem::new(sources, 0, cycle)).collect())
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; `lib.rs` is the root.
fn module_path(file: &Path) -> ItemPath {
    let mut path: ItemPath = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    path.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    path
}

#[derive(Debug, Default)]
struct ModuleTree {
    modules: BTreeMap<ItemPath, Module>,
}

#[derive(Debug, Default)]
struct Module {
    /// Code without comments, literals and tests.
    code: String,
    /// Paths of this crate that the code names.
    uses: BTreeSet<ItemPath>,
    /// Names that `use` declarations bring into the module.
    imports: BTreeMap<String, ItemPath>,
}

impl ModuleTree {
    fn add_file(&mut self, path: ItemPath, text: &str) {
        let is_test = path.iter().any(|name| name == "tests" || name.ends_with("_tests"));
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code =
            if is_test { String::new() } else { StrippedCode::of(shipped).lines().collect::<Vec<_>>().join(" ") };
        self.modules.insert(path, Module { code, ..Module::default() });
    }

    /// Collects what each module uses; all modules must have been added.
    fn resolve_paths(&mut self) {
        let paths: Vec<_> = self.modules.keys().cloned().collect();
        for path in paths {
            let code = std::mem::take(&mut self.modules.get_mut(&path).expect("a key of the map").code);
            let (mut uses, mut imports) = (BTreeSet::new(), BTreeMap::new());
            for declaration in use_declarations(&code) {
                for leaf in use_leaves(declaration) {
                    let (item, alias) = leaf.split_once(" as ").unwrap_or((&leaf, ""));
                    let Some(item) = self.absolute(&path, item) else { continue };
                    let name =
                        if alias.is_empty() { item.last().cloned().unwrap_or_default() } else { alias.trim().into() };
                    uses.insert(item.clone());
                    imports.insert(name, item);
                }
            }
            uses.extend(inline_paths(&code).filter_map(|item| self.absolute(&path, item)));
            self.modules.insert(path, Module { code, uses, imports });
        }
    }

    /// The path from the root, if `item` is of this crate.
    fn absolute(&self, module: &[String], item: &str) -> Option<ItemPath> {
        let mut names: ItemPath = item.split("::").map(|name| name.trim().to_owned()).collect();
        names.pop_if(|last| last == "self" || last.is_empty());
        let mut base = module.to_vec();
        match names.first()?.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                let depth = names.iter().take_while(|name| *name == "super").count();
                base.truncate(base.len().saturating_sub(depth));
                names.drain(1..depth);
            }
            first => {
                base.push(first.to_owned());
                self.modules.get(&base)?;
            }
        }
        base.extend(names.into_iter().skip(1));
        Some(base)
    }

    /// The module that has the item, behind re-exports.
    fn module_of(&self, item: &[String], depth: usize) -> ItemPath {
        let known = (0..=item.len()).rev().find(|length| self.modules.contains_key(&item[..*length])).unwrap_or(0);
        let (module, rest) = item.split_at(known);
        let import = rest.first().and_then(|name| self.modules.get(module)?.imports.get(name));
        match import.filter(|import| *import != item && depth < 8) {
            Some(import) => self.module_of(&[import, &rest[1..]].concat(), depth + 1),
            None => module.to_vec(),
        }
    }

    /// The cycles, each with the first use that takes part in it.
    fn cycles(&self) -> Vec<String> {
        let mut levels: BTreeMap<ItemPath, SiblingGraph> = BTreeMap::new();
        for (user, module) in &self.modules {
            for item in &module.uses {
                let used = self.module_of(item, 0);
                let common = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (user.get(common), used.get(common)) {
                    let edge = format!("`{}` uses `{}`", user.join("::"), item.join("::"));
                    levels.entry(user[..common].to_vec()).or_default().add(from, to, edge);
                }
            }
        }
        levels.values().flat_map(SiblingGraph::cycles).collect()
    }
}

/// Modules with the same parent: for each the ones that it uses, with a use as evidence.
#[derive(Debug, Default)]
struct SiblingGraph(BTreeMap<String, BTreeMap<String, String>>);

impl SiblingGraph {
    fn add(&mut self, from: &str, to: &str, evidence: String) {
        self.0.entry(from.into()).or_default().entry(to.into()).or_insert(evidence);
    }

    /// A line per module that uses itself by way of others.
    fn cycles(&self) -> Vec<String> {
        let in_cycle = |from: &String, to: &String| self.reaches(to, from, &mut BTreeSet::new());
        let edges = self.0.iter().flat_map(|(from, uses)| uses.iter().map(move |(to, evidence)| (from, to, evidence)));
        let cyclic = edges.filter(|(from, to, _)| in_cycle(from, to));
        cyclic.map(|(from, to, evidence)| format!("`{from}` and `{to}` are in a cycle: {evidence}")).collect()
    }

    fn reaches<'a>(&'a self, from: &'a str, to: &str, seen: &mut BTreeSet<&'a str>) -> bool {
        from == to
            || seen.insert(from)
                && self.0.get(from).is_some_and(|uses| uses.keys().any(|next| self.reaches(next, to, seen)))
    }
}

/// The trees of `use` declarations, without `use` and the semicolon.
fn use_declarations(code: &str) -> impl Iterator<Item = &str> {
    let starts = code.match_indices("use ").filter(|(at, _)| !code[..*at].ends_with(is_name_character));
    starts.filter_map(|(at, word)| code[at + word.len()..].split(';').next())
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d`, `a::c::e`.
fn use_leaves(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, inner)) = tree.split_once('{') else {
        return if tree.is_empty() { Vec::new() } else { vec![tree.to_owned()] };
    };
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.flat_map(use_leaves).map(|leaf| format!("{}{leaf}", prefix.trim())).collect()
}

/// Paths outside of `use` declarations that begin with `crate`, `super` or `self`.
fn inline_paths(code: &str) -> impl Iterator<Item = &str> {
    let starts = ["crate::", "super::", "self::"].into_iter().flat_map(|first| code.match_indices(first));
    starts.filter(|(at, _)| !code[..*at].ends_with(|c| is_name_character(c) || c == ':')).map(|(at, _)| {
        let path = &code[at..];
        let end = path.find(|c: char| !is_name_character(c) && c != ':').unwrap_or(path.len());
        path[..end].trim_end_matches(':')
    })
}

fn is_name_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let mut modules = ModuleTree::default();
        for (file, text) in files {
            modules.add_file(module_path(Path::new(file)), text);
        }
        modules.resolve_paths();
        modules.cycles()
    }

    #[test]
    fn one_direction_is_no_cycle() {
        let files = [("lib.rs", "mod a;\nmod b;"), ("a.rs", "use crate::b::{self, B};"), ("b.rs", "use super::C;")];
        assert_eq!(cycles(&files), [""; 0]);
    }

    #[test]
    fn cycle_of_siblings_is_found_on_every_level() {
        let first = "`a` and `b` are in a cycle: `a::c` uses `b::B`";
        let files =
            [("lib.rs", ""), ("a.rs", ""), ("a/c.rs", "use crate::b::B;"), ("b.rs", "fn f() -> crate::a::A {}")];
        assert_eq!(cycles(&files), [first, "`b` and `a` are in a cycle: `b` uses `a::A`"]);
        let nested =
            [("lib.rs", ""), ("a.rs", ""), ("a/c.rs", "use super::d;"), ("a/d.rs", "use super::{c::{C as D}};")];
        assert_eq!(cycles(&nested).len(), 2);
    }

    #[test]
    fn path_through_a_reexport_leads_to_the_module_of_the_item() {
        let files = [("lib.rs", "pub use self::b::B;"), ("a.rs", "use crate::B;"), ("b.rs", "use crate::a;")];
        assert_eq!(cycles(&files).len(), 2);
    }

    #[test]
    fn tests_comments_and_parents_do_not_count() {
        let a = "// use crate::b;\nconst S: &str = \"crate::b\";\n#[cfg(test)]\nmod tests { use crate::b; }";
        assert_eq!(cycles(&[("lib.rs", "use a::A;"), ("a.rs", a), ("b.rs", "use crate::{X, a};")]), [""; 0]);
    }
}
