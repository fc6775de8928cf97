//! A network that fails on demand: a TCP proxy in front of a server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Passes everything on.
    Pass,
    /// Ends new connections before they have begun. Those that are there go on.
    Refuse,
    /// Keeps every connection, takes new ones, and passes nothing on until the mode changes.
    Silent,
    /// Ends the connections that are there, and new ones as soon as they come.
    Cut,
}

/// A proxy on a loopback port, open until it is dropped.
///
/// ```no_run
/// use alkstore_contract_tests::postgres_server::{Mode, PostgresServer, Proxy, ServerOptions};
///
/// let server = PostgresServer::start(&ServerOptions::new());
/// let proxy = Proxy::to(server.address());
/// let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
/// proxy.set(Mode::Silent);
/// proxy.set(Mode::Pass);
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    target: (String, u16),
    delay: Duration,
    closed: bool,
    connections: Vec<TcpStream>,
    served: u64,
}

impl Proxy {
    /// A proxy in front of a host and port, in [`Mode::Pass`].
    ///
    /// # Panics
    ///
    /// If the loopback has no free port.
    #[must_use]
    pub fn to(target: (String, u16)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
        let address = listener.local_addr().expect("a bound port has an address");
        let state = State {
            mode: Mode::Pass,
            target,
            delay: Duration::ZERO,
            closed: false,
            connections: Vec::new(),
            served: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Self { address, shared }
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes the mode, for the connections that are there too.
    pub fn set(&self, mode: Mode) {
        let mut state = self.shared.state();
        state.mode = mode;
        if mode == Mode::Cut {
            cut(&mut state);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Leads to another host and port from now on, and ends the connections that are there.
    pub fn lead_to(&self, target: (String, u16)) {
        let mut state = self.shared.state();
        state.target = target;
        cut(&mut state);
    }

    /// Passes everything on later by this much from now on, in each direction: a far server.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// How many connections have come so far, refused ones included.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.shared.state().served
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closed = true;
        cut(&mut state);
        drop(state);
        self.shared.changed.notify_all();
        // The accepting thread looks at the state when one more has come.
        TcpStream::connect(self.address).ok();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the network is silent; `false` once nothing more goes through.
    fn may_pass(&self) -> bool {
        let silent = |state: &mut State| state.mode == Mode::Silent && !state.closed;
        let state = self.changed.wait_while(self.state(), silent);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.mode != Mode::Cut && !state.closed
    }
}

fn cut(state: &mut State) {
    for connection in state.connections.drain(..) {
        connection.shutdown(Shutdown::Both).ok();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let mut state = shared.state();
        if state.closed {
            return;
        }
        state.served += 1;
        let Ok(client) = client else { continue };
        if matches!(state.mode, Mode::Refuse | Mode::Cut) {
            continue;
        }
        if let Ok(kept) = client.try_clone() {
            state.connections.push(kept);
        }
        let (target, shared) = (state.target.clone(), Arc::clone(shared));
        drop(state);
        thread::spawn(move || serve(client, target, &shared));
    }
}

fn serve(client: TcpStream, target: (String, u16), shared: &Arc<Shared>) {
    if !shared.may_pass() {
        return;
    }
    let Ok(server) = TcpStream::connect(target) else {
        client.shutdown(Shutdown::Both).ok();
        return;
    };
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    if let Ok(kept) = server.try_clone() {
        shared.state().connections.push(kept);
    }
    let answering = Arc::clone(shared);
    thread::spawn(move || pump(from_server, client, &answering));
    pump(from_client, server, shared);
}

/// Copies one direction until either side ends, then ends both.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap_or(0),
        };
        let delay = shared.state().delay;
        thread::sleep(delay);
        if !shared.may_pass() || read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
