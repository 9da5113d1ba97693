//! Custom resource definitions that others wrote, from their Go modules, for tests and benchmarks.
//!
//! Every YAML file of the modules is read. What has the shape of a definition is kept once per name: from the folder that the
//! module installs from, else from the first path. Nothing is copied here, so all of it is absent where Go cannot fetch.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::run;

/// The modules, and the folders in them whose definitions count when others have the same name, best first.
const MODULES: &[(&str, &[&str])] = &[
    ("github.com/cert-manager/cert-manager@v1.21.2", &["deploy/crds"]),
    ("github.com/prometheus-operator/prometheus-operator@v0.85.0", &["example/prometheus-operator-crd"]),
    ("github.com/argoproj/argo-cd/v3@v3.5.6", &["manifests/crds"]),
    ("github.com/kedacore/keda/v2@v2.21.0", &["config/crd/bases"]),
    ("sigs.k8s.io/cluster-api@v1.14.2", &["cmd/clusterctl/config/crd/bases"]),
    ("istio.io/api@v1.31.1", &["kubernetes"]),
    ("sigs.k8s.io/gateway-api@v1.6.3", &["config/crd/standard", "config/crd/experimental"]),
];

/// What kube-apiserver does not accept: it has no schema. argo-cd has it to test what it says of definitions.
const REFUSED: &str = "examples.example.io";

/// What is accepted, but not counted.
const OLD_YAML: &str = "alertmanagerconfigs.monitoring.coreos.com";

/// A document of a module.
#[derive(Clone, Debug)]
pub struct Document {
    /// The module, with its version.
    pub module: &'static str,
    /// The file's path in the module.
    pub path: String,
    /// The YAML text.
    pub text: String,
}

/// A definition.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its `metadata.name`.
    pub name: String,
    /// Where it is from, and what it says.
    pub document: Document,
}

/// All definitions of the modules, in the order of their names.
#[derive(Default)]
pub struct Definitions {
    /// The 94 that kube-apiserver accepts and was measured with.
    pub counted: Vec<Definition>,
    /// Accepted as well: written with a bare `=`, it is what readers of YAML 1.1 cannot read, so it was not measured.
    pub more: Vec<Definition>,
    /// Refused by kube-apiserver; one for each file that has it.
    pub refused: Vec<Definition>,
    /// In a version of the API that is served no more.
    pub outdated: Vec<Definition>,
}

impl Definitions {
    /// The list that a definition belongs to.
    fn of(&mut self, definition: &Definition) -> &mut Vec<Definition> {
        match definition.name.as_str() {
            _ if top(&definition.document.text, "apiVersion") != Some("apiextensions.k8s.io/v1") => &mut self.outdated,
            REFUSED => &mut self.refused,
            OLD_YAML => &mut self.more,
            _ => &mut self.counted,
        }
    }
}

/// Where the modules are; `None`, said aloud, where Go or one of them is absent.
pub struct Modules(Vec<(&'static str, &'static [&'static str], PathBuf)>);

impl Modules {
    /// Has Go fetch them, unless it has them.
    pub fn fetch() -> Option<Self> {
        let found = MODULES.iter().map(|&(name, folders)| Some((name, folders, directory(name)?)));
        found.collect::<Option<Vec<_>>>().map(Self)
    }

    /// Every YAML document whose text has a line `kind: <kind>` for which `wanted` is true.
    pub fn documents(&self, wanted: impl Fn(&str) -> bool) -> Vec<Document> {
        let mut out = Vec::new();
        for (module, _, root) in &self.0 {
            for path in files(root) {
                // What is no text is no YAML.
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let path = path.strip_prefix(root).expect("below the root").display().to_string();
                let wanted = |document: &&str| top(document, "kind").is_some_and(&wanted);
                let document = |text: &str| Document { module, path: path.clone(), text: text.to_owned() };
                out.extend(split(&text).into_iter().filter(wanted).map(document));
            }
        }
        out
    }

    /// Every definition, one per name.
    pub fn definitions(&self) -> Definitions {
        let mut by_name = BTreeMap::<String, Vec<Document>>::new();
        for document in self.variants() {
            by_name.entry(document.name).or_default().push(document.document);
        }
        let mut out = Definitions::default();
        for (name, mut documents) in by_name {
            documents.sort_by_cached_key(|document| (self.preference(document), document.path.clone()));
            let keep = if name == REFUSED { documents.len() } else { 1 };
            let found = documents.into_iter().take(keep).map(|document| Definition { name: name.clone(), document });
            found.for_each(|definition| out.of(&definition).push(definition));
        }
        out
    }

    /// Every definition, as often as it is there. Patches of definitions have no versions, templates no plain name.
    pub fn variants(&self) -> Vec<Definition> {
        let documents = self.documents(|kind| kind == "CustomResourceDefinition");
        let whole = documents
            .into_iter()
            .filter(|document| document.text.contains("\n  versions:") || document.text.contains("\n  version:"));
        whole.filter_map(|document| Some(Definition { name: name(&document.text)?, document })).collect()
    }

    /// The place of a document's folder among the preferred ones.
    fn preference(&self, document: &Document) -> usize {
        let (_, folders, _) = self.0.iter().find(|(module, ..)| *module == document.module).expect("a module's own");
        let within = |folder: &&str| Path::new(&document.path).starts_with(folder);
        folders.iter().position(within).unwrap_or(folders.len())
    }
}

fn directory(module: &str) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: Go is not installed, so {module} cannot be fetched");
        return None;
    }
    let told = run(Command::new("go").args(["mod", "download", "-json", module]).current_dir("/"), None);
    let answer: Value = serde_json::from_str(&told.stdout).unwrap_or_default();
    let found = answer["Dir"].as_str().map(PathBuf::from);
    if found.is_none() {
        eprintln!("skipped: {module} cannot be had: {} {}", answer["Error"], told.stderr);
    }
    found
}

/// The YAML files below a folder, in the order of their paths.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match path.extension().and_then(|end| end.to_str()) {
            _ if entry.file_type().expect("a type").is_dir() => out.extend(files(&path)),
            Some("yaml" | "yml") => out.push(path),
            _ => {}
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
fn name(document: &str) -> Option<String> {
    let below = document.lines().skip_while(|line| line.trim_end() != "metadata:").skip(1);
    let mut inside = below.take_while(|line| line.starts_with([' ', '#']));
    inside.find_map(|line| plain(line.strip_prefix("  name:")?)).map(str::to_owned)
}

/// A scalar without its quotes; nothing where a template would put one.
fn plain(text: &str) -> Option<&str> {
    let text = text.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    (!text.is_empty() && !text.contains("{{")).then_some(text)
}
