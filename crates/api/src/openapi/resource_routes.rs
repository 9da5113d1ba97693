//! The routes of a resource: collection and object verbs, subresources, and deprecated watch paths.

use super::{
    conventions::{BUILT_IN, CUSTOM, RouteConventions},
    custom_component::custom_component_key,
    group_version_kinds::GroupVersionKind,
    path_names,
    route::{ANY_MEDIA, LOG_MEDIA, OpenApiRoute, RequestBody, ResponseBody, RouteParameter},
};
use crate::schema::{Resource, Subresource, schema};

const CONNECT_METHODS: &[(&str, &str)] = &[
    ("delete", "Delete"),
    ("get", "Get"),
    ("head", "Head"),
    ("options", "Options"),
    ("patch", "Patch"),
    ("post", "Post"),
    ("put", "Put"),
];

/// Returns all routes of a resource.
pub(super) fn resource_routes(resource: &Resource) -> Vec<OpenApiRoute> {
    let maker = RouteBuilder::new(resource);
    let mut out = maker.collection_routes();
    out.extend(maker.object_routes());
    if maker.conventions.watch_paths {
        out.extend(maker.watch_routes());
    }
    out.extend(resource.subresources.iter().flat_map(|sub| maker.subresource_routes(sub)));
    out
}

struct RouteBuilder<'a> {
    resource: &'a Resource,
    conventions: &'static RouteConventions,
    /// The component keys of objects and lists.
    component: String,
    list_component: String,
    /// Group and version in operation names.
    infix: String,
    tag: String,
}

/// The scope of a path: watch, all namespaces, or one object.
#[derive(Clone, Copy)]
struct PathScope {
    watch: bool,
    all_namespaces: bool,
    named: bool,
}

const COLLECTION: PathScope = PathScope { watch: false, all_namespaces: false, named: false };
const ALL_NAMESPACES: PathScope = PathScope { all_namespaces: true, ..COLLECTION };
const OBJECT_PATH: PathScope = PathScope { named: true, ..COLLECTION };

impl<'a> RouteBuilder<'a> {
    fn new(resource: &'a Resource) -> Self {
        let (group, version) = (resource.group, resource.version);
        let (conventions, component, list_component) = match &resource.custom_schema {
            Some(custom) => {
                let key = |kind: &str| custom_component_key(group, version, kind);
                (&CUSTOM, key(resource.kind), key(custom.list_kind()))
            }
            None => {
                let name = &schema().get(resource.ty).name;
                (&BUILT_IN, name.clone(), format!("{name}List"))
            }
        };
        let (infix, tag) = (path_names::operation_infix(group, version), path_names::operation_tag(group, version));
        Self { resource, conventions, component, list_component, infix, tag }
    }

    fn has_verb(&self, verb: &str) -> bool {
        self.resource.verbs.contains(&verb)
    }

