//! The routes of a resource: collection and object verbs, subresources, and deprecated watch paths.

use super::{
    conventions::{BUILT_IN, CUSTOM, Conventions},
    custom_resources,
    group_version_kinds::Kind,
    path_names,
    route::{ANY, Body, LOG, Parameter, Route, Shape},
};
use crate::schema::{Resource, Subresource, schema};

const CONNECT: &[(&str, &str)] = &[
    ("delete", "Delete"),
    ("get", "Get"),
    ("head", "Head"),
    ("options", "Options"),
    ("patch", "Patch"),
    ("post", "Post"),
    ("put", "Put"),
];

/// Returns all routes of a resource.
pub(super) fn routes(resource: &Resource) -> Vec<Route> {
    let maker = Maker::new(resource);
    let mut out = maker.collection();
    out.extend(maker.object());
    if maker.conventions.watch_paths {
        out.extend(maker.watches());
    }
    out.extend(resource.subresources.iter().flat_map(|sub| maker.subresource(sub)));
    out
}

struct Maker<'a> {
    resource: &'a Resource,
    conventions: &'static Conventions,
    /// The component keys of objects and lists.
    component: String,
    list_component: String,
    /// Group and version in operation names.
    infix: String,
    tag: String,
}

/// The scope of a path: watch, all namespaces, or one object.
#[derive(Clone, Copy)]
struct Place {
    watch: bool,
    everywhere: bool,
    named: bool,
}

const COLLECTION: Place = Place { watch: false, everywhere: false, named: false };
const EVERYWHERE: Place = Place { everywhere: true, ..COLLECTION };
const OBJECT_PATH: Place = Place { named: true, ..COLLECTION };

impl<'a> Maker<'a> {
    fn new(resource: &'a Resource) -> Self {
        let (group, version) = (resource.group, resource.version);
        let (conventions, component, list_component) = match &resource.custom_schema {
            Some(custom) => {
                let key = |kind: &str| custom_resources::key(group, version, kind);
                (&CUSTOM, key(resource.kind), key(custom.list_kind()))
            }
            None => {
                let name = &schema().get(resource.ty).name;
                (&BUILT_IN, name.clone(), format!("{name}List"))
            }
        };
        let (infix, tag) = (path_names::infix(group, version), path_names::tag(group, version));
        Self { resource, conventions, component, list_component, infix, tag }
    }

    fn can(&self, verb: &str) -> bool {
        self.resource.verbs.contains(&verb)
    }

