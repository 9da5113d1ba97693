//! The steps of a start or a stop, told as they happen: to the terminal, or as JSON lines to the process that waits for
//! the background one.

use std::{
    future::Future,
    io::{self, Write},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use crate::screen::Screen;

/// What the background process tells the one that started it, a line each.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "report", rename_all = "camelCase")]
pub enum Report {
    /// A step began.
    Began {
        /// Its name.
        step: String,
    },
    /// A step is done.
    Done {
        /// Its name.
        step: String,
        /// What came of it.
        detail: String,
        /// How long it took.
        seconds: f64,
    },
    /// A step that began had nothing to do.
    Skipped,
    /// Something that works less well than it should.
    Warning {
        /// What.
        text: String,
    },
    /// Nothing more will happen.
    Failed {
        /// The step that failed.
        step: Option<String>,
        /// Why.
        error: String,
    },
    /// Everything is up.
    Ready,
}

impl Report {
    /// Shows it to the user.
    pub fn show(&self, screen: &Screen) {
        match self {
            Report::Began { step } => screen.began(step),
            Report::Done { step, detail, seconds } => screen.done(step, detail, *seconds),
            Report::Skipped => screen.forget(),
            Report::Warning { text } => screen.warning(text),
            Report::Failed { step: Some(step), .. } => screen.failed(step),
            Report::Failed { step: None, .. } | Report::Ready => {}
        }
    }
}

/// Tells steps to whoever waits for them.
pub struct Steps {
    /// `None`: the parent process, through standard output.
    screen: Option<Screen>,
    running: Option<(String, Instant)>,
    started: Instant,
}

impl Steps {
    /// Tells the user.
    pub fn on_terminal() -> Self {
        Self { screen: Some(Screen::new()), running: None, started: Instant::now() }
    }

    /// Tells the parent process.
    pub fn to_parent() -> Self {
        Self { screen: None, ..Self::on_terminal() }
    }

    /// Does one step; `work` returns what it made and a few words about it.
    pub async fn step<T>(
        &mut self,
        name: &str,
        work: impl Future<Output = anyhow::Result<(T, String)>>,
    ) -> anyhow::Result<T> {
        self.begin(name);
        let (made, detail) = work.await?;
        self.done(&detail);
        Ok(made)
    }

    /// A step begins.
    pub fn begin(&mut self, name: &str) {
        self.running = Some((name.to_owned(), Instant::now()));
        self.tell(Report::Began { step: name.to_owned() });
    }

    /// The step that began last is done.
    pub fn done(&mut self, detail: &str) {
        if let Some((step, began)) = self.running.take() {
            let seconds = began.elapsed().as_secs_f64();
            // On a terminal the step is shown there already.
            if self.screen.is_none() {
                tracing::info!(step, detail, seconds, "done");
            }
            self.tell(Report::Done { step, detail: detail.to_owned(), seconds });
        }
    }

    /// The step that began last had nothing to do.
    pub fn skip(&mut self) {
        self.running = None;
        self.tell(Report::Skipped);
    }

    /// Tells what works less well than it should.
    pub fn warn(&self, text: &str) {
        tracing::warn!("{text}");
        self.tell(Report::Warning { text: text.to_owned() });
    }

    /// Nothing more will happen.
    pub fn failed(&mut self, error: &anyhow::Error) {
        let step = self.running.take().map(|(step, _)| step);
        tracing::error!(step, error = format!("{error:#}"), "failed");
        self.tell(Report::Failed { step, error: format!("{error:#}") });
    }

    /// Everything is up.
    pub fn ready(&self) {
        self.tell(Report::Ready);
    }

    /// Since the first step.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn tell(&self, report: Report) {
        match &self.screen {
            Some(screen) => report.show(screen),
            None => {
                let mut line = serde_json::to_vec(&report).unwrap_or_default();
                line.push(b'\n');
                // The parent may have been interrupted; the cluster starts all the same.
                let _ = io::stdout().lock().write_all(&line);
            }
        }
    }
}