    /// `Namespaced` for paths with a namespace.
    fn namespaced_word(&self, place: PathScope) -> &'static str {
        if self.resource.is_namespaced() && !place.all_namespaces { "Namespaced" } else { "" }
    }

    fn path_in(&self, place: PathScope) -> String {
        let r = self.resource;
        let watch = if place.watch { "/watch" } else { "" };
        let scope = if self.namespaced_word(place).is_empty() { "" } else { "/namespaces/{namespace}" };
        let name = if place.named { "/{name}" } else { "" };
        format!("/{}{watch}{scope}/{}{name}", path_names::group_version_path(r.group, r.version), r.name)
    }

    /// Builds a route without body and responses; `verb` and `rest` enclose group and version in its name.
    fn new_route(
        &self,
        place: PathScope,
        method: &'static str,
        action: &'static str,
        (verb, rest): (&str, String),
    ) -> OpenApiRoute {
        let r = self.resource;
        let mut parameters = Vec::new();
        if !self.namespaced_word(place).is_empty() {
            parameters.push(RouteParameter::in_path("namespace"));
        }
        if place.named {
            parameters.push(RouteParameter::in_path("name"));
        }
        parameters.push(RouteParameter::pretty());
        OpenApiRoute {
            path: self.path_in(place),
            method,
            id: format!("{verb}{}{}", self.infix, path_names::camel_case(&rest, true)),
            tag: self.tag.clone(),
            action: Some(action),
            kind: Some(GroupVersionKind { group: r.group, version: r.version, kind: r.kind.to_owned() }),
            parameters,
            body: None,
            consumes: self.conventions.consumes,
            produces: self.conventions.produces,
            responses: Vec::new(),
        }
    }

    fn operation_name(&self, place: PathScope) -> String {
        format!("{}{}", self.namespaced_word(place), self.resource.kind)
    }

    fn collection_routes(&self) -> Vec<OpenApiRoute> {
        let mut out = Vec::new();
        if self.has_verb("create") {
            let route = self.new_route(COLLECTION, "post", "post", ("create", self.operation_name(COLLECTION)));
            out.push(create_route(route, self.component.clone()));
        }
        if self.has_verb("list") {
            out.push(self.list_route(COLLECTION, String::new()));
            if self.resource.is_namespaced() {
                out.push(self.list_route(ALL_NAMESPACES, "ForAllNamespaces".into()));
            }
        }
        if self.has_verb("deletecollection") {
            out.push(self.delete_collection_route());
        }
        out
    }

    fn list_route(&self, place: PathScope, suffix: String) -> OpenApiRoute {
        let mut route = self.new_route(place, "get", "list", ("list", self.operation_name(place) + &suffix));
        route.parameters.extend(RouteParameter::query_options("meta/v1.ListOptions"));
        OpenApiRoute {
            produces: self.conventions.lists,
            responses: component_responses(&[200], &self.list_component),
            ..route
        }
    }

    fn delete_collection_route(&self) -> OpenApiRoute {
        let taken = &self.conventions.delete_collection;
        let id = ("delete", format!("Collection{}", self.operation_name(COLLECTION)));
        let mut route = self.new_route(COLLECTION, "delete", "deletecollection", id);
        let options = taken.options.iter().flat_map(|options| RouteParameter::query_options(options));
        route.parameters.extend(options.filter(|parameter| !taken.without.contains(&parameter.name)));
        let body = taken.body.map(|component| RequestBody { component: component.to_owned(), required: false });
        OpenApiRoute { body, responses: component_responses(&[200], "meta/v1.Status"), ..route }
    }

    fn object_routes(&self) -> Vec<OpenApiRoute> {
        let mut out = self.read_write_routes(OBJECT_PATH, "", &self.resource.verbs, &self.component);
        if self.has_verb("delete") {
            let deleted =
                if self.resource.returns_deleted { self.component.clone() } else { "meta/v1.Status".to_owned() };
            let route = self.new_route(OBJECT_PATH, "delete", "delete", ("delete", self.operation_name(OBJECT_PATH)));
            out.push(delete_route(route, deleted));
        }
        out
    }

    /// The routes `get`, `patch` and `update` of an object or subresource.
    fn read_write_routes(&self, place: PathScope, suffix: &str, verbs: &[&str], component: &str) -> Vec<OpenApiRoute> {
        let id = || self.operation_name(place) + suffix;
        let mut out = Vec::new();
        if verbs.contains(&"get") {
            let mut route = self.new_route(place, "get", "get", ("read", id()));
            route.parameters.extend(self.conventions.read_options.into_iter().flat_map(RouteParameter::query_options));
            out.push(OpenApiRoute { responses: component_responses(&[200], component), ..route });
        }
        if verbs.contains(&"update") {
            let mut route = self.new_route(place, "put", "put", ("replace", id()));
            route.parameters.extend(RouteParameter::query_options("meta/v1.UpdateOptions"));
            let body = Some(RequestBody { component: component.to_owned(), required: true });
            out.push(OpenApiRoute { body, responses: component_responses(&[200, 201], component), ..route });
        }
        if verbs.contains(&"patch") {
            let mut route = self.new_route(place, "patch", "patch", ("patch", id()));
            route.parameters.extend(RouteParameter::query_options("meta/v1.PatchOptions"));
            let body = Some(RequestBody { component: "Patch".to_owned(), required: true });
            out.push(OpenApiRoute {
                body,
                consumes: self.conventions.patches,
                responses: component_responses(self.conventions.patch_codes, component),
                ..route
            });
        }
        out
    }

    fn watch_routes(&self) -> Vec<OpenApiRoute> {
        if !self.has_verb("watch") {
            return Vec::new();
        }
        let watch = |place: PathScope, action: &'static str, suffix: &str| {
            let place = PathScope { watch: true, ..place };
            let mut route = self.new_route(place, "get", action, ("watch", self.operation_name(place) + suffix));
            route.parameters.extend(RouteParameter::query_options("meta/v1.ListOptions"));
            OpenApiRoute {
                produces: self.conventions.lists,
                responses: component_responses(&[200], "meta/v1.WatchEvent"),
                ..route
            }
        };
        let mut out = vec![watch(COLLECTION, "watchlist", "List"), watch(OBJECT_PATH, "watch", "")];
        if self.resource.is_namespaced() {
            out.push(watch(ALL_NAMESPACES, "watchlist", "ListForAllNamespaces"));
        }
        out
    }

    fn subresource_routes(&self, sub: &Subresource) -> Vec<OpenApiRoute> {
        let (group, version) = sub.group_version.unwrap_or((self.resource.group, self.resource.version));
        let suffix = path_names::capitalize_first(sub.name);
        let found = schema().type_of_kind(group, version, sub.kind).map(|id| schema().get(id).name.clone());
        let component = found.unwrap_or_else(|| self.component.clone());
        // The kind of a custom resource may have the same suffix.
        let connects = sub.kind.ends_with("Options") && sub.kind != self.resource.kind;
        let mut routes = if connects {
            self.connect_routes(sub, &suffix, &component)
        } else if sub.name == "log" {
            vec![self.log_route()]
        } else {
            self.read_write_routes(OBJECT_PATH, &suffix, &sub.verbs, &component)
        };
        if sub.verbs.contains(&"create") && !connects {
            let id = ("create", self.operation_name(OBJECT_PATH) + &suffix);
            routes.push(create_route(self.new_route(OBJECT_PATH, "post", "post", id), component));
        }
        for route in &mut routes {
            route.path = route.path.replacen("/{name}", &format!("/{{name}}/{}", sub.name), 1);
            if self.conventions.subresources_have_kinds {
                route.kind = Some(GroupVersionKind { group, version, kind: sub.kind.to_owned() });
            }
        }
        routes
    }

    fn log_route(&self) -> OpenApiRoute {
        let mut route = self.new_route(OBJECT_PATH, "get", "get", ("read", self.operation_name(OBJECT_PATH) + "Log"));
        route.parameters.extend(RouteParameter::query_options("core/v1.PodLogOptions"));
        OpenApiRoute { produces: LOG_MEDIA, responses: vec![(200, ResponseBody::Text)], ..route }
    }

    /// The routes that upgrade the connection: two methods, or all methods and subpaths for a proxy.
    fn connect_routes(&self, sub: &Subresource, suffix: &str, options: &str) -> Vec<OpenApiRoute> {
        let proxy = sub.verbs.contains(&"update");
        let methods = CONNECT_METHODS.iter().filter(|(method, _)| proxy || matches!(*method, "get" | "post"));
        let mut out = Vec::new();
        for (method, word) in methods {
            for below in [false, true] {
                let id = format!(
                    "{word}{}{suffix}{}",
                    self.operation_name(OBJECT_PATH),
                    if below { "WithPath" } else { "" }
                );
                let mut route = self.new_route(OBJECT_PATH, method, "connect", ("connect", id));
                route.parameters.retain(|p| p.name != "pretty");
                route.parameters.extend(RouteParameter::query_options(options));
                if below {
                    route.parameters.push(RouteParameter::in_path("path"));
                    // The subresource is inserted after the name.
                    route.path.push_str("/{path}");
                }
                if proxy || !below {
                    out.push(OpenApiRoute { produces: ANY_MEDIA, responses: vec![(200, ResponseBody::Text)], ..route });
                }
            }
        }
        out
    }
}

fn create_route(mut route: OpenApiRoute, component: String) -> OpenApiRoute {
    route.parameters.extend(RouteParameter::query_options("meta/v1.CreateOptions"));
    let answers = component_responses(&[200, 201, 202], &component);
    OpenApiRoute { body: Some(RequestBody { component, required: true }), responses: answers, ..route }
}

fn delete_route(mut route: OpenApiRoute, component: String) -> OpenApiRoute {
    route.parameters.extend(RouteParameter::query_options("meta/v1.DeleteOptions"));
    let body = RequestBody { component: "meta/v1.DeleteOptions".to_owned(), required: false };
    OpenApiRoute { body: Some(body), responses: component_responses(&[200, 202], &component), ..route }
}

fn component_responses(codes: &[u16], component: &str) -> Vec<(u16, ResponseBody)> {
    codes.iter().map(|code| (*code, ResponseBody::Component(component.to_owned()))).collect()
}
