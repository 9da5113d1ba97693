//! In which stage of its life the definition is, and between which stages a question was asked and answered.

use std::{
    future::Future,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::watch;

/// A stage in the life of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is being created.
    Creating,
    /// It is served.
    Alive,
    /// It is being changed.
    Changing,
    /// It is served as it was changed.
    Changed,
    /// It is being deleted.
    Deleting,
    /// It is not there.
    Gone,
}

const STAGES: [Stage; 6] =
    [Stage::Creating, Stage::Alive, Stage::Changing, Stage::Changed, Stage::Deleting, Stage::Gone];

/// The stage as a number that only grows: the first is the one before the first life.
#[derive(Default)]
pub struct Clock {
    now: AtomicUsize,
    over: AtomicBool,
    answers: watch::Sender<usize>,
}

/// From when to when.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    from: usize,
    to: usize,
}

impl Clock {
    /// The definition enters a stage.
    pub fn set(&self, round: usize, stage: Stage) {
        self.now.store(round * STAGES.len() + stage as usize + 1, Ordering::SeqCst);
    }

    /// No more lives.
    pub fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Whether there are no more lives.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Asks, and tells when that was.
    pub async fn span<T>(&self, question: impl Future<Output = T>) -> (Span, T) {
        let from = self.now.load(Ordering::SeqCst);
        let answer = question.await;
        let to = self.now.load(Ordering::SeqCst);
        self.answers.send_modify(|answers| *answers += 1);
        // An answer that needs nobody else keeps others from their turn.
        tokio::task::yield_now().await;
        (Span { from, to }, answer)
    }

    /// Lets the clients be answered for a while.
    pub async fn pause(&self) {
        let mut answers = self.answers.subscribe();
        let enough = *answers.borrow() + 2 * (super::CLIENTS + super::READERS);
        let _ = answers.wait_for(|answers| *answers >= enough).await;
    }
}

impl Span {
    /// From the beginning of one to the end of another.
    pub fn until(self, other: Span) -> Span {
        Span { from: self.from, to: other.to }
    }

    /// The first and the last round.
    pub fn rounds(self) -> (usize, usize) {
        (round(self.from).unwrap_or(0), round(self.to).unwrap_or(0))
    }

    /// The round, if the definition was there all the time, and was or became no other.
    pub fn alive(self) -> Option<usize> {
        self.within(Stage::Alive, Stage::Changed)
    }

    /// The round, if the definition was all the time as it was created.
    pub fn first(self) -> Option<usize> {
        self.within(Stage::Alive, Stage::Alive)
    }

    /// The round, if the definition was all the time as it was changed.
    pub fn second(self) -> Option<usize> {
        self.within(Stage::Changed, Stage::Changed)
    }

    /// Whether there was no definition all the time.
    pub fn gone(self) -> bool {
        self.from == self.to && stage(self.from).is_none_or(|stage| stage == Stage::Gone)
    }

    /// Whether it was being deleted at some time.
    pub fn dying(self) -> bool {
        (self.from..=self.to).any(|at| stage(at) == Some(Stage::Deleting))
    }

    fn within(self, first: Stage, last: Stage) -> Option<usize> {
        let fits = |at| stage(at).is_some_and(|stage| (first..=last).contains(&stage));
        round(self.from).filter(|from| fits(self.from) && fits(self.to) && Some(*from) == round(self.to))
    }
}

fn round(at: usize) -> Option<usize> {
    Some(at.checked_sub(1)? / STAGES.len())
}

fn stage(at: usize) -> Option<Stage> {
    Some(STAGES[at.checked_sub(1)? % STAGES.len()])
}
