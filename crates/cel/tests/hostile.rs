//! Robustness: mutated expressions neither panic nor hang, use at most 64 MiB and leak nothing. `FERRY_FUZZ` sets the number
//! of executions.

mod hostile {
    pub mod mutate;
    pub mod run;
}
mod open;
mod render;
mod shared;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hostile::{
    mutate::{mutate_expression, read_corpus},
    run::ExpressionRunner,
};
use peak_alloc::PeakAlloc;

const EXECUTIONS: usize = 2_000;
const MAX_MEMORY: usize = 64 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Tracks current and peak memory usage.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Serializes the tests, which measure the memory of the whole process.
static TEST_LOCK: Mutex<()> = Mutex::new(());

#[test]
fn mutated_expressions_stay_within_time_and_memory_limits() {
    let _one = TEST_LOCK.lock();
    let executions = std::env::var("FERRY_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(EXECUTIONS);
    let ground = ExpressionRunner::new();
    let corpus = read_corpus();
    let mut rng = Rng::with_seed(executions as u64);
    // Fills lazily initialized statics.
    corpus.iter().for_each(|source| ground.run_expressions(source));
    let mut kept = 0;
    for _ in 0..executions {
        let source = mutate_expression(&mut rng, &corpus);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| ground.run_expressions(&source)));
        let taken = ALLOCATOR.peak_usage().saturating_sub(before);
        assert!(outcome.is_ok(), "it panicked: {source:?}");
        assert!(taken < MAX_MEMORY, "it took {taken} bytes: {source:?}");
        assert!(start.elapsed() < MAX_TIME, "it took {:?}: {source:?}", start.elapsed());
        kept += ALLOCATOR.current_usage() as i64 - before as i64;
    }
    assert!(kept < 16 << 10, "{kept} bytes stayed");
}

#[test]
fn expensive_expressions_are_rejected_in_time() {
    let _one = TEST_LOCK.lock();
    let ground = ExpressionRunner::new();
    let chain = |first: &str, part: &str, count: usize| format!("{first}{}", part.repeat(count));
    let bombs = [
        chain("optional.of('aaaaaaaaaa')", ".optMap(x, x + x)", 12),
        chain("optional.of([1])", ".optMap(x, x + x)", 14),
        chain("optional.of(1)", ".optMap(x, x)", 40),
        chain("'aaaaaaaaaa'", ".replace('', 'aaaaaaaaaaaaaaaaaaaa')", 20),
        chain("lists.range(1000)", ".map(x, lists.range(1000))", 3),
        chain("[1]", ".map(x, [x, x])", 200),
        chain("dyn([1])", ".map(x, [x, x]).flatten()", 60),
        "lists.range(9223372036854775807)".into(),
        "lists.range(100000).map(x, lists.range(100000))".into(),
        format!("'{}'.format([{}])", "%s".repeat(1000), vec!["'a'.replace('', 'bbbbbbbbbb')"; 1000].join(", ")),
        format!("'%s'.format([{}1{}])", "[".repeat(240), "]".repeat(240)),
        "'%.999999999f'.format([1.0])".into(),
        "'a'.matches('((((a{100}){100}){100}){100})')".into(),
        "'a'.matches('(x+x+)+y')".into(),
        format!("{}1{}", "(".repeat(240), ")".repeat(240)),
        format!("{}1{}", "!".repeat(50_000), ""),
        format!("{}1", "-".repeat(50_000)),
        vec!["true"; 20_000].join("&&"),
        format!("[{}]", vec!["1"; 40_000].join(",")),
        chain("object", ".a", 249),
        chain("object", "[0]", 240),
        chain("1", "+1", 249),
        format!("{}true{}", "[1].all(x, ".repeat(80), ")".repeat(80)),
        format!("{}1{}", "true?1:(".repeat(100), ")".repeat(100)),
        format!("{}1{}", "dyn([".repeat(120), "])".repeat(120)),
        format!("{}{{}}{}", "{'a': ".repeat(240), "}".repeat(240)),
        "(".repeat(90_000),
        "[".repeat(90_000),
        "{".repeat(90_000),
        "a.".repeat(40_000),
        "f(".repeat(40_000),
    ];
    for bomb in &bombs {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = Instant::now();
        ground.run_expressions(bomb);
        let taken = ALLOCATOR.peak_usage().saturating_sub(before);
        let shown: String = bomb.chars().take(80).collect();
        assert!(taken < MAX_MEMORY, "it took {taken} bytes: {shown}");
        assert!(start.elapsed() < MAX_TIME, "it took {:?}: {shown}", start.elapsed());
    }
}
