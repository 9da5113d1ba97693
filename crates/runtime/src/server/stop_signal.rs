//! Stop signals by name or number.

/// Names of the signals by number, from 1 on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];
/// Other names of the same signals.
const ALIASES: [(&str, i32); 3] = [("IOT", 6), ("CLD", 17), ("POLL", 29)];
const RTMIN: i32 = 34;
const RTMAX: i32 = 64;

/// Returns the number of a signal such as `SIGTERM`, `term`, `15`, `SIGRTMIN+3` or `Sigrtminplus3`; SIGTERM for what is
/// none, as containerd has it.
pub fn parse_stop_signal(text: &str) -> i32 {
    let name = text.trim().to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let named = NAMES.iter().position(|known| *known == name).map(|index| index as i32 + 1);
    let alias = || ALIASES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number = || name.parse().ok();
    let from = |prefixes: [&str; 2]| {
        let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
        rest.parse::<i32>().ok()
    };
    let minimum = || if name == "RTMIN" { Some(RTMIN) } else { from(["RTMIN+", "RTMINPLUS"]).map(|n| RTMIN + n) };
    let maximum = || if name == "RTMAX" { Some(RTMAX) } else { from(["RTMAX-", "RTMAXMINUS"]).map(|n| RTMAX - n) };
    let found = named.or_else(alias).or_else(number).or_else(minimum).or_else(maximum);
    found.filter(|number| (1..=RTMAX).contains(number)).unwrap_or(libc::SIGTERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [
            ("SIGTERM", 15),
            ("term", 15),
            ("9", 9),
            ("SIGRTMIN+3", 37),
            ("Sigrtminplus3", 37),
            ("Sigrtmaxminus1", 63),
            ("SIGRTMAX", 64),
            ("SIGCLD", 17),
            ("SIGSYS", 31),
            ("", 15),
            ("nonsense", 15),
            ("99", 15),
        ] {
            assert_eq!(parse_stop_signal(text), number, "{text}");
        }
    }
}
