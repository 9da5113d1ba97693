//! Snapshots, restores, moves between engines, and encryption on top of any of them.

use crate::engines;

use std::{fs, path::Path, sync::Arc, time::Duration};

use ferry_store::{
    EmbeddedOptions, EmbeddedStore, EncryptedStore, EncryptionConfig, KeyLayout, ListOptions, Precondition, Record,
    Store, StoreContents, StoreError, WriteRequest,
};
use futures::StreamExt;

async fn open(dir: &Path) -> EmbeddedStore {
    EmbeddedStore::open(dir, EmbeddedOptions { segment_bytes: 1 << 20, ..EmbeddedOptions::default() }).await.unwrap()
}

async fn create(store: &dyn Store, key: &str, value: &str, ttl: Option<Duration>) -> u64 {
    let write =
        WriteRequest { key: key.into(), precondition: Precondition::Absent, value: Some(value.to_owned().into()), ttl };
    store.write(write).await.unwrap()
}

async fn fill(store: &dyn Store) {
    for count in 0..2_500 {
        create(store, &format!("/registry/configmaps/default/c{count}"), &format!("document {count}"), None).await;
    }
    create(store, "/registry/apps/deployments/default/nginx", "nginx", None).await;
    create(store, "/registry/events/default/e", "soon", Some(Duration::from_secs(3600))).await;
}

async fn records(store: &dyn Store) -> Vec<Record> {
    store.list(ListOptions::default()).await.unwrap().records
}

#[tokio::test]
async fn a_snapshot_of_a_running_store_is_restored_with_its_revisions() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("old")).await;
    fill(&store).await;
    let file = dir.path().join("snapshot");
    // While somebody else has it open, and writes.
    let contents = StoreContents::read_dir(&dir.path().join("old")).unwrap();
    assert_eq!((contents.len(), contents.revision()), (2_502, 2_502));
    assert_eq!(contents.write_snapshot(&file).unwrap(), 2_502);
    assert!(matches!(contents.write_snapshot(&file), Err(StoreError::Unusable(_))), "a file was replaced");
    let before = records(&store).await;

    let read = StoreContents::read_snapshot(&file).unwrap();
    assert_eq!((read.digest(), read.revision()), (contents.digest(), 2_502));
    assert_eq!(read.create_dir(&dir.path().join("new")).unwrap(), 2_502);
    let restored = open(&dir.path().join("new")).await;
    assert_eq!(records(&restored).await, before);
    let next = create(&restored, "/registry/configmaps/default/next", "x", None).await;
    assert!(next > 1_000_000, "{next}");
    assert!(matches!(restored.watch("", 2_502).await.err(), Some(StoreError::Compacted { .. })));
    drop(restored);
    assert_eq!(EmbeddedStore::verify_files(&dir.path().join("new")).await.unwrap().records, 2_503);

    let again = StoreContents::read_snapshot(&file).unwrap().create_dir(&dir.path().join("old"));
    assert!(matches!(again, Err(StoreError::Unusable(_))), "a store was replaced");
}

#[tokio::test]
async fn damaged_snapshot_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store")).await;
    fill(&store).await;
    let file = dir.path().join("snapshot");
    StoreContents::read_dir(&dir.path().join("store")).unwrap().write_snapshot(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    for _ in 0..200 {
        let mut damaged = whole.clone();
        let offset = fastrand::usize(512..damaged.len() - 8);
        damaged[offset] ^= 1 << fastrand::u32(..8);
        fs::write(&file, damaged).unwrap();
        let Err(StoreError::Unusable(message)) = StoreContents::read_snapshot(&file).map(|_| ()) else {
            panic!("accepted, {offset}")
        };
        assert!(message.contains("snapshot") && message.contains("byte"), "{message}");
    }
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    assert!(StoreContents::read_snapshot(&file).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_to_etcd_and_back() {
    let Some(server) = engines::EtcdServer::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("old")).await;
    fill(&store).await;
    let contents = StoreContents::read_dir(&dir.path().join("old")).unwrap();
    let etcd = server.open(KeyLayout::Upstream("/registry".into())).await;
    let mut steps = Vec::new();
    assert_eq!(contents.copy_to(&etcd, &mut |step| steps.push(step)).await.unwrap(), 2_502);
    assert_eq!((steps.len(), steps.last()), (2_502, Some(&(2_502, 2_502))));
    assert!(matches!(contents.copy_to(&etcd, &mut |_| ()).await, Err(StoreError::Unusable(_))), "written twice");

    let plain = server.open(KeyLayout::Plain(String::new())).await;
    assert!(plain.get("/registry/deployments/default/nginx").await.unwrap().is_some(), "not upstream's layout");
    assert_eq!(etcd.get("/registry/apps/deployments/default/nginx").await.unwrap().unwrap().value, "nginx");
    let back = StoreContents::read_store(&etcd, &mut |_| ()).await.unwrap();
    assert_eq!(back.digest(), contents.digest());
    assert_eq!(back.create_dir(&dir.path().join("new")).unwrap(), 2_502);
    let values = |records: Vec<Record>| records.into_iter().map(|record| record.value).collect::<Vec<_>>();
    assert_eq!(values(records(&open(&dir.path().join("new")).await).await), values(records(&store).await));
}

fn config(providers: &str) -> EncryptionConfig {
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
         - resources: [secrets]\n  providers:\n{providers}"
    );
    EncryptionConfig::parse(&text).unwrap()
}

