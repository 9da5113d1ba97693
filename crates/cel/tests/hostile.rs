//! Expressions without mercy: those with recorded verdicts, cut, joined and mutated. Nothing panics or hangs, and none takes
//! more than 64 MiB. `FERRY_FUZZ` sets the number of executions.

mod render;
mod shared;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use fastrand::Rng;
use ferry_cel::{Bindings, Budget};
use peak_alloc::PeakAlloc;
use render::render;
use shared::World;

const EXECUTIONS: usize = 2_000;
const MAX_MEMORY: usize = 64 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);
const COST: u64 = 100_000;

/// Counts what is allocated, and the most that ever was since it was reset.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const TOKENS: [&str; 64] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "?",
    ":",
    "-",
    "!",
    "+",
    "*",
    "/",
    "%",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    ">=",
    " in ",
    "[?",
    ".?",
    "true",
    "null",
    "1",
    "-1",
    "1u",
    "1.5",
    "1e308",
    "9223372036854775807",
    "-9223372036854775808",
    "''",
    "'a'",
    "b'a'",
    "r'\\d+'",
    "[]",
    "{}",
    "object",
    "self",
    "self.spec",
    "object.spec.list",
    ".all(x, ",
    ".map(x, ",
    ".filter(x, ",
    ".exists(i, v, ",
    ".transformMap(k, v, ",
    ".sortBy(x, ",
    ".optMap(x, ",
    "has(",
    "size(",
    "dyn(",
    "string(",
    "duration('1h')",
    "timestamp('2020-01-01T00:00:00Z')",
    "lists.range(1000)",
    ".split('')",
    ".replace('', 'aaaa')",
    ".join(',')",
    ".format([",
    "optional.of(",
    ".matches('(a|b)*c')",
];

fn corpus() -> Vec<String> {
    let mut all = Vec::new();
    for line in
        include_str!("recorded/expressions.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match line.strip_prefix("json:") {
            Some(text) => all.push(serde_json::from_str(text).expect("it is a JSON text")),
            None => all.push(line.into()),
        }
    }
    all
}

/// A place where a text may be cut.
fn cut(rng: &mut Rng, text: &str) -> usize {
    let mut at = rng.usize(0..=text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn mutated(rng: &mut Rng, corpus: &[String]) -> String {
    let mut text = corpus[rng.usize(0..corpus.len())].clone();
    for _ in 0..rng.usize(1..6) {
        let (a, b) = (cut(rng, &text), cut(rng, &text));
        let (from, to) = (a.min(b), a.max(b));
        match rng.u8(0..6) {
            0 => text.replace_range(from..to, ""),
            1 => text.insert_str(from, TOKENS[rng.usize(0..TOKENS.len())]),
            2 => text.replace_range(from..to, TOKENS[rng.usize(0..TOKENS.len())]),
            3 => {
                let other = &corpus[rng.usize(0..corpus.len())];
                let end = cut(rng, other);
                text.insert_str(from, &other[..end]);
            }
            4 => {
                let part = text[from..to].repeat(rng.usize(1..4));
                text.insert_str(to, &part);
            }
            _ => text.insert(from, rng.char(..)),
        }
    }
    text
}

fn run(world: &World, source: &str) {
    let checked = match world.environment.compile(source) {
        Ok(checked) => checked,
        Err(issues) => return drop(issues.to_string()),
    };
    let estimate = checked.estimate(world);
    assert!(estimate.min <= estimate.max);
    let Ok(program) = checked.program() else { return };
    let mut bindings = Bindings::new();
    for (name, value) in world.variables() {
        bindings.set(world.environment.number(name).expect("the variable is declared"), value);
    }
    let mut budget = Budget::new(COST);
    if let Ok(value) = program.run(&bindings, &mut budget)
        && budget.spent() < COST / 10
    {
        render(&value);
    }
}

#[test]
fn nothing_panics_hangs_or_takes_too_much() {
    let executions = std::env::var("FERRY_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(EXECUTIONS);
    let world = World::new();
    let corpus = corpus();
    let mut rng = Rng::with_seed(executions as u64);
    for _ in 0..executions {
        let source = mutated(&mut rng, &corpus);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&world, &source)));
        let taken = ALLOCATOR.peak_usage().saturating_sub(before);
        assert!(outcome.is_ok(), "it panicked: {source:?}");
        assert!(taken < MAX_MEMORY, "it took {taken} bytes: {source:?}");
        assert!(start.elapsed() < MAX_TIME, "it took {:?}: {source:?}", start.elapsed());
    }
}

/// What is made to be expensive is refused in time.
#[test]
fn bombs_do_not_go_off() {
    let world = World::new();
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
        run(&world, bomb);
        let taken = ALLOCATOR.peak_usage().saturating_sub(before);
        let shown: String = bomb.chars().take(80).collect();
        assert!(taken < MAX_MEMORY, "it took {taken} bytes: {shown}");
        assert!(start.elapsed() < MAX_TIME, "it took {:?}: {shown}", start.elapsed());
    }
}
