//! The watch cache: what it adds to the contract of a store.

use std::{sync::Arc, time::Duration};

use crate::engines::{Collections, Engine, EtcdServer, cache, embedded};
use ferry_store::{
    HistoryWindow, KeyLayout, Precondition, ResourceVersionMatch, Revision, Snapshot, Store, StoreError, WatchCache,
    WriteRequest,
};
use futures::future::join_all;

async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    let current = store.get(key).await.unwrap();
    let precondition = current.map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
    store
        .write(WriteRequest { key: key.into(), precondition, value: Some(value.to_owned().into()), ttl: None })
        .await
        .unwrap()
}

fn fields(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.items_after(None).map(|item| item.selectable_fields.field(0)).collect()
}

async fn agrees(cache: &WatchCache) {
    let checked = cache.check_consistency().await.unwrap();
    let differ: Vec<_> = checked.iter().filter(|checked| !checked.is_consistent()).collect();
    assert!(differ.is_empty(), "{differ:?}");
    assert!(checked.iter().map(|checked| checked.records).sum::<usize>() > 0, "nothing was compared");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_sees_every_write_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(embedded(dir.path()).await, Collections::ByFirstPart).await;
    for round in 0..500 {
        let revision = put(&*cache, "/a/x", &round.to_string()).await;
        let snapshot = cache.snapshot("/a/", ResourceVersionMatch::Newest).await.unwrap();
        assert_eq!((fields(&snapshot), snapshot.revision), (vec![round.to_string().as_str()], revision));
        let item = cache.snapshot("/a/", ResourceVersionMatch::NotBefore(revision)).await.unwrap().get("/a/x").cloned();
        assert_eq!(item.unwrap().record.revision, revision);
    }
}

#[tokio::test]
async fn encoded_changes_are_shared_between_watchers() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(embedded(dir.path()).await, Collections::ByFirstPart).await;
    let first = put(&*cache, "/a/x", "1").await;
    put(&*cache, "/a/x", "2").await;
    cache.snapshot("/a/", ResourceVersionMatch::Newest).await.unwrap();
    let mut watchers = [cache.watch_prefix("/a/", first).unwrap(), cache.watch_prefix("/a/x", first).unwrap()];
    let [one, other] = watchers.each_mut().map(|watcher| watcher.take_changes(10).unwrap().remove(0));
    assert!(Arc::ptr_eq(&one, &other));
    let marks =
        |item: &Option<Arc<ferry_store::CachedItem>>| item.as_ref().unwrap().selectable_fields.field(0).to_owned();
    assert_eq!((marks(&one.item), marks(&one.previous)), ("2".into(), "1".into()));
    let form: Arc<str> = "text".into();
    let made = one.encoded(&form, || Ok::<_, StoreError>("made".into())).unwrap();
    let again = other.encoded(&form, || Err(StoreError::Unusable("made twice".into()))).unwrap();
    assert_eq!(made.as_ptr(), again.as_ptr());
}

#[tokio::test]
async fn watchers_of_an_idle_collection_are_not_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let window = HistoryWindow { keep_for: Duration::ZERO, keep_changes: 0, ..HistoryWindow::default() };
    let engine = embedded(dir.path()).await;
    let cache = WatchCache::with_engine(engine, Arc::new(Collections::ByFirstPart), window).await.unwrap();
    let first = put(&cache, "/quiet/x", "1").await;
    cache.snapshot("/quiet/", ResourceVersionMatch::Newest).await.unwrap();
    let mut quiet = cache.watch_prefix("/quiet/", first).unwrap();
    let mut slow = cache.watch_prefix("/busy/", first).unwrap();
    join_all((0..2000).map(|n| put_owned(&cache, format!("/busy/{n}")))).await;
    cache.snapshot("/busy/", ResourceVersionMatch::Newest).await.unwrap();
    assert!(
        matches!(slow.take_changes(10), Err(StoreError::Compacted { .. })),
        "a watcher that is too slow is cut off"
    );
    put(&cache, "/quiet/x", "2").await;
    cache.snapshot("/quiet/", ResourceVersionMatch::Newest).await.unwrap();
    assert_eq!(quiet.take_changes(10).unwrap().len(), 1);
}

async fn put_owned(cache: &WatchCache, key: String) -> Revision {
    put(cache, &key, "x").await
}

#[tokio::test]
async fn history_is_loaded_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (first, last) = {
        let cache = cache(embedded(dir.path()).await, Collections::ByFirstPart).await;
        let first = put(&*cache, "/a/x", "1").await;
        put(&*cache, "/a/y", "1").await;
        (first, put(&*cache, "/a/x", "2").await)
    };
    let cache = cache(embedded(dir.path()).await, Collections::ByFirstPart).await;
    let changes = cache.watch_prefix("/a/", first).unwrap().take_changes(10).unwrap();
    assert_eq!(changes.iter().map(|change| change.revision).collect::<Vec<_>>(), [last - 1, last]);
    assert_eq!(fields(&cache.snapshot("/a/", ResourceVersionMatch::Exactly(first)).await.unwrap()), ["1"]);
    agrees(&cache).await;
}

