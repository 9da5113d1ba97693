//! The builder: turns arguments, files and selectors into objects of the server or of the files.

use api::{Value, json::go_quote};

use super::{
    ResourceInfo, Validation,
    builder_parts::{
        BuildResult, MISSING, ManifestSource, explain_list_error, explain_not_found, flatten_list, set_type_meta,
        split_pair, split_types,
    },
    file_arguments::expand_files,
};
use crate::{
    discovery::RestMapping,
    errors::{CommandError, CommandResult},
    manifest::{check_decodable, check_object_kind, decode_manifest, split_documents},
    object::{self, ObjectFields},
    rest::RestRequest,
    session::Session,
};

/// Resources to build, as flags and arguments name them.
#[derive(Clone, Debug, Default)]
pub struct ResourceBuilder {
    /// The namespace.
    pub namespace: String,
    /// Whether objects of files must be in that namespace.
    pub enforce_namespace: bool,
    /// `--all-namespaces`
    pub all_namespaces: bool,
    /// `-f`
    pub filenames: Vec<String>,
    /// `-k`
    pub kustomize: String,
    /// `-R`
    pub recursive: bool,
    /// `-l`
    pub label_selector: String,
    /// `--field-selector`
    pub field_selector: String,
    /// `--all`
    pub select_all: bool,
    /// Resource arguments.
    pub arguments: Vec<String>,
    /// Whether a resource alone selects all its objects.
    pub allow_empty_selector: bool,
    /// Whether objects of files are read from the server.
    pub latest: bool,
    /// Whether lists become their items.
    pub flatten: bool,
    /// Whether an error does not end the visit.
    pub continue_on_error: bool,
    /// Whether only one resource type is allowed.
    pub single_type: bool,
    /// Whether the server is not asked at all.
    pub local: bool,
    /// `--chunk-size`
    pub chunk_size: i64,
    /// `--subresource`
    pub subresource: String,
    /// The `Accept` header of reads; empty for plain JSON.
    pub accept: String,
    /// Whether table rows carry whole objects.
    pub include_object: bool,
    /// Validation of manifests.
    pub validation: Validation,
    /// The resource of arguments that are names only.
    pub default_resource: String,
    /// Whether named objects are not read.
    pub skip_fetch: bool,
    /// Whether resource arguments are no categories.
    pub plain_types: bool,
}

/// The targets that arguments name.
enum BuildTargets {
    Paths(Vec<ManifestSource>),
    Selector(Vec<RestMapping>),
    Names(Vec<(RestMapping, String)>),
}

/// A visit's function.
type VisitFunction<'a> = &'a mut dyn FnMut(ResourceInfo) -> CommandResult;

impl ResourceBuilder {
    /// A builder with the flags for files, selectors and namespaces that most commands have.
    pub fn from_session(session: &Session) -> CommandResult<Self> {
        let (namespace, enforce_namespace) = session.namespace()?;
        let flags = &session.flags;
        if flags.strings("filename").iter().any(|name| name == "-") {
            session.stdin_used.set(true);
        }
        Ok(ResourceBuilder {
            namespace,
            enforce_namespace,
            filenames: flags.strings("filename"),
            kustomize: flags.string("kustomize"),
            recursive: flags.bool("recursive"),
            label_selector: flags.string("selector"),
            field_selector: flags.string("field-selector"),
            select_all: flags.bool("all"),
            all_namespaces: flags.bool("all-namespaces"),
            chunk_size: if flags.has("chunk-size") { flags.int("chunk-size") } else { 0 },
            ..Default::default()
        })
    }

    /// Whether files are given.
    pub fn has_files(&self) -> bool {
        !self.filenames.is_empty() || !self.kustomize.is_empty()
    }

    /// Collects all items; errors end the collection unless it continues on errors.
    pub fn build(&self, session: &Session) -> CommandResult<BuildResult> {
        let (targets, single_item) = self.targets(session)?;
        let mut result = BuildResult { single_item, ..Default::default() };
        let mut infos = Vec::new();
        let outcome = self.visit_targets(session, targets, &mut |info| {
            infos.push(info);
            Ok(())
        });
        result.infos = infos;
        if let Err(errors) = outcome {
            result.errors = errors;
        }
        Ok(result)
    }

