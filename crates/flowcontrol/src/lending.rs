//! Seat lending: each level gets at least the seats that it may not lend, at most those that it may borrow, and in
//! between the same fraction of its expected demand.

use std::sync::Arc;

use super::level::{Demand, Level};

/// Recomputes the seats of all levels.
pub fn lend(levels: &[&Arc<Level>], total: usize) {
    let demands: Vec<Demand> = levels.iter().map(|level| level.demand()).collect();
    for (level, limit) in levels.iter().zip(shares(&demands, total)) {
        level.set_limit(limit);
    }
}

/// Returns the seats of each level.
fn shares(demands: &[Demand], total: usize) -> Vec<usize> {
    let share = |demand: &Demand, fraction: f64| {
        let target = demand.wanted.max(demand.lower as f64).max(1.0) * fraction;
        target.clamp(demand.lower as f64, demand.upper.max(demand.lower) as f64)
    };
    let sum = |fraction: f64| -> f64 { demands.iter().filter(|d| !d.exempt).map(|d| share(d, fraction)).sum() };
    let (mut low, mut high) = (0.0, total as f64 + 1.0);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if sum(middle) > total as f64 { high = middle } else { low = middle }
    }
    demands
        .iter()
        .map(|demand| if demand.exempt { demand.upper } else { share(demand, low).round() as usize })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(lower: usize, upper: usize, wanted: f64) -> Demand {
        Demand { lower, upper, wanted, exempt: false }
    }

    #[test]
    fn idle_lendable_seats_are_lent() {
        let got = shares(&[demand(50, 100, 0.0), demand(50, 100, 100.0)], 100);
        assert_eq!(got, [50, 50]);
        let got = shares(&[demand(10, 100, 0.0), demand(50, 100, 100.0)], 100);
        assert!(got[0] >= 10 && got[1] > 80 && got.iter().sum::<usize>() <= 101, "{got:?}");
    }

    #[test]
    fn borrowing_limit_is_respected() {
        let got = shares(&[demand(0, 100, 0.0), demand(10, 20, 1000.0)], 100);
        assert_eq!(got[1], 20);
    }
}
