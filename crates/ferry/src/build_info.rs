//! The commit that this binary was built from.

use apiserver::BuildInfo;

/// Commit and date that the build script found.
pub fn build_info() -> BuildInfo {
    BuildInfo { git_commit: env!("FERRY_GIT_COMMIT").to_owned(), date: env!("FERRY_BUILD_DATE").to_owned() }
}
