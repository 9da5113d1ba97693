//! The contract of every engine, as one function per rule over [`Store`].
//!
//! Every engine runs all of them; they are named in the `contract!` list at the end.

use crate::engines;

use std::{collections::BTreeMap, time::Duration};

use crate::engines::Engine;
use ferry_store::{
    EventStream, ListOptions, ListPage, Precondition, Record, Revision, Store, StoreError, StoreEvent, UpdateAction,
    WatchItem, WatchOptions, WriteRequest, guaranteed_update,
};
use futures::{StreamExt, future::join_all};

async fn put(store: &dyn Store, key: &str, precondition: Precondition, value: &str) -> Result<Revision, StoreError> {
    let value = Some(value.to_owned().into());
    store.write(WriteRequest { key: key.into(), precondition, value, ttl: None }).await
}

async fn create(store: &dyn Store, key: &str, value: &str) -> Revision {
    put(store, key, Precondition::Absent, value).await.unwrap()
}

async fn update(store: &dyn Store, key: &str, value: &str) -> Revision {
    let revision = store.get(key).await.unwrap().unwrap().revision;
    put(store, key, Precondition::Revision(revision), value).await.unwrap()
}

async fn delete(store: &dyn Store, key: &str) -> Revision {
    let revision = store.get(key).await.unwrap().unwrap().revision;
    store
        .write(WriteRequest { key: key.into(), precondition: Precondition::Revision(revision), value: None, ttl: None })
        .await
        .unwrap()
}

async fn list_at(store: &dyn Store, prefix: &str, at: Option<Revision>) -> ListPage {
    store.list(ListOptions { prefix: prefix.into(), at, ..ListOptions::default() }).await.unwrap()
}

async fn take(watch: &mut EventStream, count: usize) -> Vec<StoreEvent> {
    watch.take(count).map(Result::unwrap).collect().await
}

/// `key=value@revision` for each record, in order.
fn show(records: &[Record]) -> Vec<String> {
    let show =
        |record: &Record| format!("{}={}@{}", record.key, String::from_utf8_lossy(&record.value), record.revision);
    records.iter().map(show).collect()
}

async fn a_new_store_is_empty(store: Engine) {
    let revision = store.revision().await.unwrap();
    assert_eq!(store.get("/a").await.unwrap(), None);
    let page = list_at(&*store, "", None).await;
    assert_eq!((page.records.len(), page.revision, page.remaining), (0, revision, 0));
    store.check_health().await.unwrap();
}

async fn preconditions_are_checked(store: Engine) {
    let first = create(&*store, "/a", "1").await;
    let refused = put(&*store, "/a", Precondition::Absent, "2").await.unwrap_err();
    let StoreError::Conflict { current: Some(current), .. } = refused else { panic!("{refused}") };
    assert_eq!(show(&[current]), [format!("/a=1@{first}")]);

    let second = put(&*store, "/a", Precondition::Revision(first), "2").await.unwrap();
    assert!(matches!(put(&*store, "/a", Precondition::Revision(first), "3").await, Err(StoreError::Conflict { .. })));
    assert!(matches!(
        put(&*store, "/b", Precondition::Revision(first), "3").await,
        Err(StoreError::Conflict { current: None, .. })
    ));
    assert_eq!(show(&[store.get("/a").await.unwrap().unwrap()]), [format!("/a=2@{second}")]);
    assert_eq!(store.revision().await.unwrap(), second);
}

async fn a_deleted_key_can_be_created_again(store: Engine) {
    create(&*store, "/a", "1").await;
    let deleted = delete(&*store, "/a").await;
    assert_eq!(store.get("/a").await.unwrap(), None);
    assert!(create(&*store, "/a", "2").await > deleted);
}

async fn revisions_grow_by_one(store: Engine) {
    let mut revisions = Vec::new();
    for round in 0..10 {
        revisions.push(create(&*store, &format!("/{round}"), "x").await);
        revisions.push(update(&*store, &format!("/{round}"), "y").await);
        revisions.push(delete(&*store, &format!("/{round}")).await);
    }
    assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
    assert_eq!(store.revision().await.unwrap(), *revisions.last().unwrap());
}