/// As kube-apiserver, which compacts etcd every five minutes: a continue token is good for five to ten.
#[tokio::test]
async fn revision_of_two_intervals_ago_cannot_be_listed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(embedded(dir.path()).await, Collections::ByFirstPart).await;
    let first = put(&*cache, "/a/x", "1").await;
    put(&*cache, "/a/x", "2").await;
    let list_first = async || cache.snapshot("/a/", ResourceVersionMatch::Exactly(first)).await;
    // The cache has seen the second write.
    cache.snapshot("/a/", ResourceVersionMatch::Newest).await.unwrap();
    cache.expire_listed_revisions();
    assert_eq!(fields(&list_first().await.unwrap()), ["1"]);
    cache.expire_listed_revisions();
    assert!(matches!(list_first().await, Err(ferry_store::StoreError::Compacted { .. })));
    assert_eq!(cache.watch_prefix("/a/", first).unwrap().take_changes(10).unwrap().len(), 1, "a watch may start there");
}

/// Writes while the cache is compared with the engine.
async fn compared_under_load(engine: Engine, writes: usize) {
    let cache = cache(engine, Collections::ByFirstPart).await;
    let writer = |writer: usize| {
        let cache = cache.clone();
        tokio::spawn(async move {
            for count in 0..writes {
                let key = format!("/{}/{writer}-{}", writer % 3, count % 20);
                let current = cache.get(&key).await.unwrap().filter(|_| count % 7 == 6);
                let Some(current) = current else {
                    put(&*cache, &key, &count.to_string()).await;
                    continue;
                };
                let precondition = Precondition::Revision(current.revision);
                cache.write(WriteRequest { key: current.key, precondition, value: None, ttl: None }).await.unwrap();
            }
        })
    };
    let writers: Vec<_> = (0..8).map(writer).collect();
    put(&*cache, "/0/first", "x").await;
    cache.snapshot("/0/", ResourceVersionMatch::Newest).await.unwrap();
    let mut rounds = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        agrees(&cache).await;
        rounds += 1;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    cache.snapshot("/0/", ResourceVersionMatch::Newest).await.unwrap();
    agrees(&cache).await;
    println!("compared {rounds} times under load");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_is_consistent_with_the_embedded_engine() {
    let dir = tempfile::tempdir().unwrap();
    compared_under_load(embedded(dir.path()).await, 1000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_is_consistent_with_etcd() {
    let Some(server) = EtcdServer::start() else { return };
    compared_under_load(server.store("/compared").await, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_from_etcd_requests_progress_instead_of_waiting() {
    let Some(server) = EtcdServer::start() else { return };
    let cache = cache(server.store("/ours").await, Collections::ByFirstPart).await;
    let foreign = server.store("/theirs").await;
    for round in 0..20 {
        put(&*cache, "/a/x", &round.to_string()).await;
        let revision = put(&*foreign, "/a/x", "x").await;
        let snapshot = cache.snapshot("/a/", ResourceVersionMatch::Newest).await.unwrap();
        assert_eq!(fields(&snapshot), [round.to_string()]);
        assert!(snapshot.revision >= revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_recovers_from_etcd_restarts_and_compaction() {
    let Some(mut server) = EtcdServer::start() else { return };
    let engine = server.store("/lost").await;
    let cache = cache(engine.clone(), Collections::ByFirstPart).await;
    let first = put(&*cache, "/a/x", "1").await;
    let mut watcher = cache.watch_prefix("/a/", first - 1).unwrap();
    cache.snapshot("/a/", ResourceVersionMatch::Newest).await.unwrap();
    server.restart();
    // Another server writes and compacts before the cache is there again.
    let other = server.open(KeyLayout::Plain("/lost".into())).await;
    put(&other, "/a/x", "2").await;
    let last = put(&other, "/a/y", "3").await;
    other.compact(last).await.unwrap();
    let snapshot = loop {
        match cache.snapshot("/a/", ResourceVersionMatch::NotBefore(last)).await {
            Ok(snapshot) => break snapshot,
            Err(error) => println!("{error}"),
        }
    };
    assert_eq!(fields(&snapshot), ["2", "3"]);
    // It was fast enough to see the changes, or it is told that it was not.
    match watcher.take_changes(10) {
        Ok(changes) => assert!(changes.iter().map(|change| change.revision).is_sorted()),
        Err(error) => assert!(matches!(error, StoreError::Compacted { .. }), "{error}"),
    }
    agrees(&cache).await;
}