    /// `Namespaced` for paths with a namespace.
    fn namespaced(&self, place: Place) -> &'static str {
        if self.resource.is_namespaced() && !place.everywhere { "Namespaced" } else { "" }
    }

    fn path(&self, place: Place) -> String {
        let r = self.resource;
        let watch = if place.watch { "/watch" } else { "" };
        let scope = if self.namespaced(place).is_empty() { "" } else { "/namespaces/{namespace}" };
        let name = if place.named { "/{name}" } else { "" };
        format!("/{}{watch}{scope}/{}{name}", path_names::of_version(r.group, r.version), r.name)
    }

    /// Builds a route without body and responses; `verb` and `rest` enclose group and version in its name.
    fn route(&self, place: Place, method: &'static str, action: &'static str, (verb, rest): (&str, String)) -> Route {
        let r = self.resource;
        let mut parameters = Vec::new();
        if !self.namespaced(place).is_empty() {
            parameters.push(Parameter::in_path("namespace"));
        }
        if place.named {
            parameters.push(Parameter::in_path("name"));
        }
        parameters.push(Parameter::pretty());
        Route {
            path: self.path(place),
            method,
            id: format!("{verb}{}{}", self.infix, path_names::word(&rest, true)),
            tag: self.tag.clone(),
            action: Some(action),
            kind: Some(Kind { group: r.group, version: r.version, kind: r.kind.to_owned() }),
            parameters,
            body: None,
            consumes: self.conventions.consumes,
            produces: self.conventions.produces,
            answers: Vec::new(),
        }
    }

    fn named(&self, place: Place) -> String {
        format!("{}{}", self.namespaced(place), self.resource.kind)
    }

    fn collection(&self) -> Vec<Route> {
        let mut out = Vec::new();
        if self.can("create") {
            let route = self.route(COLLECTION, "post", "post", ("create", self.named(COLLECTION)));
            out.push(create(route, self.component.clone()));
        }
        if self.can("list") {
            out.push(self.list(COLLECTION, String::new()));
            if self.resource.is_namespaced() {
                out.push(self.list(EVERYWHERE, "ForAllNamespaces".into()));
            }
        }
        if self.can("deletecollection") {
            out.push(self.delete_collection());
        }
        out
    }

    fn list(&self, place: Place, suffix: String) -> Route {
        let mut route = self.route(place, "get", "list", ("list", self.named(place) + &suffix));
        route.parameters.extend(Parameter::options("meta/v1.ListOptions"));
        Route { produces: self.conventions.lists, answers: answers(&[200], &self.list_component), ..route }
    }

    fn delete_collection(&self) -> Route {
        let taken = &self.conventions.delete_collection;
        let id = ("delete", format!("Collection{}", self.named(COLLECTION)));
        let mut route = self.route(COLLECTION, "delete", "deletecollection", id);
        let options = taken.options.iter().flat_map(|options| Parameter::options(options));
        route.parameters.extend(options.filter(|parameter| !taken.without.contains(&parameter.name)));
        let body = taken.body.map(|component| Body { component: component.to_owned(), required: false });
        Route { body, answers: answers(&[200], "meta/v1.Status"), ..route }
    }

    fn object(&self) -> Vec<Route> {
        let mut out = self.read_and_write(OBJECT_PATH, "", &self.resource.verbs, &self.component);
        if self.can("delete") {
            let deleted =
                if self.resource.returns_deleted { self.component.clone() } else { "meta/v1.Status".to_owned() };
            let route = self.route(OBJECT_PATH, "delete", "delete", ("delete", self.named(OBJECT_PATH)));
            out.push(delete(route, deleted));
        }
        out
    }

    /// The routes `get`, `patch` and `update` of an object or subresource.
    fn read_and_write(&self, place: Place, suffix: &str, verbs: &[&str], component: &str) -> Vec<Route> {
        let id = || self.named(place) + suffix;
        let mut out = Vec::new();
        if verbs.contains(&"get") {
            let mut route = self.route(place, "get", "get", ("read", id()));
            route.parameters.extend(self.conventions.read.into_iter().flat_map(Parameter::options));
            out.push(Route { answers: answers(&[200], component), ..route });
        }
        if verbs.contains(&"update") {
            let mut route = self.route(place, "put", "put", ("replace", id()));
            route.parameters.extend(Parameter::options("meta/v1.UpdateOptions"));
            let body = Some(Body { component: component.to_owned(), required: true });
            out.push(Route { body, answers: answers(&[200, 201], component), ..route });
        }
        if verbs.contains(&"patch") {
            let mut route = self.route(place, "patch", "patch", ("patch", id()));
            route.parameters.extend(Parameter::options("meta/v1.PatchOptions"));
            let body = Some(Body { component: "Patch".to_owned(), required: true });
            out.push(Route {
                body,
                consumes: self.conventions.patches,
                answers: answers(self.conventions.patched, component),
                ..route
            });
        }
        out
    }

    fn watches(&self) -> Vec<Route> {
        if !self.can("watch") {
            return Vec::new();
        }
        let watch = |place: Place, action: &'static str, suffix: &str| {
            let place = Place { watch: true, ..place };
            let mut route = self.route(place, "get", action, ("watch", self.named(place) + suffix));
            route.parameters.extend(Parameter::options("meta/v1.ListOptions"));
            Route { produces: self.conventions.lists, answers: answers(&[200], "meta/v1.WatchEvent"), ..route }
        };
        let mut out = vec![watch(COLLECTION, "watchlist", "List"), watch(OBJECT_PATH, "watch", "")];
        if self.resource.is_namespaced() {
            out.push(watch(EVERYWHERE, "watchlist", "ListForAllNamespaces"));
        }
        out
    }

    fn subresource(&self, sub: &Subresource) -> Vec<Route> {
        let (group, version) = sub.group_version.unwrap_or((self.resource.group, self.resource.version));
        let suffix = path_names::title(sub.name);
        let found = schema().type_of_kind(group, version, sub.kind).map(|id| schema().get(id).name.clone());
        let component = found.unwrap_or_else(|| self.component.clone());
        // The kind of a custom resource may have the same suffix.
        let connects = sub.kind.ends_with("Options") && sub.kind != self.resource.kind;
        let mut routes = if connects {
            self.connect(sub, &suffix, &component)
        } else if sub.name == "log" {
            vec![self.log()]
        } else {
            self.read_and_write(OBJECT_PATH, &suffix, &sub.verbs, &component)
        };
        if sub.verbs.contains(&"create") && !connects {
            let id = ("create", self.named(OBJECT_PATH) + &suffix);
            routes.push(create(self.route(OBJECT_PATH, "post", "post", id), component));
        }
        for route in &mut routes {
            route.path = route.path.replacen("/{name}", &format!("/{{name}}/{}", sub.name), 1);
            if self.conventions.parts_have_kinds {
                route.kind = Some(Kind { group, version, kind: sub.kind.to_owned() });
            }
        }
        routes
    }

    fn log(&self) -> Route {
        let mut route = self.route(OBJECT_PATH, "get", "get", ("read", self.named(OBJECT_PATH) + "Log"));
        route.parameters.extend(Parameter::options("core/v1.PodLogOptions"));
        Route { produces: LOG, answers: vec![(200, Shape::Text)], ..route }
    }

    /// The routes that upgrade the connection: two methods, or all methods and subpaths for a proxy.
    fn connect(&self, sub: &Subresource, suffix: &str, options: &str) -> Vec<Route> {
        let proxy = sub.verbs.contains(&"update");
        let methods = CONNECT.iter().filter(|(method, _)| proxy || matches!(*method, "get" | "post"));
        let mut out = Vec::new();
        for (method, word) in methods {
            for below in [false, true] {
                let id = format!("{word}{}{suffix}{}", self.named(OBJECT_PATH), if below { "WithPath" } else { "" });
                let mut route = self.route(OBJECT_PATH, method, "connect", ("connect", id));
                route.parameters.retain(|p| p.name != "pretty");
                route.parameters.extend(Parameter::options(options));
                if below {
                    route.parameters.push(Parameter::in_path("path"));
                    // The subresource is inserted after the name.
                    route.path.push_str("/{path}");
                }
                if proxy || !below {
                    out.push(Route { produces: ANY, answers: vec![(200, Shape::Text)], ..route });
                }
            }
        }
        out
    }
}

fn create(mut route: Route, component: String) -> Route {
    route.parameters.extend(Parameter::options("meta/v1.CreateOptions"));
    let answers = answers(&[200, 201, 202], &component);
    Route { body: Some(Body { component, required: true }), answers, ..route }
}

fn delete(mut route: Route, component: String) -> Route {
    route.parameters.extend(Parameter::options("meta/v1.DeleteOptions"));
    let body = Body { component: "meta/v1.DeleteOptions".to_owned(), required: false };
    Route { body: Some(body), answers: answers(&[200, 202], &component), ..route }
}

fn answers(codes: &[u16], component: &str) -> Vec<(u16, Shape)> {
    codes.iter().map(|code| (*code, Shape::Component(component.to_owned()))).collect()
}
