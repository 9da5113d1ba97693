//! The tool on its own, for development.

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(kubectl::run_command(&arguments));
}
