//! Histograms in Prometheus text format.

/// Cumulative counts by the upper bounds of the buckets, all series of the name together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Reads a histogram by its name.
    pub fn read(text: &str, name: &str) -> Self {
        let prefix = format!("{name}_bucket{{");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for line in text.lines().filter(|line| line.starts_with(&prefix)) {
            let bound = line.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
            let bound = bound.map(|bound| if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap_or(0.0) });
            let count = line.rsplit(' ').next().and_then(|count| count.parse().ok());
            let (Some(bound), Some(count)) = (bound, count) else { continue };
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Self { buckets }
    }

    /// Returns what was observed since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let before =
            |bound: f64| earlier.buckets.iter().find(|(known, _)| *known == bound).map_or(0.0, |found| found.1);
        Self { buckets: self.buckets.iter().map(|(bound, count)| (*bound, count - before(*bound))).collect() }
    }

    /// Returns a quantile as Prometheus estimates it: linear within its bucket.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let total = self.buckets.last()?.1;
        if total == 0.0 {
            return None;
        }
        let rank = total * share;
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= rank {
                let inside = if count > &below { (rank - below) / (count - below) } else { 1.0 };
                return Some(if bound.is_finite() { lower + (bound - lower) * inside } else { lower });
            }
            (lower, below) = (*bound, *count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        let text = "# TYPE m histogram\nm_bucket{le=\"1\"} 2\nm_bucket{le=\"2\"} 4\nm_bucket{le=\"+Inf\"} 4\nm_sum 5\n";
        let later = Histogram::read(text, "m");
        assert_eq!((later.quantile(0.5), later.quantile(0.75)), (Some(1.0), Some(1.5)));
        assert_eq!(later.since(&later).quantile(0.5), None);
        assert_eq!(Histogram::read(text, "n").quantile(0.5), None);
    }
}
