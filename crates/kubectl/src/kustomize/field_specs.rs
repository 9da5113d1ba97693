//! Field specifications: where labels, annotations, names and so on are in objects of which kind.

use api::Value;

use crate::{
    errors::{CommandError, CommandResult},
    object::{ObjectFields, group_version_kind},
};

/// A path in objects of some kinds; steps are separated by slashes, lists are walked.
#[derive(Clone, Debug, Default)]
pub struct FieldSpec {
    /// The group; empty for any.
    pub group: String,
    /// The kind; empty for any.
    pub kind: String,
    /// The path.
    pub path: String,
    /// Whether it is made where it is absent.
    pub create: bool,
}

/// References by name: the kind that is referred to, and where.
#[derive(Clone, Debug, Default)]
pub struct NameReferenceSpec {
    /// The group of the target; empty for any.
    pub group: String,
    /// The kind of the target.
    pub kind: String,
    /// The fields that have its name.
    pub fields: Vec<FieldSpec>,
}

/// The tables, with what `configurations` add.
#[derive(Clone, Debug)]
pub struct FieldSpecTables {
    /// Labels with selectors.
    pub common_labels: Vec<FieldSpec>,
    /// Labels of templates.
    pub template_labels: Vec<FieldSpec>,
    /// Annotations.
    pub annotations: Vec<FieldSpec>,
    /// Namespaces beside that of the metadata.
    pub namespace: Vec<FieldSpec>,
    /// Names that get a prefix.
    pub name_prefix: Vec<FieldSpec>,
    /// Names that get a suffix.
    pub name_suffix: Vec<FieldSpec>,
    /// Numbers of replicas.
    pub replicas: Vec<FieldSpec>,
    /// Images.
    pub images: Vec<FieldSpec>,
    /// References.
    pub references: Vec<NameReferenceSpec>,
}

/// Rows are kind, group, path and `create`; `-` is any.
fn table(rows: &str) -> Vec<FieldSpec> {
    let word = |text: Option<&str>| text.filter(|text| *text != "-").unwrap_or_default().to_owned();
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (kind, group, path) = (word(words.next()), word(words.next()), word(words.next()));
        FieldSpec { group, kind, path, create: words.next() == Some("create") }
    };
    rows.lines().filter(|line| !line.trim().is_empty()).map(row).collect()
}

const TEMPLATES: &str = "
    - - metadata/labels create
    ReplicationController - spec/template/metadata/labels create
    Deployment - spec/template/metadata/labels create
    ReplicaSet - spec/template/metadata/labels create
    DaemonSet - spec/template/metadata/labels create
    StatefulSet apps spec/template/metadata/labels create
    StatefulSet apps spec/volumeClaimTemplates[]/metadata/labels create
    Job batch spec/template/metadata/labels create
    CronJob batch spec/jobTemplate/metadata/labels create
    CronJob batch spec/jobTemplate/spec/template/metadata/labels create";

const SELECTORS: &str = "
    Service - spec/selector create
    ReplicationController - spec/selector create
    Deployment - spec/selector/matchLabels create
    ReplicaSet - spec/selector/matchLabels create
    DaemonSet - spec/selector/matchLabels create
    StatefulSet apps spec/selector/matchLabels create
    Job batch spec/selector/matchLabels
    CronJob batch spec/jobTemplate/spec/selector/matchLabels
    PodDisruptionBudget policy spec/selector/matchLabels
    NetworkPolicy networking.k8s.io spec/podSelector/matchLabels
    NetworkPolicy networking.k8s.io spec/ingress/from/podSelector/matchLabels
    NetworkPolicy networking.k8s.io spec/egress/to/podSelector/matchLabels";

const ANNOTATIONS: &str = "
    - - metadata/annotations create
    ReplicationController - spec/template/metadata/annotations create
    Deployment - spec/template/metadata/annotations create
    ReplicaSet - spec/template/metadata/annotations create
    DaemonSet - spec/template/metadata/annotations create
    StatefulSet - spec/template/metadata/annotations create
    Job batch spec/template/metadata/annotations create
    CronJob batch spec/jobTemplate/metadata/annotations create
    CronJob batch spec/jobTemplate/spec/template/metadata/annotations create";

const NAMESPACES: &str = "
    APIService apiregistration.k8s.io spec/service/namespace create
    CustomResourceDefinition apiextensions.k8s.io spec/conversion/webhook/clientConfig/service/namespace";

const REPLICAS: &str = "
    Deployment - spec/replicas create
    ReplicationController - spec/replicas create
    ReplicaSet - spec/replicas create
    StatefulSet - spec/replicas create";

const VOLUME_IMAGES: &str = "
    - - spec/volumes[]/image/reference
    - - spec/template/spec/volumes[]/image/reference";

/// Kinds with a pod's spec, and where it is.
const POD_SPECS: [(&str, &str); 8] = [
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];

