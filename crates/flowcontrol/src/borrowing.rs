//! Seat lending: each level gets at least the seats that it may not lend, at most those that it may borrow, and in
//! between the same fraction of its expected demand.

use std::sync::Arc;

use super::priority_level::{PriorityLevel, SeatDemand};

/// Recomputes the seats of all levels.
pub fn update_borrowing(levels: &[&Arc<PriorityLevel>], total: usize) {
    let demands: Vec<SeatDemand> = levels.iter().map(|level| level.take_demand()).collect();
    for (level, limit) in levels.iter().zip(compute_fair_allocations(&demands, total)) {
        level.set_limit(limit);
    }
}

/// Returns the seats of each level.
fn compute_fair_allocations(demands: &[SeatDemand], total: usize) -> Vec<usize> {
    let share = |demand: &SeatDemand, fraction: f64| {
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

    fn seat_demand(lower: usize, upper: usize, wanted: f64) -> SeatDemand {
        SeatDemand { lower, upper, wanted, exempt: false }
    }

    #[test]
    fn idle_lendable_seats_are_lent() {
        let got = compute_fair_allocations(&[seat_demand(50, 100, 0.0), seat_demand(50, 100, 100.0)], 100);
        assert_eq!(got, [50, 50]);
        let got = compute_fair_allocations(&[seat_demand(10, 100, 0.0), seat_demand(50, 100, 100.0)], 100);
        assert!(got[0] >= 10 && got[1] > 80 && got.iter().sum::<usize>() <= 101, "{got:?}");
    }

    #[test]
    fn borrowing_limit_is_respected() {
        let got = compute_fair_allocations(&[seat_demand(0, 100, 0.0), seat_demand(10, 20, 1000.0)], 100);
        assert_eq!(got[1], 20);
    }
}
