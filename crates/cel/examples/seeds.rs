//! Writes the fuzzing seeds into a directory: the recorded expressions, a file each, and a dictionary
//! (`expression.dict`) beside it.

use std::{env, fs, io, path::Path};

#[path = "../tests/hostile/mutate.rs"]
mod mutate;

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).ok_or(io::Error::other("which directory?"))?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    for (number, expression) in mutate::read_corpus().iter().enumerate() {
        fs::write(folder.join(number.to_string()), expression)?;
    }
    let quoted = |token: &&str| format!("\"{}\"\n", token.replace('\\', "\\\\").replace('"', "\\\""));
    fs::write(folder.with_extension("dict"), mutate::TOKENS.iter().map(quoted).collect::<String>())
}
