//! The directory of certificates and keys: keys are readable by their owner only, and every file is always whole.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::CertificatePair;
use crate::atomic;

/// The directory, and what was written to it.
pub struct PkiFiles {
    directory: PathBuf,
    /// The names of what was written.
    pub written: Vec<&'static str>,
}

impl PkiFiles {
    /// The directory, made if it is absent.
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.with_context(|| directory.display().to_string())?;
        Ok(Self::view(directory))
    }

    /// The directory as it is.
    pub fn view(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), written: Vec::new() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn read(&self, file: &str) -> anyhow::Result<Option<String>> {
        let path = self.directory.join(file);
        atomic::read_file(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub fn write(&mut self, file: &'static str, text: &str) -> anyhow::Result<()> {
        self.put(file, text)?;
        self.written.push(file);
        Ok(())
    }

    /// Certificate and key; `None` unless both are there.
    pub fn pair(&self, name: &str) -> anyhow::Result<Option<CertificatePair>> {
        let certificate = self.read(&format!("{name}.crt"))?;
        let key = self.read(&format!("{name}.key"))?;
        Ok(certificate.zip(key).map(|(certificate, key)| CertificatePair { certificate, key }))
    }

    /// The key first: a certificate without its key would be taken for a pair's half, a key alone is simply replaced.
    pub fn write_pair(&mut self, name: &'static str, pair: CertificatePair) -> anyhow::Result<CertificatePair> {
        self.put(&format!("{name}.key"), &pair.key)?;
        self.put(&format!("{name}.crt"), &pair.certificate)?;
        self.written.push(name);
        Ok(pair)
    }

    fn put(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.directory.join(file);
        let access = if file.ends_with(".key") { atomic::PRIVATE } else { atomic::PUBLIC };
        atomic::write_file(&path, text.as_bytes(), access).with_context(|| format!("cannot write {}", path.display()))
    }
}
