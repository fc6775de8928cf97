//! Copying the write-ahead log into the database, out of the writers' way.
//!
//! SQLite would do it within the commit that makes the log long enough, and make that commit
//! wait for the disk. Here a thread does it while others go on writing. Only where it cannot
//! keep up, or a reader holds the log open, does a commit do it itself, so that the log stays
//! bounded.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rusqlite::Connection;

use crate::place::{Place, Role};

/// The log is copied each time that so many pages have come.
const STEP: i32 = 1000;

/// A log of so many pages is copied by the commit that finds it; 32 MB.
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
    /// Started with the first use.
    thread: Option<SyncSender<()>>,
}

impl Checkpoints {
    /// Takes the copying over from SQLite.
    pub(crate) fn take_over(connection: &Connection) -> Self {
        connection.wal_hook(Some(|_, pages| {
            LENGTH.set(pages);
            Ok(())
        }));
        Self {
            due: STEP,
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
        if length >= MOST || !self.hand_over(place) {
            copy(connection);
        }
    }

    /// Wakes the thread; `false` if there is none.
    fn hand_over(&mut self, place: &Place) -> bool {
        if self.thread.is_none() {
            self.thread = start(place);
        }
        // If it is at work already, what it has not copied yet comes with the next step.
        self.thread.as_ref().is_some_and(|thread| {
            thread.try_send(()).ok();
            true
        })
    }
}

fn start(place: &Place) -> Option<SyncSender<()>> {
    let connection = place.connect(Role::Reader).ok()?;
    let (sender, receiver) = sync_channel(1);
    let run = move || run(&receiver, &connection);
    let name = "alkstore-sqlite-checkpoint".to_owned();
    thread::Builder::new().name(name).spawn(run).ok()?;
    Some(sender)
}

fn run(signals: &Receiver<()>, connection: &Connection) {
    while signals.recv().is_ok() {
        copy(connection);
    }
}

/// Copies as much as can be without waiting for anybody.
fn copy(connection: &Connection) {
    let pragma = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)");
    // Nothing is lost by a failure: the log stays, and the next step tries again.
    pragma
        .and_then(|mut pragma| pragma.query_row([], |_| Ok(())))
        .ok();
}
