//! Writes the fuzzing seeds into a directory, one file each, and a dictionary.

use std::{env, fs, io, path::Path};

#[path = "../tests/hostile/mutate.rs"]
mod mutate;

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).ok_or(io::Error::other("which directory?"))?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    for (number, lines) in mutate::seed_corpus().iter().enumerate() {
        fs::write(folder.join(number.to_string()), lines)?;
    }
    let escaped = |token: &&str| format!("\"{}\"\n", token.escape_default().to_string().replace("\\n", "\\x0a"));
    fs::write(folder.with_extension("dict"), mutate::TOKENS.iter().map(escaped).collect::<String>())
}