const NEW_KEY: &str = "  - aesgcm: {keys: [{name: new, secret: AAECAwQFBgcICQoLDA0ODw==}]}\n";
const OLD_KEY: &str = "  - secretbox: {keys: [{name: old, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}\n";
const IDENTITY: &str = "  - identity: {}\n";

#[tokio::test]
async fn chosen_resources_are_encrypted_and_keys_rotate() {
    let dir = tempfile::tempdir().unwrap();
    let below: Arc<dyn Store> = Arc::new(open(dir.path()).await);
    let with = |providers: &[&str]| {
        EncryptedStore::new(below.clone(), config(&providers.concat()), KeyLayout::Upstream("/registry".into()))
    };
    let (secret, plain) = ("/registry/secrets/default/s", "/registry/configmaps/default/c");
    create(&*below, "/registry/secrets/default/before", "plain", None).await;
    let old = with(&[OLD_KEY, IDENTITY]);
    let mut watch = old.watch("/registry/secrets/", 0).await.unwrap();
    create(&old, secret, "hidden", None).await;
    create(&old, plain, "seen", None).await;
    let raw = |key: &'static str| async { below.get(key).await.unwrap().unwrap().value };
    assert!(raw(secret).await.starts_with(b"k8s:enc:secretbox:v1:old:"));
    assert_eq!(raw(plain).await, "seen");
    assert_eq!(old.get(secret).await.unwrap().unwrap().value, "hidden");
    assert_eq!(old.get("/registry/secrets/default/before").await.unwrap().unwrap().value, "plain");
    assert_eq!(watch.next().await.unwrap().unwrap().value.unwrap(), "plain");
    assert_eq!(watch.next().await.unwrap().unwrap().value.unwrap(), "hidden");

    // The new key writes, both read; a conflict shows the document in the clear.
    let rotating = with(&[NEW_KEY, OLD_KEY, IDENTITY]);
    let record = rotating.get(secret).await.unwrap().unwrap();
    let wrong =
        WriteRequest { key: secret.into(), precondition: Precondition::Absent, value: Some("x".into()), ttl: None };
    let Err(StoreError::Conflict { current: Some(current), .. }) = rotating.write(wrong).await else {
        panic!("written")
    };
    assert_eq!(current, record);
    let precondition = Precondition::Revision(record.revision);
    rotating
        .write(WriteRequest { key: secret.into(), precondition, value: Some(record.value), ttl: None })
        .await
        .unwrap();
    assert!(raw(secret).await.starts_with(b"k8s:enc:aesgcm:v1:new:"));

    let rotated = with(&[NEW_KEY]);
    assert_eq!(rotated.get(secret).await.unwrap().unwrap().value, "hidden");
    let refused = rotated.get("/registry/secrets/default/before").await.unwrap_err().to_string();
    assert!(refused.contains("/before") && refused.contains("identity"), "{refused}");
    let refused = with(&[OLD_KEY]).get(secret).await.unwrap_err().to_string();
    assert!(refused.contains(secret) && refused.contains("does not have"), "{refused}");
}
