//! Copying the write-ahead log into the database, out of the writers' way.
//!
//! SQLite would do it within the commit that makes the log long enough, and make that commit, and
//! the executor thread that it is on, wait for the disk. Here a thread does it while others go on
//! writing. A log that is copied whole begins anew, but while others write there is always some
//! of it left: once it is too long, the thread holds the writer until it has caught up.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;

use rusqlite::Connection;

use crate::gate::Gate;
use crate::place::{Place, Role};

/// The log is copied each time that so many pages have come.
const STEP: i32 = 1000;

/// A log of so many pages is copied while nobody writes; 32 MB.
const MOST: i32 = 8000;

thread_local! {
    /// The length of the log in pages after the last commit of this thread, 0 if unknown.
    static LENGTH: Cell<i32> = const { Cell::new(0) };
}

/// Decides who copies the log, and when.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    length: i32,
    due: i32,
    /// What the thread holds to keep others from writing.
    writer: Weak<Gate>,
    /// Started with the first use.
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    signals: SyncSender<()>,
    /// Whether it is to copy all of the log.
    whole: Arc<AtomicBool>,
}

impl Checkpoints {
    /// Takes the copying over from SQLite.
    pub(crate) fn take_over(connection: &Connection, writer: Weak<Gate>) -> Self {
        connection.wal_hook(Some(|_, pages| {
            LENGTH.set(pages);
            Ok(())
        }));
        Self {
            due: STEP,
            writer,
            ..Self::default()
        }
    }

    /// Sees to the log after a commit on `connection`, by this thread.
    pub(crate) fn committed(&mut self, place: &Place, connection: &Connection) {
        let length = LENGTH.take();
        if length == 0 {
            return;
        }
        if length < self.length {
            // The log was copied whole and begins anew.
            self.due = STEP;
        }
        self.length = length;
        if length < self.due {
            return;
        }
        self.due = length.saturating_add(STEP);
        if self.thread.is_none() {
            self.thread = start(place, &self.writer);
        }
        match &self.thread {
            Some(thread) => {
                thread.whole.fetch_or(length >= MOST, Ordering::AcqRel);
                // If it is at work already, what it has not copied yet comes with the next step.
                thread.signals.try_send(()).ok();
            }
            None if length >= MOST => copy(connection),
            None => {}
        }
    }
}

fn start(place: &Place, writer: &Weak<Gate>) -> Option<Thread> {
    let connection = place.connect(Role::Reader).ok()?;
    let (signals, receiver) = sync_channel(1);
    let whole = Arc::new(AtomicBool::new(false));
    let (writer, whole_too) = (Weak::clone(writer), Arc::clone(&whole));
    let run = move || {
        while receiver.recv().is_ok() {
            copy(&connection);
            if whole.swap(false, Ordering::AcqRel)
                && let Some(writer) = writer.upgrade()
                && let Ok(held) = writer.enter_blocking()
            {
                copy(&connection);
                drop(held);
            }
        }
    };
    let name = "alkstore-sqlite-checkpoint".to_owned();
    thread::Builder::new().name(name).spawn(run).ok()?;
    Some(Thread {
        signals,
        whole: whole_too,
    })
}

/// Copies as much as can be without waiting for anybody.
fn copy(connection: &Connection) {
    let pragma = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)");
    // Nothing is lost by a failure: the log stays, and the next step tries again.
    pragma
        .and_then(|mut pragma| pragma.query_row([], |_| Ok(())))
        .ok();
}