    /// Collects all items; any error is an error.
    pub fn infos(&self, session: &Session) -> CommandResult<Vec<ResourceInfo>> {
        let result = self.build(session)?;
        CommandError::join(result.errors)?;
        Ok(result.infos)
    }

    /// Calls a function with each item as soon as it is known.
    pub fn visit(&self, session: &Session, visit: VisitFunction) -> CommandResult {
        let (targets, _) = self.targets(session)?;
        self.visit_targets(session, targets, visit).or_else(CommandError::join)
    }

    fn visit_targets(
        &self,
        session: &Session,
        targets: BuildTargets,
        visit: VisitFunction,
    ) -> Result<(), Vec<CommandError>> {
        let mut errors = Vec::new();
        match targets {
            BuildTargets::Paths(sources) => {
                for source in sources {
                    self.visit_source(session, &source, visit, &mut errors);
                    if !errors.is_empty() && !self.continue_on_error {
                        break;
                    }
                }
            }
            BuildTargets::Selector(mappings) => {
                for mapping in mappings {
                    let outcome = self.visit_selector(session, &mapping, visit);
                    self.note(outcome, &mut errors);
                    if !errors.is_empty() && !self.continue_on_error {
                        break;
                    }
                }
            }
            BuildTargets::Names(names) => {
                for (mapping, name) in names {
                    let outcome = self.visit_name(session, mapping, name, visit);
                    self.note(outcome, &mut errors);
                    if !errors.is_empty() && !self.continue_on_error {
                        break;
                    }
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn note(&self, outcome: CommandResult, errors: &mut Vec<CommandError>) {
        match outcome {
            Err(CommandError::Aggregate(several)) => errors.extend(several),
            Err(error) => errors.push(error),
            Ok(()) => {}
        }
    }

    fn targets(&self, session: &Session) -> CommandResult<(BuildTargets, bool)> {
        let mut errors = Vec::new();
        let sources = self.sources(&mut errors);
        let (tuples, types, names) = self.split_arguments(session, &mut errors)?;
        if self.select_all && !self.label_selector.trim().is_empty() {
            errors.push(CommandError::new(format!(
                "found non-empty label selector {} with previously set 'all' parameter. ",
                go_quote(&self.label_selector)
            )));
        }
        CommandError::join(errors)?;
        let single_files =
            self.filenames.len() == 1 && sources.len() == 1 && !matches!(sources[0], ManifestSource::Stdin);
        if !sources.is_empty() {
            let conflict = match (types.is_empty(), names.is_empty(), tuples.is_empty()) {
                (false, _, _) => Some(
                    "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
                ),
                (_, false, _) => Some("name cannot be provided when a path is specified"),
                (_, _, false) => Some("resource/name arguments cannot be provided when a path is specified"),
                _ => None,
            };
            return match conflict {
                Some(text) => Err(CommandError::new(text)),
                None => Ok((BuildTargets::Paths(sources), single_files)),
            };
        }
        let empty_selector = self.allow_empty_selector && types.len() + names.len() > 0 && names.is_empty();
        let selects = self.select_all
            || !self.label_selector.trim().is_empty()
            || !self.field_selector.trim().is_empty()
            || empty_selector && tuples.is_empty();
        if selects {
            return self.selector_targets(session, &tuples, &types, &names).map(|targets| (targets, false));
        }
        self.name_targets(session, tuples, types, names)
    }

    fn selector_targets(
        &self,
        session: &Session,
        tuples: &[(String, String)],
        types: &[String],
        names: &[String],
    ) -> CommandResult<BuildTargets> {
        if !names.is_empty() {
            crate::bail!("name cannot be provided when a selector is specified");
        }
        if !tuples.is_empty() {
            crate::bail!("selectors and the all flag cannot be used when passing resource/name arguments");
        }
        if types.is_empty() {
            crate::bail!("at least one resource must be specified to use a selector");
        }
        if !self.subresource.is_empty() {
            crate::bail!("subresource cannot be used when bulk resources are specified");
        }
        if self.single_type && types.len() > 1 {
            crate::bail!("you may only specify a single resource type");
        }
        let mut mappings: Vec<RestMapping> = Vec::new();
        for argument in types {
            let mapping = session.mapping_for_argument(argument)?;
            if !mappings.contains(&mapping) {
                mappings.push(mapping);
            }
        }
        Ok(BuildTargets::Selector(mappings))
    }

    fn name_targets(
        &self,
        session: &Session,
        tuples: Vec<(String, String)>,
        types: Vec<String>,
        names: Vec<String>,
    ) -> CommandResult<(BuildTargets, bool)> {
        let mut targets = Vec::new();
        if !tuples.is_empty() {
            if !types.is_empty() {
                crate::bail!("you may not specify individual resources and bulk resources in the same call");
            }
            for (resource, name) in &tuples {
                targets.push((session.mapping_for_argument(resource)?, name.clone()));
            }
        } else if !names.is_empty() {
            let [resource] = types.as_slice() else {
                crate::bail!(
                    "{}",
                    if types.is_empty() {
                        "you must provide a resource and a resource name together"
                    } else {
                        "you must specify only one resource"
                    }
                );
            };
            let mapping = session.mapping_for_argument(resource)?;
            targets.extend(names.into_iter().map(|name| (mapping.clone(), name)));
        } else if !types.is_empty() {
            for resource in &types {
                session.mapping_for_argument(resource)?;
            }
            crate::bail!("resource(s) were provided, but no name was specified");
        } else {
            crate::bail!("{MISSING}");
        }
        if self.single_type && targets.iter().any(|(mapping, _)| *mapping != targets[0].0) {
            crate::bail!("you may only specify a single resource type");
        }
        if targets.iter().any(|(mapping, _)| mapping.namespaced) {
            if self.all_namespaces {
                crate::bail!("a resource cannot be retrieved by name across all namespaces");
            }
            if self.namespace.is_empty() {
                crate::bail!("namespace may not be empty when retrieving a resource by name");
            }
        }
        let single = targets.len() == 1;
        Ok((BuildTargets::Names(targets), single))
    }

    fn sources(&self, errors: &mut Vec<CommandError>) -> Vec<ManifestSource> {
        let mut sources = Vec::new();
        if !self.filenames.is_empty() && !self.kustomize.is_empty() {
            errors.push(CommandError::new("only one of -f or -k can be specified"));
            return sources;
        }
        if !self.kustomize.is_empty() && self.recursive {
            errors.push(CommandError::new("the -k flag can't be used with -f or -R"));
            return sources;
        }
        let mut stdin = 0;
        for argument in &self.filenames {
            if argument == "-" {
                stdin += 1;
                sources.push(ManifestSource::Stdin);
            } else if argument.starts_with("http://") || argument.starts_with("https://") {
                sources.push(ManifestSource::Url(argument.clone()));
            } else {
                match expand_files(argument, self.recursive) {
                    Ok(files) => sources.extend(files.into_iter().map(ManifestSource::File)),
                    Err(error) => errors.push(error),
                }
            }
        }
        if stdin > 1 {
            errors.push(CommandError::new("standard input cannot be used for multiple arguments"));
        }
        if !self.kustomize.is_empty() {
            sources.push(ManifestSource::Kustomization(self.kustomize.clone()));
        }
        sources
    }

    /// Splits arguments into `resource/name` pairs, resource types and names.
    #[allow(clippy::type_complexity)] // the three kinds of arguments, used once
    fn split_arguments(
        &self,
        session: &Session,
        errors: &mut Vec<CommandError>,
    ) -> CommandResult<(Vec<(String, String)>, Vec<String>, Vec<String>)> {
        let mut arguments = self.arguments.clone();
        if !self.default_resource.is_empty() {
            let tuple = |argument: String| {
                if argument.contains('/') { argument } else { format!("{}/{argument}", self.default_resource) }
            };
            arguments = arguments.into_iter().map(tuple).collect();
        }
        if let [first, names @ ..] = arguments.as_slice()
            && first.contains(',')
            && !names.is_empty()
        {
            let types = split_types(first);
            arguments = types.iter().flat_map(|ty| names.iter().map(move |name| format!("{ty}/{name}"))).collect();
        }
        let slashes = arguments.iter().filter(|argument| argument.contains('/')).count();
        if slashes > 0 && slashes < arguments.len() {
            errors.push(CommandError::new(
                "there is no need to specify a resource type as a separate argument when passing arguments in \
                 resource/name form (e.g. 'kubectl get resource/<resource_name>' instead of 'kubectl get resource \
                 resource/<resource_name>'",
            ));
            return Ok(Default::default());
        }
        if slashes > 0 {
            let mut tuples = Vec::new();
            for argument in &arguments {
                match split_pair(argument) {
                    Ok(pair) => tuples.push(pair),
                    Err(error) => {
                        errors.push(error);
                        break;
                    }
                }
            }
            return Ok((tuples, Vec::new(), Vec::new()));
        }
        let Some((first, names)) = arguments.split_first() else { return Ok(Default::default()) };
        let types = self.expand_types(session, first)?;
        Ok((Vec::new(), types, names.to_vec()))
    }

    /// Replaces categories such as `all` by their resources.
    fn expand_types(&self, session: &Session, argument: &str) -> CommandResult<Vec<String>> {
        let mut types = Vec::new();
        for word in split_types(argument) {
            let mut expanded = Vec::new();
            if !self.local && !self.plain_types {
                session.client()?;
                // Without an answer the word is no category; looking up the resource reports the error.
                expanded = session.discovery().map(|data| data.expand_category(&word)).unwrap_or_default();
            }
            if expanded.is_empty() {
                types.push(word);
            } else {
                types.extend(expanded);
            }
        }
        Ok(types)
    }

    fn visit_source(
        &self,
        session: &Session,
        source: &ManifestSource,
        visit: VisitFunction,
        errors: &mut Vec<CommandError>,
    ) {
        let (name, bytes) = match source.read() {
            Ok(read) => read,
            Err(error) => return errors.push(error),
        };
        let shown = if matches!(source, ManifestSource::Kustomization(_)) { "" } else { name.as_str() };
        for document in split_documents(&bytes) {
            let outcome = self.visit_document(session, &document, &name, shown, visit);
            self.note(outcome, errors);
            if !errors.is_empty() && !self.continue_on_error {
                return;
            }
        }
    }

    fn visit_document(
        &self,
        session: &Session,
        document: &[u8],
        source: &str,
        shown: &str,
        visit: VisitFunction,
    ) -> CommandResult {
        let Some(object) = decode_manifest(document, source)? else { return Ok(()) };
        if self.validation != Validation::Ignore {
            check_object_kind(&object, source)?;
            session.check_openapi().map_err(|error| {
                CommandError::new(format!(
                    "error validating {}: error validating data: {error}; if you choose to ignore these errors, turn \
                     validation off with --validate=false",
                    go_quote(source)
                ))
            })?;
        }
        check_decodable(&object, source)?;
        if self.flatten && object::is_list(&object) {
            let mut errors = Vec::new();
            for item in flatten_list(object) {
                let outcome = check_decodable(&item, source)
                    .and_then(|()| self.info_of(session, item, source, shown, true))
                    .and_then(|info| self.visit_info(session, info, visit));
                self.note(outcome, &mut errors);
            }
            return CommandError::join(errors);
        }
        let info = self.info_of(session, object, source, shown, false)?;
        self.visit_info(session, info, visit)
    }

    fn info_of(
        &self,
        session: &Session,
        object: Value,
        source: &str,
        shown: &str,
        in_list: bool,
    ) -> CommandResult<ResourceInfo> {
        let (name, namespace) = (object::name_of(&object).to_owned(), object::namespace_of(&object).to_owned());
        let is_list = !self.flatten && object::is_list(&object) && object.text("apiVersion") == "v1";
        let mapping = if self.local || is_list && object.text("kind") == "List" {
            let (group, version, kind) = object::group_version_kind(&object);
            RestMapping { group, version, kind, ..Default::default() }
        } else {
            session.mapping_of(&object).map_err(|error| match error {
                CommandError::NoKindMatch { .. } if in_list => CommandError::new(format!("unable to recognize {error}")),
                CommandError::NoKindMatch { .. } => CommandError::new(format!(
                    "resource mapping not found for name: {} namespace: {} from {}: {error}\nensure CRDs are installed first",
                    go_quote(&name),
                    go_quote(&namespace),
                    go_quote(source)
                )),
                other => CommandError::new(format!("unable to recognize {}: {other}", go_quote(source))),
            })?
        };
        let source = shown.to_owned();
        Ok(ResourceInfo { mapping, namespace, name, source, object, ..Default::default() })
    }

    fn visit_info(&self, session: &Session, mut info: ResourceInfo, visit: VisitFunction) -> CommandResult {
        // A local object is as it says itself.
        if info.mapping.namespaced || self.local && !info.namespace.is_empty() {
            if info.namespace.is_empty() {
                info.namespace.clone_from(&self.namespace);
                if !self.namespace.is_empty() {
                    object::set_path(&mut info.object, "metadata.namespace", self.namespace.clone().into());
                }
            } else if self.enforce_namespace && info.namespace != self.namespace {
                crate::bail!(
                    "the namespace from the provided object {} does not match the namespace {}. You must pass \
                     '--namespace={}' to perform this operation.",
                    go_quote(&info.namespace),
                    go_quote(&self.namespace),
                    info.namespace
                );
            }
        } else {
            info.namespace.clear();
            object::remove_path(&mut info.object, "metadata.namespace");
        }
        if self.latest && !info.name.is_empty() {
            info.object = session.client()?.send_json(self.read_request(info.path()))?;
        }
        if !self.label_selector.trim().is_empty() {
            let selector = api::selector::LabelSelector::parse(&self.label_selector).map_err(|error| {
                CommandError::new(format!(
                    "the provided selector {} is not valid: {error}",
                    go_quote(&self.label_selector)
                ))
            })?;
            if !selector.matches(info.object.at("metadata.labels").unwrap_or(&Value::Null)) {
                return Ok(());
            }
        }
        visit(info)
    }

    fn read_request(&self, path: String) -> RestRequest {
        let request = RestRequest::get(path);
        let request = if self.accept.is_empty() { request } else { request.accepting(&self.accept) };
        if self.include_object { request.with_query("includeObject", "Object") } else { request }
    }

    fn visit_name(&self, session: &Session, mapping: RestMapping, name: String, visit: VisitFunction) -> CommandResult {
        let namespace = if mapping.namespaced { self.namespace.clone() } else { String::new() };
        let subresource = self.subresource.clone();
        let mut info = ResourceInfo { mapping, namespace, name, subresource, ..Default::default() };
        if !self.skip_fetch {
            let read = session.client()?.send_json(self.read_request(info.path()));
            info.object = read.map_err(|error| explain_not_found(session, &info, error))?;
        }
        visit(info)
    }

    /// Lists the objects that selectors choose, in chunks.
    fn visit_selector(&self, session: &Session, mapping: &RestMapping, visit: VisitFunction) -> CommandResult {
        let namespace = if mapping.namespaced && !self.all_namespaces { self.namespace.as_str() } else { "" };
        let mut next = String::new();
        loop {
            let mut request = self
                .read_request(mapping.path(namespace, ""))
                .with_optional("labelSelector", self.label_selector.trim())
                .with_optional("fieldSelector", self.field_selector.trim())
                .with_optional("continue", &next);
            if self.chunk_size > 0 {
                request = request.with_query("limit", self.chunk_size.to_string());
            }
            let list = session.client()?.send_json(request).map_err(|error| {
                explain_list_error(error, mapping, self.label_selector.trim(), self.field_selector.trim())
            })?;
            next = list.text("metadata.continue").to_owned();
            self.visit_list(mapping, namespace, list, visit)?;
            if next.is_empty() {
                return Ok(());
            }
        }
    }

    fn visit_list(
        &self,
        mapping: &RestMapping,
        namespace: &str,
        mut list: Value,
        visit: VisitFunction,
    ) -> CommandResult {
        let whole = !self.flatten || !self.accept.is_empty() && list.text("kind") == "Table";
        let base = ResourceInfo { mapping: mapping.clone(), namespace: namespace.to_owned(), ..Default::default() };
        if whole {
            return visit(ResourceInfo { object: list, ..base });
        }
        let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let mut errors = Vec::new();
        for mut item in items {
            set_type_meta(&mut item, mapping);
            let (namespace, name) = (object::namespace_of(&item).to_owned(), object::name_of(&item).to_owned());
            let info = ResourceInfo { mapping: mapping.clone(), namespace, name, object: item, ..Default::default() };
            self.note(visit(info), &mut errors);
            if !errors.is_empty() && !self.continue_on_error {
                break;
            }
        }
        CommandError::join(errors)
    }
}
