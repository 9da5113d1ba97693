//! `kubectl cp`: files as tar archives through `exec`.

mod extract;
mod pack;

use std::path::Path;

use api::Value;
use tokio::io::AsyncWriteExt;

use super::{
    container_streams::{stream_request, with_streams},
    exec::container_for_exec,
    pod_selection::{annotated_container, container_names, has_several_containers},
};
use crate::{
    errors::{CommandError, CommandResult},
    files::clean_path,
    outln,
    output::{write_err_bytes, write_out_bytes},
    rest::{RestRequest, block_on},
    session::Session,
    streams::{CommandInput, OutputSink, RemoteCommand},
};

/// A file here or in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileSpec {
    namespace: String,
    pod: String,
    file: String,
}

/// The bytes that are between a reader and a writer of a pipe.
const PIPE: usize = 256 << 10;

/// Copies files to or from a container.
pub fn run(session: &Session) -> CommandResult {
    session.namespace()?;
    let [source, target] = session.arguments() else { crate::bail!("source and destination are required") };
    let (source, target) = (parse_file_spec(source)?, parse_file_spec(target)?);
    if !source.pod.is_empty() && !target.pod.is_empty() {
        crate::bail!("one of src or dest must be a local file specification");
    }
    if source.file.is_empty() || target.file.is_empty() {
        crate::bail!("filepath can not be empty");
    }
    match (source.pod.is_empty(), target.pod.is_empty()) {
        (false, _) => copy_from_pod(session, &source, &target.file),
        (_, false) => copy_to_pod(session, &source.file, &target),
        _ => crate::bail!("one of src or dest must be a remote file specification"),
    }
}

fn parse_file_spec(argument: &str) -> CommandResult<FileSpec> {
    let wrong = || CommandError::new("filespec must match the canonical format: [[namespace/]pod:]file/path");
    let strip = |file: &str| match file {
        "/" => file.to_owned(),
        file => file.strip_suffix('/').unwrap_or(file).to_owned(),
    };
    match argument.split_once(':') {
        Some(("", _)) => Err(wrong()),
        None => Ok(FileSpec { file: strip(argument), ..Default::default() }),
        Some((pod, file)) => {
            let file = strip(file).replace('\\', "/");
            match pod.split('/').collect::<Vec<_>>().as_slice() {
                [pod] => Ok(FileSpec { pod: (*pod).to_owned(), file, ..Default::default() }),
                [namespace, pod] => Ok(FileSpec { namespace: (*namespace).to_owned(), pod: (*pod).to_owned(), file }),
                _ => Err(wrong()),
            }
        }
    }
}

/// The pod of a specification, and the container in it.
/// The destination of the note about a container that was not named.
#[derive(Clone, Copy, PartialEq)]
enum ContainerNote {
    Stdout,
    Stderr,
    Nowhere,
}

fn load_pod(session: &Session, spec: &FileSpec, note: ContainerNote) -> CommandResult<(Value, String)> {
    let namespace = if spec.namespace.is_empty() { session.namespace()?.0 } else { spec.namespace.clone() };
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}", spec.pod);
    let pod = session.client()?.send_json(RestRequest::get(path))?;
    let name = session.flags.string("container");
    let container = container_for_exec(&pod, &name, note != ContainerNote::Stderr)?;
    let chosen = name.is_empty() && annotated_container(&pod).is_empty() && has_several_containers(&pod);
    if note == ContainerNote::Stdout && chosen {
        outln!("Defaulted container {} out of: {}", api::json::go_quote(&container), container_names(&pod));
    }
    Ok((pod, container))
}

fn words(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn copy_to_pod(session: &Session, source: &str, target: &FileSpec) -> CommandResult {
    if std::fs::metadata(source).is_err() {
        crate::bail!("{source} doesn't exist in local filesystem");
    }
    let source = clean_path(Path::new(source));
    let is_directory = is_remote_directory(session, target)?;
    let mut destination = target.file.clone();
    if is_directory && let Some(base) = source.file_name() {
        destination = format!("{}/{}", destination.trim_end_matches('/'), base.to_string_lossy());
    }
    let destination = clean_path(Path::new(&destination));
    let (pod, container) = load_pod(session, target, ContainerNote::Stderr)?;
    let mut command = words(&["tar", "-xmf", "-"]);
    if session.flags.bool("no-preserve") {
        command = words(&["tar", "--no-same-permissions", "--no-same-owner", "-xmf", "-"]);
    }
    let directory = destination.parent().map(|parent| parent.to_string_lossy().into_owned()).unwrap_or_default();
    let directory = if directory.is_empty() { ".".to_owned() } else { directory };
    command.extend(["-C".to_owned(), directory]);
    let name = destination.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (reading, mut writing) = tokio::io::duplex(PIPE);
    let client = session.client()?;
    let request = with_streams(stream_request(&pod, "exec", &container, &command), true, true, false);
    let remote = remote_command(
        request,
        Some(Box::pin(reading)),
        Box::new(|data| {
            write_out_bytes(data);
            Ok(())
        }),
        Box::new(write_err_bytes),
    );
    block_on(async {
        let (sender, mut chunks) = tokio::sync::mpsc::channel::<Vec<u8>>(16);
        let packing = std::thread::spawn(move || pack::pack_files(&source, &name, sender));
        let feeding = async {
            while let Some(chunk) = chunks.recv().await {
                if writing.write_all(&chunk).await.is_err() {
                    break;
                }
            }
            drop(writing);
            drop(chunks);
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            outcome = remote.run(client) => outcome,
            () = feeding => Ok(()),
        };
        match packing.join() {
            Ok(Err(error)) if !error.is_broken_pipe() => Err(CommandError::new(error.to_string())),
            _ => outcome,
        }
    })
}

/// The size of the end of an archive, without which it is not complete.
const END_OF_ARCHIVE: u64 = 1024;

fn remote_command<'a>(
    request: RestRequest,
    stdin: Option<CommandInput>,
    stdout: OutputSink<'a>,
    stderr: OutputSink<'a>,
) -> RemoteCommand<'a> {
    RemoteCommand {
        request,
        stdin,
        stdout: Some(stdout),
        stderr: Some(stderr),
        tty: false,
        sizes: Vec::new(),
        detach_keys: Vec::new(),
    }
}

