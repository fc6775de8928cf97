//! A relay before a server that counts round trips.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A port that leads to a server. Its sessions must not be encrypted.
pub(crate) struct Wire {
    port: u16,
    round_trips: Arc<AtomicU64>,
}

impl Wire {
    pub(crate) fn to(server: (String, u16)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let round_trips = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&round_trips);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(&server).unwrap();
                relay(client, server, Arc::clone(&count));
            }
        });
        Self { port, round_trips }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How often a client has waited for the server so far.
    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Acquire)
    }
}

fn relay(client: TcpStream, server: TcpStream, count: Arc<AtomicU64>) {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    thread::spawn(move || {
        // What ends a session ends the loop.
        while let Some(message) = message(&mut from, &count) {
            if to.write_all(&message).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Both).ok();
    });
    let (mut from, mut to) = (server, client);
    thread::spawn(move || {
        std::io::copy(&mut from, &mut to).ok();
        to.shutdown(Shutdown::Both).ok();
    });
}

/// The client's next message, whole. After a sync or a simple query the client waits.
fn message(from: &mut TcpStream, count: &AtomicU64) -> Option<Vec<u8>> {
    let mut first = [0];
    from.read_exact(&mut first).ok()?;
    // A session's first message has no kind: it begins with its length, of which the first byte
    // is zero.
    let mut message = first.to_vec();
    let mut length = [0; 4];
    let unread = if first == [0] { 1 } else { 0 };
    from.read_exact(&mut length[unread..]).ok()?;
    message.extend_from_slice(&length[unread..]);
    let size = usize::try_from(u32::from_be_bytes(length)).ok()?;
    let start = message.len();
    message.resize(start + size.checked_sub(4)?, 0);
    from.read_exact(&mut message[start..]).ok()?;
    if matches!(first, [b'S' | b'Q']) {
        count.fetch_add(1, Ordering::Release);
    }
    Some(message)
}