/// References within a pod's spec: target, whether templates and replica sets count, and paths.
const POD_REFERENCES: [(&str, bool, &[&str]); 5] = [
    (
        "ConfigMap",
        true,
        &[
            "volumes/configMap/name",
            "containers/env/valueFrom/configMapKeyRef/name",
            "initContainers/env/valueFrom/configMapKeyRef/name",
            "containers/envFrom/configMapRef/name",
            "initContainers/envFrom/configMapRef/name",
            "volumes/projected/sources/configMap/name",
        ],
    ),
    (
        "Secret",
        true,
        &[
            "volumes/secret/secretName",
            "containers/env/valueFrom/secretKeyRef/name",
            "initContainers/env/valueFrom/secretKeyRef/name",
            "containers/envFrom/secretRef/name",
            "initContainers/envFrom/secretRef/name",
            "imagePullSecrets/name",
            "volumes/projected/sources/secret/name",
        ],
    ),
    ("ServiceAccount", false, &["serviceAccountName"]),
    ("PersistentVolumeClaim", false, &["volumes/persistentVolumeClaim/claimName"]),
    ("PriorityClass", false, &["priorityClassName"]),
];

/// Other references: target and a table of fields.
const REFERENCES: [(&str, &str); 16] = [
    ("Deployment", "HorizontalPodAutoscaler - spec/scaleTargetRef/name"),
    ("ReplicationController", "HorizontalPodAutoscaler - spec/scaleTargetRef/name"),
    ("ReplicaSet", "HorizontalPodAutoscaler - spec/scaleTargetRef/name"),
    ("StatefulSet", "HorizontalPodAutoscaler - spec/scaleTargetRef/name"),
    (
        "ConfigMap",
        "Node - spec/configSource/configMap
         Role - rules/resourceNames
         ClusterRole - rules/resourceNames
         Ingress - metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap",
    ),
    (
        "Secret",
        "Ingress - spec/tls/secretName
         Ingress - metadata/annotations/ingress.kubernetes.io\\/auth-secret
         Ingress - metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret
         Ingress - metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret
         ServiceAccount - imagePullSecrets/name
         ServiceAccount - secrets/name
         StorageClass - parameters/secretName
         Role - rules/resourceNames
         ClusterRole - rules/resourceNames
         PersistentVolume - spec/csi/nodeStageSecretRef",
    ),
    (
        "Service",
        "StatefulSet apps spec/serviceName
         Ingress - spec/rules/http/paths/backend/serviceName
         Ingress - spec/backend/serviceName
         Ingress - spec/rules/http/paths/backend/service/name
         Ingress - spec/defaultBackend/service/name
         APIService apiregistration.k8s.io spec/service/name
         ValidatingWebhookConfiguration admissionregistration.k8s.io webhooks/clientConfig/service
         MutatingWebhookConfiguration admissionregistration.k8s.io webhooks/clientConfig/service",
    ),
    ("Role", "RoleBinding rbac.authorization.k8s.io roleRef/name"),
    (
        "ClusterRole",
        "RoleBinding rbac.authorization.k8s.io roleRef/name
         ClusterRoleBinding rbac.authorization.k8s.io roleRef/name",
    ),
    (
        "ServiceAccount",
        "RoleBinding rbac.authorization.k8s.io subjects
         ClusterRoleBinding rbac.authorization.k8s.io subjects
         ReplicationController - spec/template/spec/serviceAccountName",
    ),
    ("PersistentVolumeClaim", "ReplicationController - spec/template/spec/volumes/persistentVolumeClaim/claimName"),
    ("PersistentVolume", "PersistentVolumeClaim - spec/volumeName\nClusterRole - rules/resourceNames"),
    (
        "StorageClass",
        "PersistentVolume - spec/storageClassName
         PersistentVolumeClaim - spec/storageClassName
         StatefulSet - spec/volumeClaimTemplates/spec/storageClassName",
    ),
    ("PriorityClass", "ReplicationController - spec/template/spec/priorityClassName"),
    ("IngressClass", "Ingress - spec/ingressClassName"),
    ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding admissionregistration.k8s.io spec/policyName"),
];

