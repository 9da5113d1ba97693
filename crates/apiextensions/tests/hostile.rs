//! Mutated CRDs and custom resources: none panics, hangs or allocates more than 64 MiB. `FERRY_FUZZ` sets the number of
//! executions.

#[path = "hostile/mutate.rs"]
mod mutate;
#[path = "hostile/run.rs"]
mod run;

use std::{
    panic::catch_unwind,
    time::{Duration, Instant},
};

use fastrand::Rng;
use peak_alloc::PeakAlloc;

const EXECUTIONS: usize = 2_000;
const MAX_MEMORY: usize = 64 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Counts allocated bytes and their peak since the last reset.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

#[test]
fn hostile_crds_stay_within_limits() {
    let executions = std::env::var("FERRY_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(EXECUTIONS);
    let corpus = mutate::seed_corpus();
    let mut rng = Rng::with_seed(executions as u64);
    // Initializes lazy statics, which are not leaks.
    corpus.iter().for_each(|lines| _ = run::run_input(lines.as_bytes()));
    let (mut passed, mut kept) = (0, 0);
    for execution in 0..executions {
        let bytes = mutate::mutate_lines(&mut rng, &corpus);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = Instant::now();
        let outcome = catch_unwind(|| run::run_input(&bytes));
        let taken = ALLOCATOR.peak_usage().saturating_sub(before);
        let shown = || bytes.escape_ascii().to_string();
        passed += usize::from(outcome.unwrap_or_else(|_| panic!("execution {execution} panicked: {}", shown())));
        assert!(taken < MAX_MEMORY, "execution {execution} took {taken} bytes: {}", shown());
        assert!(start.elapsed() < MAX_TIME, "execution {execution} took {:?}: {}", start.elapsed(), shown());
        kept += ALLOCATOR.current_usage() as i64 - before as i64;
    }
    assert!(passed > executions / 10, "only {passed} definitions of {executions} were let pass");
    // Interned version names are never freed; there are few.
    assert!(kept < (16 << 10) + executions as i64, "{kept} bytes stayed");
}
