//! Installs the distribution's own packages for a container runtime, on request.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, anyhow};

use super::programs::{PATH, RuntimePrograms};
use crate::{steps::StepReporter, user_error::user_error};

const PACKAGES: [&str; 2] = ["containerd", "runc"];

/// Whether what is missing can be installed here; refuses other distributions by name.
pub fn can_install(missing: &[&str]) -> anyhow::Result<bool> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if is_debian(&release) && std::path::Path::new("/usr/bin/apt-get").exists() {
        return Ok(true);
    }
    Err(user_error(
        format!(
            "--install-runtime knows Debian and Ubuntu, not {}; missing here: {}",
            name(&release),
            missing.join(", ")
        ),
        format!("Install the packages that are your distribution's {}, then try again.", PACKAGES.join(", ")),
    ))
}

/// Installs what is missing, if anything is.
pub async fn install_packages(steps: &mut StepReporter) -> anyhow::Result<()> {
    let missing = RuntimePrograms::missing();
    if missing.is_empty() {
        return Ok(());
    }
    can_install(&missing)?;
    let work = async {
        tokio::task::spawn_blocking(|| {
            // Old lists may still do; if they do not, the installation says so.
            let updated = run_apt(&["update"]);
            let packages: Vec<&str> =
                ["install", "-y", "--no-install-recommends"].into_iter().chain(PACKAGES).collect();
            run_apt(&packages).map_err(|error| match updated {
                Ok(()) => error,
                Err(first) => anyhow!("{error:#}\nbefore that: {first:#}"),
            })
        })
        .await??;
        Ok(((), PACKAGES.join(" ")))
    };
    steps.step("packages", work).await
}

fn run_apt(arguments: &[&str]) -> anyhow::Result<()> {
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
    let families = os_release_field(release, "ID").into_iter().chain(os_release_field(release, "ID_LIKE"));
    families
        .flat_map(|value| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .any(|family| family == "debian" || family == "ubuntu")
}

fn name(release: &str) -> String {
    os_release_field(release, "PRETTY_NAME").or(os_release_field(release, "ID")).unwrap_or_else(|| "this system".into())
}

fn os_release_field(release: &str, key: &str) -> Option<String> {
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