/// Whether a path is a directory in the container, by `test -d` there.
fn is_remote_directory(session: &Session, target: &FileSpec) -> CommandResult<bool> {
    let Ok((pod, container)) = load_pod(session, target, ContainerNote::Nowhere) else { return Ok(false) };
    let command = words(&["test", "-d", &target.file]);
    let request = with_streams(stream_request(&pod, "exec", &container, &command), false, true, false);
    let remote = remote_command(request, None, Box::new(|_| Ok(())), Box::new(|_| Ok(())));
    let client = session.client()?;
    let limit = std::time::Duration::from_secs(30);
    match block_on(async { tokio::time::timeout(limit, remote.run(client)).await }) {
        Ok(outcome) => Ok(outcome.is_ok()),
        Err(_) => crate::bail!("context deadline exceeded"),
    }
}

fn copy_from_pod(session: &Session, source: &FileSpec, target: &str) -> CommandResult {
    let (pod, container) = load_pod(session, source, ContainerNote::Stdout)?;
    let retries = session.flags.int("retries");
    let client = session.client()?;
    let (sender, chunks) = std::sync::mpsc::sync_channel::<Vec<u8>>(64);
    let unpacking = extract::TarExtractor {
        prefix: extract::archive_prefix(&source.file),
        target: target.to_owned(),
        namespace: source.namespace.clone(),
        pod: source.pod.clone(),
        source: source.file.clone(),
    };
    let unpacking = std::thread::spawn(move || unpacking.extract(&chunks));
    let mut received: u64 = 0;
    let mut tries = 0;
    let outcome = loop {
        let command = match retries {
            0 => words(&["tar", "cf", "-", &source.file]),
            _ => {
                let quoted = source.file.replace('\'', "'\\''");
                words(&["sh", "-c", &format!("tar cf - '{quoted}' | tail -c+{}", received + u64::from(tries > 0))])
            }
        };
        let request = with_streams(stream_request(&pod, "exec", &container, &command), false, true, false);
        let stdout = |data: &[u8]| {
            received += data.len() as u64;
            sender.send(data.to_vec()).map_err(|_| CommandError::new("io: read/write on closed pipe"))
        };
        let stderr = |data: &[u8]| {
            write_out_bytes(data);
            Ok(())
        };
        let remote = remote_command(request, None, Box::new(stdout), Box::new(stderr));
        let outcome = block_on(remote.run(client));
        let broken = outcome.is_err() && (retries < 0 || tries < retries);
        if !broken {
            break outcome;
        }
        tries += 1;
        outln!("Resuming copy at {received} bytes, retry {tries}/{retries}");
    };
    drop(sender);
    let Ok(unpacked) = unpacking.join() else { crate::bail!("the archive could not be unpacked") };
    match outcome {
        // As upstream: what tar says at its end does not count once the archive is complete.
        Err(CommandError::ExitCode(..)) if received >= END_OF_ARCHIVE && unpacked.is_ok() => Ok(()),
        outcome => unpacked.and(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_specs_name_namespace_pod_and_file() {
        let spec = |namespace: &str, pod: &str, file: &str| FileSpec {
            namespace: namespace.into(),
            pod: pod.into(),
            file: file.into(),
        };
        assert_eq!(parse_file_spec("/tmp/x/").unwrap(), spec("", "", "/tmp/x"));
        assert_eq!(parse_file_spec("p:/tmp/x").unwrap(), spec("", "p", "/tmp/x"));
        assert_eq!(parse_file_spec("n/p:a:b").unwrap(), spec("n", "p", "a:b"));
        assert!(parse_file_spec(":/x").is_err());
        assert!(parse_file_spec("a/b/c:/x").is_err());
    }
}