impl Default for FieldSpecTables {
    fn default() -> Self {
        let mut common_labels = table(SELECTORS);
        let terms = [
            "preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ];
        for kind in ["Deployment", "StatefulSet"] {
            let mut paths: Vec<String> = ["podAffinity", "podAntiAffinity"]
                .iter()
                .flat_map(|affinity| terms.map(|term| format!("affinity/{affinity}/{term}/labelSelector/matchLabels")))
                .collect();
            paths.push("topologySpreadConstraints/labelSelector/matchLabels".to_owned());
            common_labels.extend(paths.into_iter().map(|path| FieldSpec {
                group: "apps".into(),
                kind: kind.into(),
                path: format!("spec/template/spec/{path}"),
                create: false,
            }));
        }
        common_labels.extend(table(TEMPLATES));
        let name = vec![FieldSpec { path: "metadata/name".into(), ..Default::default() }];
        FieldSpecTables {
            common_labels,
            template_labels: table(TEMPLATES),
            annotations: table(ANNOTATIONS),
            namespace: table(NAMESPACES),
            name_prefix: name.clone(),
            name_suffix: name,
            replicas: table(REPLICAS),
            images: table(VOLUME_IMAGES),
            references: default_references(),
        }
    }
}

fn default_references() -> Vec<NameReferenceSpec> {
    let mut references: Vec<NameReferenceSpec> = REFERENCES
        .iter()
        .map(|(kind, rows)| NameReferenceSpec { group: String::new(), kind: (*kind).to_owned(), fields: table(rows) })
        .collect();
    for (target, with_templates, paths) in POD_REFERENCES {
        let kinds =
            POD_SPECS.iter().filter(|(kind, _)| with_templates || !["PodTemplate", "ReplicaSet"].contains(kind));
        let fields: Vec<FieldSpec> = kinds
            .flat_map(|(kind, prefix)| {
                paths.iter().map(move |path| FieldSpec {
                    kind: (*kind).to_owned(),
                    path: format!("{prefix}/{path}"),
                    ..Default::default()
                })
            })
            .collect();
        if let Some(reference) = references.iter_mut().find(|reference| reference.kind == target) {
            reference.fields.extend(fields);
        }
    }
    references
}

impl FieldSpecTables {
    /// Adds the tables of a file of `configurations`.
    pub fn merge(&mut self, bytes: &[u8], path: &str) -> CommandResult {
        let parsed = api::yaml::parse(bytes).map_err(|error| CommandError::new(format!("{path}: {error}")))?;
        let specs = |field: &str| parse_specs(parsed.value.list(field));
        self.common_labels.extend(specs("commonLabels"));
        self.template_labels.extend(specs("templateLabels"));
        self.annotations.extend(specs("commonAnnotations"));
        self.namespace.extend(specs("namespace"));
        self.name_prefix.extend(specs("namePrefix"));
        self.name_suffix.extend(specs("nameSuffix"));
        self.replicas.extend(specs("replicas"));
        self.images.extend(specs("images"));
        for entry in parsed.value.list("nameReference") {
            let fields = parse_specs(entry.list("fieldSpecs"));
            let (group, kind) = (entry.text("group").to_owned(), entry.text("kind").to_owned());
            match self.references.iter_mut().find(|known| known.kind == kind && known.group == group) {
                Some(known) => known.fields.extend(fields),
                None => self.references.push(NameReferenceSpec { group, kind, fields }),
            }
        }
        Ok(())
    }
}

/// Parses field specifications of a file.
pub fn parse_specs(entries: &[Value]) -> Vec<FieldSpec> {
    let parse = |entry: &Value| FieldSpec {
        group: entry.text("group").to_owned(),
        kind: entry.text("kind").to_owned(),
        path: entry.text("path").to_owned(),
        create: entry.flag("create"),
    };
    entries.iter().map(parse).collect()
}

impl FieldSpec {
    /// Whether the specification is about objects of this kind.
    pub fn fits(&self, object: &Value) -> bool {
        let (group, _, kind) = group_version_kind(object);
        (self.group.is_empty() || self.group == group) && (self.kind.is_empty() || self.kind == kind)
    }

    /// Calls a function with each value at the path; absent ones are null if they are made.
    pub fn visit(&self, object: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
        if self.fits(object) {
            let steps = split_path(&self.path);
            visit_steps(object, &steps, self.create, visit);
        }
    }
}

/// Splits at slashes that are not escaped.
fn split_path(path: &str) -> Vec<String> {
    path.replace("\\/", "\u{0}").split('/').map(|step| step.replace('\u{0}', "/")).collect()
}

fn visit_steps(value: &mut Value, steps: &[String], create: bool, visit: &mut dyn FnMut(&mut Value)) {
    if let Value::Array(items) = value
        && !steps.is_empty()
    {
        return items.iter_mut().for_each(|item| visit_steps(item, steps, create, visit));
    }
    let Some((first, rest)) = steps.split_first() else { return visit(value) };
    let name = first.trim_end_matches("[]");
    let is_list = first.ends_with("[]");
    if value.is_null() && create {
        *value = Value::Object(api::Map::new());
    }
    let Value::Object(map) = value else { return };
    match map.get_mut(name) {
        Some(inner) => visit_steps(inner, rest, create, visit),
        None if create && !is_list => {
            let mut made = Value::Null;
            visit_steps(&mut made, rest, create, visit);
            if !made.is_null() {
                map.insert(name.to_owned(), made);
            }
        }
        None => {}
    }
}
