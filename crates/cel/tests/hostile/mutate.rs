//! Mutation of the recorded expressions by a seeded random number generator.
#![allow(dead_code, reason = "who has coverage mutates on its own")]

use fastrand::Rng;

/// Fragments of expressions.
pub const TOKENS: [&str; 96] = [
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
    ".filter(i, v, ",
    ".existsOne(k, v, ",
    ".transformList(i, v, ",
    ".transformMapEntry(k, v, {k: ",
    ".exists_one(x, ",
    ".optFlatMap(x, ",
    ".orValue(",
    "cel.bind(x, ",
    "variables.first",
    "variables.second",
    "Object{spec: Object.spec{",
    "JSONPatch{op: ",
    "jsonpatch.escapeKey(",
    "sets.contains(",
    "sets.intersects(",
    "url('https://a:1/b?c=d')",
    "quantity('1.5Gi')",
    "ip('::ffff:1.2.3.4')",
    "cidr('10.0.0.0/8')",
    "semver('1.2.3-a')",
    "format.dns1123Label()",
    ".validate(",
    "authorizer.group('').resource('pods').check('get')",
    "authorizer.path('/a').check('get')",
    ".find('a')",
    ".findAll('a', ",
    ".indexOf(",
    ".slice(",
    ".flatten(",
    ".isSorted()",
    ".sum()",
    ".charAt(",
];

/// Reads the recorded expressions.
pub fn read_corpus() -> Vec<String> {
    let mut all = Vec::new();
    for line in
        include_str!("../recorded/expressions.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match line.strip_prefix("json:") {
            Some(text) => all.push(serde_json::from_str(text).expect("it is a JSON text")),
            None => all.push(line.into()),
        }
    }
    all
}

/// Returns a random character boundary of a text.
fn random_boundary(rng: &mut Rng, text: &str) -> usize {
    let mut at = rng.usize(0..=text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns an expression of the corpus with a few random changes.
pub fn mutate_expression(rng: &mut Rng, corpus: &[String]) -> String {
    let mut text = corpus[rng.usize(0..corpus.len())].clone();
    for _ in 0..rng.usize(1..6) {
        let (a, b) = (random_boundary(rng, &text), random_boundary(rng, &text));
        let (from, to) = (a.min(b), a.max(b));
        match rng.u8(0..6) {
            0 => text.replace_range(from..to, ""),
            1 => text.insert_str(from, TOKENS[rng.usize(0..TOKENS.len())]),
            2 => text.replace_range(from..to, TOKENS[rng.usize(0..TOKENS.len())]),
            3 => {
                let other = &corpus[rng.usize(0..corpus.len())];
                let end = random_boundary(rng, other);
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
