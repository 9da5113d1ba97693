//! The queues of a level. A flow is dealt a hand of queues by its hash and waits in the shortest one, so that a flood
//! leaves other queues free. Queues are served in the order of virtual time, which advances by the seats of a request.

use std::collections::VecDeque;

use super::config::QueuingConfig;

/// Waiting requests.
pub struct QueueSet<W> {
    queues: Vec<RequestQueue<W>>,
    hand: usize,
    length: usize,
    /// Virtual time of the last dispatched request.
    now: f64,
    /// Number and seats of all waiting requests.
    count: usize,
    width: usize,
}

struct RequestQueue<W> {
    waiting: VecDeque<QueuedItem<W>>,
    /// Virtual finish time of the last request in the queue.
    done: f64,
}

struct QueuedItem<W> {
    start: f64,
    width: usize,
    waiter: W,
}

impl<W> QueueSet<W> {
    /// Creates empty queues.
    pub fn new(config: QueuingConfig) -> Self {
        let queue = || RequestQueue { waiting: VecDeque::new(), done: 0.0 };
        let queues = (0..config.queues).map(|_| queue()).collect();
        Self { queues, hand: config.hand, length: config.length, now: 0.0, count: 0, width: 0 }
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Seats of all waiting requests.
    pub fn waiting_seats(&self) -> usize {
        self.width
    }

    /// Drains all waiting requests.
    pub fn waiting_requests(&self) -> impl Iterator<Item = &W> {
        self.queues.iter().flat_map(|queue| queue.waiting.iter().map(|waiting| &waiting.waiter))
    }

    /// Enqueues a request in the shortest queue of its hand; returns it if that queue is full. Cancelled requests,
    /// according to `gone`, do not count.
    pub fn enqueue_request(&mut self, hash: u64, width: usize, waiter: W, gone: impl Fn(&W) -> bool) -> Result<(), W> {
        let hand = deal_hand(hash, self.queues.len(), self.hand);
        for at in &hand {
            self.queues[*at].waiting.retain(|waiting| {
                let stays = !gone(&waiting.waiter);
                if !stays {
                    self.count -= 1;
                    self.width -= waiting.width;
                }
                stays
            });
        }
        let Some(at) = hand.into_iter().min_by_key(|at| self.queues[*at].waiting.len()) else { return Err(waiter) };
        let (now, queue) = (self.now, &mut self.queues[at]);
        if queue.waiting.len() >= self.length {
            return Err(waiter);
        }
        let start = queue.done.max(now);
        queue.done = start + width as f64;
        queue.waiting.push_back(QueuedItem { start, width, waiter });
        self.count += 1;
        self.width += width;
        Ok(())
    }

    /// Dequeues the request with the earliest virtual time, if `fits` allows it.
    pub fn dequeue_request(&mut self, fits: impl Fn(&W) -> bool) -> Option<W> {
        if self.count == 0 {
            return None;
        }
        let first = |queue: &RequestQueue<W>| queue.waiting.front().map(|waiting| waiting.start);
        let next = self.queues.iter_mut().filter(|queue| !queue.waiting.is_empty());
        let queue = next.min_by(|a, b| first(a).partial_cmp(&first(b)).unwrap_or(std::cmp::Ordering::Equal))?;
        if !queue.waiting.front().is_some_and(|waiting| fits(&waiting.waiter)) {
            return None;
        }
        let waiting = queue.waiting.pop_front()?;
        self.now = self.now.max(waiting.start);
        self.count -= 1;
        self.width -= waiting.width;
        Some(waiting.waiter)
    }
}

/// Deals `hand` distinct queue indexes below `deck` from a hash (shuffle sharding).
fn deal_hand(hash: u64, deck: usize, hand: usize) -> Vec<usize> {
    let (mut rest, mut cards) = (hash, Vec::with_capacity(hand));
    for dealt in 0..hand.min(deck) {
        let left = (deck - dealt) as u64;
        let mut card = usize::try_from(rest % left).unwrap_or(0);
        rest /= left;
        let mut before: Vec<usize> = cards.clone();
        before.sort_unstable();
        for taken in before {
            card += usize::from(card >= taken);
        }
        cards.push(card);
    }
    cards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_have_distinct_queues() {
        for hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let mut hand = deal_hand(hash, 16, 6);
            hand.sort_unstable();
            hand.dedup();
            assert!(hand.len() == 6 && hand.iter().all(|card| *card < 16), "{hash} {hand:?}");
        }
        assert_eq!(deal_hand(7, 3, 8).len(), 3);
    }

    #[test]
    fn flooding_flow_does_not_starve_others() {
        let mut queues = QueueSet::new(QueuingConfig { queues: 2, hand: 1, length: 100 });
        for _ in 0..50 {
            queues.enqueue_request(0, 1, "flood", |_| false).unwrap();
        }
        queues.enqueue_request(1, 1, "other", |_| false).unwrap();
        let order: Vec<&str> = std::iter::from_fn(|| queues.dequeue_request(|_| true)).collect();
        assert!(order[..2].contains(&"other"), "{order:?}");
        assert_eq!(order.len(), 51);
    }

    #[test]
    fn wide_requests_advance_virtual_time() {
        let mut queues = QueueSet::new(QueuingConfig { queues: 2, hand: 1, length: 100 });
        for _ in 0..10 {
            queues.enqueue_request(0, 10, "wide", |_| false).unwrap();
            queues.enqueue_request(1, 1, "narrow", |_| false).unwrap();
        }
        let order: Vec<&str> = std::iter::from_fn(|| queues.dequeue_request(|_| true)).take(11).collect();
        assert!(order.iter().filter(|one| **one == "narrow").count() >= 9, "{order:?}");
    }

    #[test]
    fn full_queue_rejects_requests() {
        let mut queues = QueueSet::new(QueuingConfig { queues: 1, hand: 1, length: 1 });
        queues.enqueue_request(0, 1, 1, |_| false).unwrap();
        assert_eq!(queues.enqueue_request(0, 1, 2, |_| false), Err(2));
        assert_eq!(queues.enqueue_request(0, 1, 3, |waiter| *waiter == 1), Ok(()));
    }
}
