//! The person behind the process: with `sudo`, not root but the user who typed it. Decides whose kubeconfig is written.

use std::{env, fs, path::PathBuf};

/// The calling user and their environment.
#[derive(Clone, Debug, Default)]
pub struct CallingUser {
    /// User and group, if `sudo` says that they are not those of this process.
    pub ids: Option<(u32, u32)>,
    /// Their home directory.
    pub home: Option<PathBuf>,
    /// The first file of their `$KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
}

impl CallingUser {
    /// Reads the environment; called once, at the start.
    pub fn from_environment() -> Self {
        let number = |name: &str| env::var(name).ok()?.parse().ok();
        let ids = number("SUDO_UID").zip(number("SUDO_GID")).filter(|(user, _)| *user != 0);
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let home = match ids {
            Some((user, _)) => home_of(user, &passwd),
            None => env::var_os("HOME").map(PathBuf::from).or_else(|| home_of(0, &passwd)),
        };
        let list = env::var_os("KUBECONFIG").unwrap_or_default();
        let kubeconfig = env::split_paths(&list).find(|file| !file.as_os_str().is_empty());
        Self { ids, home, kubeconfig }
    }

    /// The kubeconfig that `kubectl` uses for them.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        self.kubeconfig.clone().or_else(|| Some(self.home.as_ref()?.join(".kube/config")))
    }
}

fn home_of(user: u32, passwd: &str) -> Option<PathBuf> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse::<u32>().ok()? == user).then(|| fields.get(5).map(PathBuf::from))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_come_from_the_password_file() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nana:x:1000:1000:Ana,,,:/home/ana:/bin/sh\n";
        assert_eq!(home_of(1000, passwd).unwrap(), PathBuf::from("/home/ana"));
        assert_eq!(home_of(7, passwd), None);
    }
}
