//! `cp` of trees with links in both directions.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use ferry_tests::run_command;

use super::KubectlPair;

impl KubectlPair<'_> {
    /// A tree with links and a large file goes into the pod and back with both.
    pub(super) fn compare_copies(&self) {
        let tree = self.cluster.host.file("tree");
        fs::create_dir_all(tree.join("deep/er")).expect("directories");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(tree.join("deep/blob"), &bytes).expect("a file");
        fs::write(tree.join("deep/er/name with spaces"), "text").expect("a file");
        std::os::unix::fs::symlink("deep/blob", tree.join("link")).expect("a link");
        fs::set_permissions(tree.join("deep/blob"), fs::Permissions::from_mode(0o640)).expect("a mode");
        std::os::unix::fs::symlink("/etc/hostname", tree.join("deep/outside")).expect("a link");
        (0..400).for_each(|n| fs::write(tree.join(format!("deep/er/{n}")), [b'x'; 100]).expect("a file"));
        for (number, options) in [(1, [].as_slice()), (3, &["--no-preserve", "--retries=3"])] {
            self.copy_there_and_back(number, options);
        }
    }

    /// Copies with both, ours under `number`, upstream's under the next one, and compares the copies.
    fn copy_there_and_back(&self, number: u32, options: &[&str]) {
        let told = [(number, true), (number + 1, false)].map(|(number, ours)| {
            let (inside, back) = (format!("talker:/tmp/copy-{number}"), format!("back-{number}"));
            let told = [["cp", "tree", &inside], ["cp", &inside, &back]].map(|args| {
                let args = [&args[..], options].concat();
                let mut command = if ours { self.ours(&args) } else { self.theirs(&args) };
                let told = run_command(&mut command, None);
                assert_eq!(told.code, 0, "{}", told.stderr);
                [told.stdout, told.stderr].map(|text| text.replace(&format!("-{number}"), "-N"))
            });
            let listing = format!("cd /tmp/copy-{number} && find . -printf '%P %l %m\\n' | sort");
            let inside =
                self.cluster.kubectl_args(&["exec", "talker", "--", "sh", "-c", &listing], None).expect_success();
            (told, tree_of(&self.cluster.host.file(&back)), inside)
        });
        assert_eq!(told[0], told[1], "{options:?}");
        let copies = ["tree".to_owned(), format!("back-{number}")]
            .map(|name| fs::read(self.cluster.host.file(&name).join("deep/blob")).expect("a file"));
        assert!(copies[0] == copies[1]);
    }
}

/// Paths, modes and sizes below a directory.
fn tree_of(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).expect("a directory").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            let data = fs::symlink_metadata(&path).expect("it is there");
            let name = path.strip_prefix(directory).expect("below").display().to_string();
            found.push(format!(
                "{name} {:o} {}",
                data.permissions().mode(),
                if data.is_dir() { 0 } else { data.len() }
            ));
            if data.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}