async fn many_writers_of_one_key_lose_nothing(store: Engine) {
    create(&*store, "/counter", "0").await;
    let add_one = |store: Engine| async move {
        loop {
            let record = store.get("/counter").await.unwrap().unwrap();
            let count: u32 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
            match put(&*store, "/counter", Precondition::Revision(record.revision), &(count + 1).to_string()).await {
                Ok(revision) => return revision,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let writers = (0..64).map(|_| tokio::spawn(add_one(store.clone())));
    let mut revisions: Vec<_> = join_all(writers).await.into_iter().map(Result::unwrap).collect();
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(revisions.len(), 64);
    assert_eq!(store.get("/counter").await.unwrap().unwrap().value, "64");
}

async fn a_watch_begins_after_its_revision(store: Engine) {
    let first = create(&*store, "/a", "1").await;
    let second = update(&*store, "/a", "2").await;
    let third = delete(&*store, "/a").await;
    let mut watch = store.watch("/", first).await.unwrap();
    let events = take(&mut watch, 2).await;
    let record = |value: &'static str, revision| Record { key: "/a".into(), value: value.into(), revision };
    let event = |revision, value: Option<&'static str>, previous| StoreEvent {
        revision,
        key: "/a".into(),
        value: value.map(Into::into),
        previous: Some(previous),
    };
    assert_eq!(events, [event(second, Some("2"), record("1", first)), event(third, None, record("2", second))]);

    let fourth = create(&*store, "/a", "3").await;
    let created = &take(&mut watch, 1).await[0];
    assert_eq!((created.revision, &created.previous), (fourth, &None));
}

async fn a_watch_sees_only_its_prefix(store: Engine) {
    let mut watch = store.watch("/pods/", store.revision().await.unwrap()).await.unwrap();
    for key in ["/nodes/a", "/pods/a", "/podsecurity/a", "/pods/b"] {
        create(&*store, key, "x").await;
    }
    let keys: Vec<_> = take(&mut watch, 2).await.into_iter().map(|event| event.key).collect();
    assert_eq!(keys, ["/pods/a".into(), "/pods/b".into()]);
}

async fn a_watch_is_complete_and_in_order(store: Engine) {
    const WRITERS: usize = 16;
    const WRITES: usize = 25;
    let before = store.revision().await.unwrap();
    let write = |store: Engine, writer: usize| async move {
        for count in 0..WRITES {
            create(&*store, &format!("/{writer}/{count}"), "x").await;
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
    let early = store.watch("", before).await.unwrap();
    let one = store.watch("/7/", before).await.unwrap();
    for writer in writers {
        writer.await.unwrap();
    }
    let late = store.watch("", before).await.unwrap();
    let revisions: Vec<Revision> = (before + 1..=before + (WRITERS * WRITES) as u64).collect();
    for mut watch in [early, late] {
        let seen: Vec<_> = take(&mut watch, revisions.len()).await.iter().map(|event| event.revision).collect();
        assert_eq!(seen, revisions);
    }
    let keys: Vec<_> = one.take(WRITES).map(|event| event.unwrap().key.to_string()).collect().await;
    assert_eq!(keys, (0..WRITES).map(|count| format!("/7/{count}")).collect::<Vec<_>>());
}

async fn a_watch_resumes_where_another_ended(store: Engine) {
    let before = store.revision().await.unwrap();
    for count in 0..10 {
        create(&*store, &format!("/{count}"), "x").await;
    }
    let mut seen = Vec::new();
    for _ in 0..5 {
        let after = seen.last().copied().unwrap_or(before);
        let mut watch = store.watch("/", after).await.unwrap();
        seen.extend(take(&mut watch, 2).await.iter().map(|event| event.revision));
    }
    assert_eq!(seen, (before + 1..=before + 10).collect::<Vec<_>>());
}

async fn future_revision_is_rejected(store: Engine) {
    let current = create(&*store, "/a", "1").await;
    let requested = current + 1;
    let is_future = |error: &StoreError| matches!(error, StoreError::Future { requested: r, current: c } if (*r, *c) == (requested, current));
    assert!(is_future(&store.watch("/", requested).await.err().unwrap()));
    assert!(is_future(&store.list(ListOptions { at: Some(requested), ..ListOptions::default() }).await.unwrap_err()));
    assert!(is_future(&store.compact(requested).await.unwrap_err()));
}

async fn list_returns_any_kept_revision(store: Engine) {
    // Every revision is compared with what a plain map held when it was current.
    let before = store.revision().await.unwrap();
    let mut now = BTreeMap::new();
    let mut then = vec![now.clone()];
    for step in 0..60u32 {
        let key = format!("/{}/{}", step % 2, step * 7 % 11);
        let (revision, value) = match now.contains_key(&key) {
            false => (create(&*store, &key, &step.to_string()).await, Some(step)),
            true if step % 3 == 0 => (delete(&*store, &key).await, None),
            true => (update(&*store, &key, &step.to_string()).await, Some(step)),
        };
        match value {
            Some(value) => now.insert(key.clone(), format!("{key}={value}@{revision}")),
            None => now.remove(&key),
        };
        then.push(now.clone());
    }
    for (step, expected) in then.iter().enumerate() {
        let revision = before + step as u64;
        if revision == 0 {
            continue;
        }
        for prefix in ["", "/1/", "/1/1", "/nothing"] {
            let page = list_at(&*store, prefix, Some(revision)).await;
            let expected: Vec<_> = expected.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
            let expected: Vec<_> = expected.into_iter().map(|(_, shown)| shown.clone()).collect();
            assert_eq!(show(&page.records), expected, "{prefix} at {revision}");
            assert_eq!((page.revision, page.remaining), (revision, 0));
        }
    }
}

async fn pages_of_one_list_are_consistent(store: Engine) {
    for count in 0..10 {
        create(&*store, &format!("/p/{count}"), "old").await;
    }
    let whole = list_at(&*store, "/p/", None).await;
    let mut pages = Vec::new();
    let mut range = ListOptions { prefix: "/p/".into(), limit: Some(3), ..ListOptions::default() };
    for (round, remaining) in [7, 4, 1, 0].into_iter().enumerate() {
        let page = store.list(range.clone()).await.unwrap();
        assert_eq!((page.remaining, page.revision), (remaining, whole.revision));
        range.at = Some(page.revision);
        range.after = page.records.last().map(|record| record.key.to_string());
        pages.extend(page.records);
        update(&*store, &format!("/p/{round}"), "new").await;
        delete(&*store, &format!("/p/{}", 9 - round)).await;
        create(&*store, &format!("/p/{round}x"), "new").await;
    }
    assert_eq!(pages, whole.records);
}

async fn compacted_revision_is_rejected(store: Engine) {
    create(&*store, "/a", "1").await;
    create(&*store, "/b", "1").await;
    let through = update(&*store, "/a", "2").await;
    let gone = delete(&*store, "/b").await;
    let mut running = store.watch("/", through - 1).await.unwrap();
    store.compact(through).await.unwrap();

    let is_compacted = |error: &StoreError| matches!(error, StoreError::Compacted { oldest, .. } if *oldest == through);
    assert!(is_compacted(&store.watch("/", through - 1).await.err().unwrap()));
    assert!(is_compacted(
        &store.list(ListOptions { at: Some(through - 1), ..ListOptions::default() }).await.unwrap_err()
    ));
    // A watch that was running had the events already, or ends.
    match running.next().await.unwrap() {
        Ok(event) => assert_eq!(event.revision, through),
        Err(error) => {
            assert!(is_compacted(&error));
            assert!(running.next().await.is_none(), "a watch ends after its error");
        }
    }

    assert_eq!(list_at(&*store, "/", Some(through)).await.records.len(), 2);
    assert_eq!(list_at(&*store, "/", None).await.records.len(), 1);
    assert_eq!(take(&mut store.watch("/", through).await.unwrap(), 1).await[0].revision, gone);
    store.compact(through).await.unwrap();
    store.compact(gone).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), gone);
    assert_eq!(create(&*store, "/c", "1").await, gone + 1);
}

async fn documents_expire(store: Engine) {
    let ttl = Some(Duration::from_millis(20));
    let write =
        |key: &'static str, precondition| WriteRequest { key: key.into(), precondition, value: Some("x".into()), ttl };
    let mut watch = store.watch("/", store.revision().await.unwrap()).await.unwrap();
    let revision = store.write(write("/short", Precondition::Absent)).await.unwrap();
    let events = take(&mut watch, 2).await;
    assert_eq!((events[0].revision, events[0].value.is_some()), (revision, true));
    assert_eq!((events[1].revision, &events[1].value), (revision + 1, &None));
    assert_eq!(events[1].previous.as_ref().unwrap().revision, revision);
    assert_eq!(store.get("/short").await.unwrap(), None);
}

async fn a_later_write_ends_the_ttl(store: Engine) {
    let ttl = Some(Duration::from_millis(30));
    let write =
        |key: &'static str, precondition| WriteRequest { key: key.into(), precondition, value: Some("x".into()), ttl };
    let first = store.write(write("/kept", Precondition::Absent)).await.unwrap();
    let kept = put(&*store, "/kept", Precondition::Revision(first), "y").await;
    // On a machine so slow that the first write has expired already there is nothing to see.
    let Ok(kept) = kept else { return };
    let last = store.write(write("/expires-later", Precondition::Absent)).await.unwrap();
    let mut watch = store.watch("/", last).await.unwrap();
    assert_eq!(&*take(&mut watch, 1).await[0].key, "/expires-later");
    assert_eq!(store.get("/kept").await.unwrap().unwrap().revision, kept);
}

async fn progress_is_reported_when_other_keys_change(store: Engine) {
    let after = create(&*store, "/a/1", "x").await;
    let follow = WatchOptions {
        prefix: "/a/".into(),
        after,
        progress_interval: Some(Duration::from_millis(10)),
        progress_request: None,
    };
    let mut notices = store.watch_items(follow).await.unwrap();
    let other = create(&*store, "/b/1", "x").await;
    loop {
        match notices.next().await.unwrap().unwrap() {
            WatchItem::Progress(revision) if revision >= other => break,
            WatchItem::Progress(revision) => assert!(revision > after),
            WatchItem::Event(event) => panic!("{event:?}"),
        }
    }
    let mine = create(&*store, "/a/2", "x").await;
    while let WatchItem::Progress(revision) = notices.next().await.unwrap().unwrap() {
        assert!(revision < mine, "progress to {revision} before the event of {mine}");
    }
}

async fn guaranteed_update_retries_on_conflict(store: Engine) {
    let count =
        |record: Option<&Record>| record.map_or(0, |record| String::from_utf8_lossy(&record.value).parse().unwrap());
    let add_one = |store: Engine| async move {
        let add = |record: Option<&Record>| {
            Ok::<_, StoreError>(UpdateAction::Put((count(record) + 1u32).to_string().into(), None))
        };
        guaranteed_update(&*store, "/n", add).await.unwrap()
    };
    let changed = join_all((0..20).map(|_| tokio::spawn(add_one(store.clone())))).await;
    assert!(changed.into_iter().all(|record| record.unwrap().is_some()));
    let record = store.get("/n").await.unwrap().unwrap();
    assert_eq!(record.value, "20");
    let revision = store.revision().await.unwrap();
    let kept = guaranteed_update::<StoreError>(&*store, "/n", |_| Ok(UpdateAction::Keep)).await.unwrap();
    assert_eq!((kept.as_ref(), store.revision().await.unwrap()), (Some(&record), revision));
    assert_eq!(guaranteed_update::<StoreError>(&*store, "/n", |_| Ok(UpdateAction::Delete)).await.unwrap(), None);
    assert_eq!(store.get("/n").await.unwrap(), None);
    assert_eq!(guaranteed_update::<StoreError>(&*store, "/n", |_| Ok(UpdateAction::Delete)).await.unwrap(), None);
}

/// Names the rules once; the embedded engine runs each as a test, etcd all of them in a row on one server.
macro_rules! contract {
    ($($rule:ident),* $(,)?) => {
        mod on_embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let dir = tempfile::tempdir().unwrap();
                super::$rule(super::engines::embedded(dir.path()).await).await;
            })*
        }

        mod on_a_cache {
            use super::engines::{Collections, cache, embedded};

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let dir = tempfile::tempdir().unwrap();
                super::$rule(cache(embedded(dir.path()).await, Collections::One).await).await;
            })*
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn on_a_cache_over_etcd() {
            let Some(server) = engines::EtcdServer::start() else { return };
            $(let store = server.store(concat!("/", stringify!($rule))).await;
            let rule = $rule(engines::cache(store, engines::Collections::One).await);
            tokio::time::timeout(Duration::from_secs(60), rule).await.expect(stringify!($rule));)*
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn on_etcd() {
            let Some(server) = engines::EtcdServer::start() else { return };
            $(let rule = $rule(server.store(concat!("/", stringify!($rule))).await);
            tokio::time::timeout(Duration::from_secs(60), rule).await.expect(stringify!($rule));)*
        }
    };
}

contract! {
    a_new_store_is_empty,
    preconditions_are_checked,
    a_deleted_key_can_be_created_again,
    revisions_grow_by_one,
    many_writers_of_one_key_lose_nothing,
    a_watch_begins_after_its_revision,
    a_watch_sees_only_its_prefix,
    a_watch_is_complete_and_in_order,
    a_watch_resumes_where_another_ended,
    future_revision_is_rejected,
    list_returns_any_kept_revision,
    pages_of_one_list_are_consistent,
    compacted_revision_is_rejected,
    documents_expire,
    a_later_write_ends_the_ttl,
    progress_is_reported_when_other_keys_change,
    guaranteed_update_retries_on_conflict,
}
