//! Wakes: each process hears of every commit that touches what it listens to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use alkstore::engine::{At, Notify, Topic, TopicKind, WakeHub, Wakes};
use alkstore::{Result, WakeReceiver};
use tokio::sync::watch;

use super::{Database, Fault, Reference, ReferenceConn};

/// The hubs of the processes on a database.
#[derive(Debug, Default)]
pub(super) struct Hubs {
    processes: Mutex<Vec<Process>>,
    /// All that was ever woken, for the fault that remembers it.
    past: Mutex<Wakes>,
}

#[derive(Debug)]
struct Process {
    hub: WakeHub,
    /// Gone when the process is; receivers may outlive it.
    alive: Weak<watch::Sender<bool>>,
}

impl Hubs {
    pub(super) fn register(&self, hub: &WakeHub, process: &Arc<watch::Sender<bool>>) {
        let mut processes = lock(&self.processes);
        processes.retain(|process| process.alive.strong_count() > 0 || process.hub.is_attached());
        processes.push(Process {
            hub: hub.clone(),
            alive: Arc::downgrade(process),
        });
    }

    pub(super) fn close_all(&self) {
        lock(&self.processes)
            .iter()
            .for_each(|process| process.hub.close());
    }
}

impl Database {
    /// Tells every process of what a commit touched.
    pub(super) fn wake(&self, wakes: &Wakes) {
        for topic in wakes.iter() {
            for process in &*lock(&self.hubs.processes) {
                self.wake_process(&process.hub, topic);
            }
            if self.fault == Some(Fault::ListenHearsThePast) {
                lock(&self.hubs.past).add(topic);
            }
        }
    }

    fn wake_process(&self, hub: &WakeHub, topic: Topic<'_>) {
        let reaches_too = |known: &Topic<'_>| match self.fault {
            Some(Fault::NotifyWakesEveryChannel) => {
                topic.kind == TopicKind::Channel && known.kind == TopicKind::Channel
            }
            Some(Fault::WakesCrossKinds) => known.name == topic.name,
            Some(Fault::LongChannelsAreCut) => {
                let cut = |name: &str| name.bytes().take(63).collect::<Vec<_>>();
                known.kind == topic.kind && cut(known.name) == cut(topic.name)
            }
            _ => known == &topic,
        };
        for (kind, name) in hub.topics() {
            let known = Topic { kind, name: &name };
            if reaches_too(&known) {
                hub.wake(known);
            }
        }
    }
}

impl Notify for Reference {
    async fn send_notify(&self, at: At<'_, ReferenceConn>, channel: &str, _: &[u8]) -> Result<()> {
        self.write(at, |work| {
            if !work.rules.breaks(Fault::NotifyWakesNobody) {
                work.wakes.add(Topic::channel(channel));
            }
        })
        .await
    }

    async fn listen(&self, topic: Topic<'_>) -> Result<WakeReceiver> {
        self.check_open()?;
        self.database.reach().await?;
        let receiver = self.hub.attach(topic);
        if lock(&self.database.hubs.past)
            .iter()
            .any(|past| past == topic)
        {
            self.hub.wake(topic);
        }
        Ok(receiver)
    }

    fn notify_limit(&self) -> Option<usize> {
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
