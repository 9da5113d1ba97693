//! Whether an answer can be true.

use serde_json::Value;

use super::clock::Span;

/// An answer, and when it was given.
pub struct Answer {
    pub span: Span,
    pub code: u16,
    pub body: Value,
}

impl Answer {
    /// Asserts that a response is no server error, object of another life or unknown text.
    pub fn sensible(self, version: &str) -> Self {
        let Self { span, code, body } = &self;
        if span.gone() {
            assert_eq!((*code, body.as_str()), (404, Some("404 page not found\n")), "there is nothing: {self:?}");
        }
        match code {
            200 | 201 if body["kind"] == "Boat" => self.of_this_life(body, version),
            200 if body["kind"] == "BoatList" => {
                assert_eq!(body["apiVersion"], format!("harbour.example.io/{version}"), "{self:?}");
                body["items"].as_array().unwrap().iter().for_each(|boat| self.of_this_life(boat, version));
            }
            200 => assert_eq!((&body["kind"], &body["status"]), (&"Status".into(), &"Success".into()), "{self:?}"),
            404 if body.is_string() => {
                assert_eq!(body, "404 page not found\n");
                let absent = if version == "v1" { span.alive() } else { span.second() };
                assert!(absent.is_none(), "the path is there: {self:?}");
            }
            404 => assert!(self.says("NotFound", "\" not found"), "{self:?}"),
            409 => assert!(self.says("AlreadyExists", "\" already exists") || body["reason"] == "Conflict", "{self:?}"),
            403 => {
                let why = "create not allowed while custom resource definition is terminating";
                assert!(self.says("Forbidden", why) && span.dying(), "{self:?}");
            }
            _ => panic!("nobody would say that: {self:?}"),
        }
        self
    }

    fn says(&self, reason: &str, end: &str) -> bool {
        let message = self.body["message"].as_str().unwrap_or_default();
        self.body["kind"] == "Status" && self.body["reason"] == reason && message.ends_with(end)
    }

    fn of_this_life(&self, boat: &Value, version: &str) {
        let (first, last) = self.span.rounds();
        let round = boat["spec"]["round"].as_u64().map(|round| round as usize);
        assert!(round.is_some_and(|round| (first..=last).contains(&round)), "of another life: {boat}: {self:?}");
        // The items of a list in JSON say what they are, as upstream's of custom resources do.
        assert_eq!(boat["apiVersion"], format!("harbour.example.io/{version}"), "{self:?}");
        assert_eq!(boat["kind"], "Boat", "{self:?}");
        if let Some(round) = self.span.second() {
            assert_eq!(boat["spec"]["hold"], round, "it has its default: {self:?}");
        }
        if self.span.first().is_some() {
            assert!(boat["spec"].get("hold").is_none(), "nobody knows of that yet: {self:?}");
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body: String = self.body.to_string().chars().take(2000).collect();
        write!(f, "{:?} {} {body}", self.span, self.code)
    }
}
