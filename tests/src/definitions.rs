//! Custom resource definitions that others wrote, from their Go modules, for tests and benchmarks.
//!
//! Every YAML file of the modules is read. What has the shape of a definition is kept once per name: from the folder that the
//! module installs from, else from the first path. Nothing is copied here, so all of it is absent where Go cannot fetch.

mod documents;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::run_command;
use documents::{name, top};

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

/// A CRD without a schema, which kube-apiserver rejects; from argo-cd's tests.
const REFUSED: &str = "examples.example.io";

/// A CRD that is accepted, but not counted.
const OLD_YAML: &str = "alertmanagerconfigs.monitoring.coreos.com";

/// A document of a module.
#[derive(Clone, Debug)]
pub struct ModuleDocument {
    /// The module, with its version.
    pub module: &'static str,
    /// The file's path in the module.
    pub path: String,
    /// The YAML text.
    pub text: String,
}

/// A definition.
#[derive(Clone, Debug)]
pub struct CrdSource {
    /// Its `metadata.name`.
    pub name: String,
    /// Its module, path and text.
    pub document: ModuleDocument,
}

/// All definitions of the modules, in the order of their names.
#[derive(Default)]
pub struct CrdCollection {
    /// The 94 that kube-apiserver accepts and was measured with.
    pub counted: Vec<CrdSource>,
    /// Accepted as well: written with a bare `=`, it is what readers of YAML 1.1 cannot read, so it was not measured.
    pub more: Vec<CrdSource>,
    /// Refused by kube-apiserver; one for each file that has it.
    pub refused: Vec<CrdSource>,
    /// In a version of the API that is served no more.
    pub outdated: Vec<CrdSource>,
}

impl CrdCollection {
    /// The list that a definition belongs to.
    fn of(&mut self, definition: &CrdSource) -> &mut Vec<CrdSource> {
        match definition.name.as_str() {
            _ if top(&definition.document.text, "apiVersion") != Some("apiextensions.k8s.io/v1") => &mut self.outdated,
            REFUSED => &mut self.refused,
            OLD_YAML => &mut self.more,
            _ => &mut self.counted,
        }
    }
}

/// The folders of the modules.
pub struct GoModules(Vec<(&'static str, &'static [&'static str], PathBuf)>);

impl GoModules {
    /// Has Go fetch them, unless it has them.
    pub fn fetch() -> Option<Self> {
        let found = MODULES.iter().map(|&(name, folders)| Some((name, folders, directory(name)?)));
        found.collect::<Option<Vec<_>>>().map(Self)
    }

    /// Every document of a kind in files of YAML, and in examples within other text where `examples` says so.
    pub fn documents(&self, examples: bool, wanted: impl Fn(&str) -> bool) -> Vec<ModuleDocument> {
        let mut out = Vec::new();
        for (module, _, root) in &self.0 {
            documents::visit(root, examples, &mut |path, text| {
                let path = path.strip_prefix(root).expect("below the root").display().to_string();
                if top(text, "kind").is_some_and(&wanted) {
                    out.push(ModuleDocument { module, path, text: text.to_owned() });
                }
            });
        }
        out
    }

    /// Every definition, one per name.
    pub fn definitions(&self) -> CrdCollection {
        let mut by_name = BTreeMap::<String, Vec<ModuleDocument>>::new();
        for document in self.variants() {
            by_name.entry(document.name).or_default().push(document.document);
        }
        let mut out = CrdCollection::default();
        for (name, mut documents) in by_name {
            documents.sort_by_cached_key(|document| (self.preference(document), document.path.clone()));
            let keep = if name == REFUSED { documents.len() } else { 1 };
            let found = documents.into_iter().take(keep).map(|document| CrdSource { name: name.clone(), document });
            found.for_each(|definition| out.of(&definition).push(definition));
        }
        out
    }

    /// Every definition, as often as it is there. Patches of definitions have no versions, templates no plain name.
    pub fn variants(&self) -> Vec<CrdSource> {
        let documents = self.documents(false, |kind| kind == "CustomResourceDefinition");
        let whole = documents
            .into_iter()
            .filter(|document| document.text.contains("\n  versions:") || document.text.contains("\n  version:"));
        whole.filter_map(|document| Some(CrdSource { name: name(&document.text)?, document })).collect()
    }

    /// The place of a document's folder among the preferred ones.
    fn preference(&self, document: &ModuleDocument) -> usize {
        let (_, folders, _) = self.0.iter().find(|(module, ..)| *module == document.module).expect("a module's own");
        let within = |folder: &&str| Path::new(&document.path).starts_with(folder);
        folders.iter().position(within).unwrap_or(folders.len())
    }
}

fn directory(module: &str) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        skip::skip_test(format_args!("Go is not installed, so {module} cannot be fetched"));
        return None;
    }
    let told = run_command(Command::new("go").args(["mod", "download", "-json", module]).current_dir("/"), None);
    let answer: Value = serde_json::from_str(&told.stdout).unwrap_or_default();
    let found = answer["Dir"].as_str().map(PathBuf::from);
    if found.is_none() {
        skip::skip_test(format_args!("{module} cannot be fetched: {} {}", answer["Error"], told.stderr));
    }
    found
}
