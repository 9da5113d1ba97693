//! Clients that write and read an object of their own: while the definition lives, what was acknowledged is there, and nothing else.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    NEWER,
    clock::{Clock, Span},
    judge::Answer,
};
use crate::custom::world::{APPLY, BOATS, MERGE, World, boat};

/// A client.
struct Client {
    world: World,
    clock: Arc<Clock>,
    name: String,
    turns: usize,
}

/// Uses boats until there are no more lives; how often.
pub async fn run(world: World, clock: Arc<Clock>, number: usize) -> usize {
    let mut client = Client { world, clock, name: format!("b{number}"), turns: 0 };
    while !client.clock.is_over() {
        client.turn(number).await;
        client.turns += 1;
    }
    client.turns
}

impl Client {
    async fn ask(&self, method: &str, path: &str, kind: &str, body: Value) -> Answer {
        let version = if path.starts_with(NEWER) { "v2" } else { "v1" };
        let (span, (code, body)) = self.clock.span(self.world.send(method, path, kind, &body)).await;
        Answer { span, code, body }.sensible(version)
    }

    fn path(&self) -> String {
        format!("{BOATS}/{}", self.name)
    }

    /// Creates an object, and does all that can be done with it.
    async fn turn(&mut self, number: usize) {
        let created = match number % 2 {
            0 => self.ask("POST", BOATS, "application/json", boat(&self.name, json!({"size": 5}))).await,
            _ => {
                let path = format!("{}?fieldManager=churn", self.path());
                self.ask("PATCH", &path, APPLY, boat(&self.name, json!({"size": 5}))).await
            }
        };
        if created.span.alive().is_some() {
            assert_eq!(created.code, 201, "nobody else has the name: {created:?}");
        }
        let got = self.ask("GET", &self.path(), "", Value::Null).await;
        self.is_there(&created, &got);
        let changed = self.change(number, &created).await;
        self.listed(number, &created).await;
        let deleted = self.ask("DELETE", &self.path(), "", Value::Null).await;
        if let Some(changed) = &changed {
            self.is_there(&created, changed);
        }
        self.is_there(&created, &deleted);
        let gone = self.ask("GET", &self.path(), "", Value::Null).await;
        if deleted.code == 200 && deleted.span.until(gone.span).alive().is_some() {
            assert_eq!(gone.code, 404, "it was deleted: {gone:?}");
        }
    }

    /// Asserts that an object created in this life exists.
    fn is_there(&self, created: &Answer, answer: &Answer) {
        if created.code == 201 && created.span.until(answer.span).alive().is_some() {
            assert_eq!(answer.code, 200, "{created:?} was acknowledged: {answer:?}");
            let uid = created.body["metadata"]["uid"].as_str();
            let told = [&answer.body["metadata"]["uid"], &answer.body["details"]["uid"]];
            assert!(told.iter().any(|told| told.as_str() == uid), "{created:?} is another: {answer:?}");
        }
    }

    async fn change(&self, number: usize, created: &Answer) -> Option<Answer> {
        let span = created.span;
        let mut object = created.body.clone();
        let changed = match number % 3 {
            _ if created.code != 201 => return None,
            0 => {
                object["spec"]["size"] = 6.into();
                self.ask("PUT", &self.path(), "application/json", object).await
            }
            1 => self.ask("PATCH", &self.path(), MERGE, json!({"spec": {"size": 6}})).await,
            _ => {
                let path = format!("{NEWER}/{}", self.name);
                self.ask("PATCH", &path, MERGE, json!({"spec": {"size": 6}})).await
            }
        };
        // The other version is there only after the change.
        let alive = if number % 3 == 2 { changed.span.second() } else { changed.span.alive() };
        let same = span.until(changed.span).alive().is_some() && alive.is_some();
        if same {
            assert_eq!((changed.code, &changed.body["spec"]["size"]), (200, &json!(6)), "{changed:?}");
        }
        same.then_some(changed)
    }

    /// A list has what was acknowledged, once.
    async fn listed(&self, number: usize, created: &Answer) {
        match number % 4 {
            0 => self.has_own(created, &self.ask("GET", BOATS, "", Value::Null).await),
            1 => self.has_own(created, &self.ask("GET", NEWER, "", Value::Null).await),
            2 => self.selected().await,
            _ => self.paged(created).await,
        }
    }

    fn has_own(&self, created: &Answer, list: &Answer) {
        if list.code != 200 || created.code != 201 || created.span.until(list.span).alive().is_none() {
            return;
        }
        let items = list.body["items"].as_array().unwrap();
        let own = items.iter().filter(|boat| boat["metadata"]["name"] == *self.name).count();
        assert_eq!(own, 1, "{created:?} is not in {list:?}");
    }

    /// By a field that can be selected after the change only.
    async fn selected(&self) {
        let path = format!("{BOATS}?fieldSelector=spec.size%3D15");
        let (span, (code, body)) = self.clock.span(self.world.get(&path)).await;
        match span.second() {
            Some(round) => {
                let names: Vec<_> =
                    body["items"].as_array().into_iter().flatten().map(|boat| &boat["metadata"]["name"]).collect();
                assert_eq!((code, names), (200, vec![&json!(format!("own-{round}"))]), "{span:?} {body}");
            }
            None if span.first().is_some() => assert_eq!(code, 400, "there is no such field: {span:?} {body}"),
            None => assert!(matches!(code, 200 | 400 | 404), "{span:?} {code} {body}"),
        }
    }

    /// Page by page, all of one moment.
    async fn paged(&self, created: &Answer) {
        let (mut token, mut names) = (String::new(), Vec::new());
        let mut span: Option<Span> = None;
        loop {
            let path = format!("{BOATS}?limit=7&continue={token}");
            let (this, (code, body)) = self.clock.span(self.world.get(&path)).await;
            span = Some(span.map_or(this, |span| span.until(this)));
            if code != 200 {
                assert!(code == 404 && this.alive().is_none() || code == 410, "{this:?} {code} {body}");
                return;
            }
            names.extend(body["items"].as_array().unwrap().iter().map(|boat| boat["metadata"]["name"].clone()));
            match body["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(next) => next.clone_into(&mut token),
                None => break,
            }
        }
        let own = names.iter().filter(|name| **name == *self.name).count();
        let alive = span.is_some_and(|span| created.span.until(span).alive().is_some());
        assert!(own == 1 || created.code != 201 || !alive, "{created:?} is not in {names:?}");
    }
}
