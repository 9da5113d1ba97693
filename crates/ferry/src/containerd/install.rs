//! Installs the distribution's own packages for a container runtime, on request.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, anyhow};

use super::programs::{PATH, Programs};
use crate::{refusal::refusal, steps::Steps};

const PACKAGES: [&str; 4] = ["containerd", "runc", "containernetworking-plugins", "nftables"];

/// Whether what is missing can be installed here; refuses other distributions by name.
pub fn possible(missing: &[&str]) -> anyhow::Result<bool> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if is_debian(&release) && std::path::Path::new("/usr/bin/apt-get").exists() {
        return Ok(true);
    }
    Err(refusal(
        format!(
            "--install-runtime knows Debian and Ubuntu, not {}; missing here: {}",
            name(&release),
            missing.join(", ")
        ),
        format!("Install the packages that are your distribution's {}, then try again.", PACKAGES.join(", ")),
    ))
}

/// Installs what is missing, if anything is.
pub async fn install(steps: &mut Steps) -> anyhow::Result<()> {
    let missing = Programs::missing_with_filters();
    if missing.is_empty() {
        return Ok(());
    }
    possible(&missing)?;
    let work = async {
        tokio::task::spawn_blocking(|| {
            // Old lists may still do; if they do not, the installation says so.
            let updated = apt(&["update"]);
            let packages: Vec<&str> =
                ["install", "-y", "--no-install-recommends"].into_iter().chain(PACKAGES).collect();
            apt(&packages).map_err(|error| match updated {
                Ok(()) => error,
                Err(first) => anyhow!("{error:#}\nbefore that: {first:#}"),
            })
        })
        .await??;
        Ok(((), PACKAGES.join(" ")))
    };
    steps.step("packages", work).await
}

fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .output()
        .context("apt-get")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let end: Vec<&str> = said.trim().lines().rev().take(5).collect();
    let end: Vec<&str> = end.into_iter().rev().collect();
    Err(anyhow!("apt-get {} failed:\n{}", arguments.join(" "), end.join("\n")))
}

fn is_debian(release: &str) -> bool {
    let families = field(release, "ID").into_iter().chain(field(release, "ID_LIKE"));
    families
        .flat_map(|value| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .any(|family| family == "debian" || family == "ubuntu")
}

fn name(release: &str) -> String {
    field(release, "PRETTY_NAME").or(field(release, "ID")).unwrap_or_else(|| "this system".into())
}

fn field(release: &str, key: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_known_by_family() {
        assert!(is_debian("NAME=x\nID=debian\n"));
        assert!(is_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        let fedora = "PRETTY_NAME=\"Fedora Linux 42\"\nID=fedora\n";
        assert!(!is_debian(fedora));
        assert_eq!(name(fedora), "Fedora Linux 42");
    }
}
