//! The HTTP endpoint of the metrics: `GET /metrics`, one request per connection, on one thread.
//!
//! Anybody who can reach the address may connect, so a client must not be able to cost much: at
//! most [`CONNECTIONS`] are held at a time, of which the oldest without a whole request is dropped
//! for the next one; each has [`PATIENCE`] from its first byte to the last of its answer, and its
//! request line and headers may have [`HEADER`] bytes. Whatever clients do, the thread takes
//! [`SHARE`] of a core over time, and then waits: what the process uses is charged to the promoter,
//! which must not starve.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::cpu::thread_cpu;

/// Connections that are held at a time.
const CONNECTIONS: usize = 16;
/// The most that a request line with its headers may have.
const HEADER: usize = 8 << 10;
/// How long a connection may last.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long nobody is let in when the system has no file for a connection.
const PAUSE: Duration = Duration::from_millis(500);

/// The share of a core that answers may take over time: some 25 requests a second.
const SHARE: f64 = 0.002;
/// The seconds of processor time that may be saved up for a burst.
const SAVED: f64 = 0.05;

const TEXT: &str = "text/plain; charset=utf-8";

/// An endpoint that answers until it is dropped.
#[derive(Debug)]
pub(super) struct Endpoint {
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens and answers, on a thread, with the result of `text`, of this content type; a client
    /// may take `patience`, usually [`PATIENCE`].
    ///
    /// # Errors
    /// The address cannot be used, or no thread is to be had.
    pub(super) fn open(
        address: SocketAddr,
        content: &'static str,
        patience: Duration,
        text: impl Fn() -> String + Send + 'static,
    ) -> Result<Endpoint, Error> {
        let unable = |error| Error::Unable(format!("cannot serve metrics at {address}: {error}; give another address"));
        let listener = TcpListener::bind(address).map_err(unable)?;
        listener.set_nonblocking(true).map_err(unable)?;
        let address = listener.local_addr().map_err(unable)?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::system("make a pipe"))?;
        let serve = move || {
            let mut held: Vec<Connection> = Vec::new();
            let mut pause = None;
            let (begun, mut share) = (Instant::now(), Share::default());
            while wait(&listener, &stopped, &held, pause) {
                let rest = share.wait(begun.elapsed(), thread_cpu());
                if !rest.is_zero() && !sleep(&stopped, rest) {
                    break;
                }
                held.retain_mut(|connection| connection.go_on(content, &text));
                pause = None;
                // No more than these at once: who connects again and again keeps nobody from the
                // end.
                for _ in 0..CONNECTIONS {
                    if !has_room(&held) {
                        break;
                    }
                    match listener.accept() {
                        Ok((stream, _)) => {
                            // What it has sent already is read before it can be the oldest.
                            let new = Connection::new(stream, patience);
                            held.extend(new.and_then(|mut new| new.go_on(content, &text).then_some(new)));
                            let oldest = held.iter().position(|connection| connection.answer.is_none());
                            if let Some(oldest) = oldest.filter(|_| held.len() > CONNECTIONS) {
                                held.remove(oldest);
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        // Who gave up while it waited in the queue.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                        // No more files may be open, say: the connection stays in the queue, and
                        // ready.
                        Err(_) => {
                            pause = Some(Instant::now() + PAUSE);
                            break;
                        }
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(serve);
        let thread = thread.map_err(Error::system("start a thread"))?;
        Ok(Endpoint { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address that is listened on, with the port that the system chose if it was asked to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The processor time that the thread may take.
#[derive(Default)]
struct Share {
    /// When it was asked for last, and what had been used then.
    at: Duration,
    used: Duration,
    /// Seconds of processor time that are owed.
    owed: f64,
}

impl Share {
    /// How long the thread must wait, `now` after it has begun and with so much used.
    fn wait(&mut self, now: Duration, used: Duration) -> Duration {
        let gained = now.saturating_sub(self.at).as_secs_f64() * SHARE;
        let spent = used.saturating_sub(self.used).as_secs_f64();
        self.owed = (self.owed - gained).max(-SAVED) + spent;
        (self.at, self.used) = (now, used);
        Duration::from_secs_f64(self.owed.max(0.0) / SHARE)
    }
}

/// Waits so long; `false` when the endpoint shall end before.
fn sleep(stopped: &UnixStream, rest: Duration) -> bool {
    let mut ready = [PollFd::new(stopped, PollFlags::IN)];
    let rest = Timespec::try_from(rest).ok();
    !matches!(poll(&mut ready, rest.as_ref()), Ok(1..))
}

/// Whether a connection can be accepted: a place is free, or held by one without a whole request,
/// which is closed then.
fn has_room(held: &[Connection]) -> bool {
    held.len() < CONNECTIONS || held.iter().any(|connection| connection.answer.is_none())
}

/// Waits for a request, an answer that can be sent, or the end of a connection's time; `false` when
/// the endpoint is being stopped. Before the end of a `pause` no connection is accepted.
fn wait(listener: &TcpListener, stopped: &UnixStream, held: &[Connection], pause: Option<Instant>) -> bool {
    let mut ready = vec![PollFd::new(stopped, PollFlags::IN)];
    ready.extend(held.iter().map(|connection| PollFd::new(&connection.stream, connection.waits_for())));
    if has_room(held) && pause.is_none() {
        ready.push(PollFd::new(listener, PollFlags::IN));
    }
    let until = held.iter().map(|connection| connection.until).chain(pause).min();
    let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
    let rest = rest.and_then(|rest| Timespec::try_from(rest).ok());
    match poll(&mut ready, rest.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => ready[0].revents().is_empty(),
        Err(error) => {
            tracing::warn!("the metrics are no longer served: {error}");
            false
        }
    }
}

/// A client: its request as far as it has come, then what is left of the answer.
struct Connection {
    stream: TcpStream,
    until: Instant,
    request: Vec<u8>,
    answer: Option<Vec<u8>>,
    written: usize,
}

impl Connection {
    fn new(stream: TcpStream, patience: Duration) -> Option<Connection> {
        stream.set_nonblocking(true).ok()?;
        Some(Connection { stream, until: Instant::now() + patience, request: Vec::new(), answer: None, written: 0 })
    }

    fn waits_for(&self) -> PollFlags {
        if self.answer.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Reads and writes as far as that goes without waiting; `false` when the connection is done
    /// with.
    fn go_on(&mut self, content: &str, text: &impl Fn() -> String) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        if self.answer.is_none() {
            let mut piece = [0; 1024];
            let ended = loop {
                let room = piece.len().min(HEADER - self.request.len());
                match self.stream.read(&mut piece[..room]) {
                    // The client has said all, or there is no room for more.
                    Ok(0) => break true,
                    Ok(read) => self.request.extend_from_slice(&piece[..read]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            };
            self.answer = respond(&self.request, content, text);
            if self.answer.is_none() {
                return !ended;
            }
        }
        let answer = self.answer.as_ref().expect("it was made");
        while self.written < answer.len() {
            match self.stream.write(&answer[self.written..]) {
                Ok(0) => return false,
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        false
    }
}

/// The answer to a request; `None` while it is not complete.
fn respond(request: &[u8], content: &str, text: impl Fn() -> String) -> Option<Vec<u8>> {
    let complete = request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n");
    if !complete {
        let too_long = || text_response("431 Request Header Fields Too Large", "");
        return (request.len() >= HEADER).then(|| message(too_long(), true));
    }
    let line = request.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let version = words.next().unwrap_or_default();
    let known = path(target).split(|byte| *byte == b'?').next() == Some(b"/metrics");
    let answer = match method {
        _ if !version.starts_with(b"HTTP/1.") => text_response("400 Bad Request", "not HTTP/1\n"),
        b"GET" | b"HEAD" if known => Response { status: "200 OK", content, body: text() },
        b"GET" | b"HEAD" => text_response("404 Not Found", "see /metrics\n"),
        _ => text_response("405 Method Not Allowed", "only GET\n"),
    };
    Some(message(answer, method != b"HEAD"))
}

/// The path of a request's target, which a proxy gives with scheme and host: `http://host/metrics`
/// (RFC 9112, section 3.2.2).
fn path(target: &[u8]) -> &[u8] {
    let absolute = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        target.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme)).map(|_| &target[scheme.len()..])
    });
    absolute.map_or(target, |rest| &rest[rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len())..])
}

fn text_response(status: &'static str, body: &str) -> Response<'static> {
    Response { status, content: TEXT, body: body.into() }
}

/// A response: its status line, the type of its body, and that.
struct Response<'a> {
    status: &'static str,
    content: &'a str,
    body: String,
}

fn message(Response { status, content, body }: Response<'_>, with_body: bool) -> Vec<u8> {
    let length = body.len();
    let body = if with_body { body.as_str() } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_clients_do_the_thread_takes_its_share() {
        let (mut share, mut now, mut used) = (Share::default(), Duration::ZERO, Duration::ZERO);
        for _ in 0..10_000 {
            // Somebody always asks, and 16 answers take a millisecond.
            used += Duration::from_millis(1);
            now += Duration::from_millis(1);
            now += share.wait(now, used);
        }
        assert!(used.as_secs_f64() <= SHARE * now.as_secs_f64() + SAVED + 0.002, "{used:?} of {now:?}");
        assert!(used.as_secs_f64() >= 0.99 * SHARE * now.as_secs_f64(), "{used:?} of {now:?}");
        // What is not used is saved up, but not for ever.
        assert_eq!(share.wait(now + Duration::from_secs(3600), used + Duration::from_millis(49)), Duration::ZERO);
        assert!(share.wait(now + Duration::from_secs(3600), used + Duration::from_millis(55)) > Duration::from_secs(1));
    }

    fn endpoint(patience: Duration) -> Endpoint {
        let local = "127.0.0.1:0".parse().unwrap();
        Endpoint::open(local, "text/plain", patience, || "numbers\n".to_string()).unwrap()
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        // What the endpoint did not read may have the connection reset after the answer.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    #[test]
    fn requests_and_their_answers() {
        let endpoint = endpoint(PATIENCE);
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
            ("GET /metrics?x=1 HTTP/1.0\n\n", "200"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
            ("GET http://host:9415/metrics HTTP/1.1\r\n\r\n", "200"),
            ("GET HTTP://host/metrics?x=1 HTTP/1.1\r\n\r\n", "200"),
            ("GET http://host HTTP/1.1\r\n\r\n", "404"),
            ("GET http://host/metrics/x HTTP/1.1\r\n\r\n", "404"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\nbody", "405"),
            ("\u{16}\u{3}\u{1} nonsense\r\n\r\n", "400"),
        ] {
            let answer = ask(endpoint.address(), request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
            let told = status == "200" && request.starts_with("GET");
            assert_eq!(answer.ends_with("\r\n\r\nnumbers\n"), told, "{request}: {answer}");
        }
    }

    #[test]
    fn a_header_without_end_is_refused_early() {
        let endpoint = endpoint(PATIENCE);
        let mut stream = TcpStream::connect(endpoint.address()).unwrap();
        let mut sent = 0;
        let line = [b"X: ".as_slice(), &[b'a'; 1000], b"\r\n"].concat();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        // The endpoint stops to read, so that at most the buffers of the system fill.
        while sent < 64 << 20 && stream.write_all(&line).is_ok() {
            sent += line.len();
        }
        assert!(sent < 64 << 20, "it took {sent} bytes of headers");
        assert!(ask(endpoint.address(), &[b'a'; HEADER]).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn idle_connections_cost_no_threads_and_give_way() {
        let before = threads();
        let endpoint = endpoint(Duration::from_secs(1000));
        let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(endpoint.address()).unwrap()).collect();
        // They would have had much time.
        for _ in 0..3 {
            let answer = ask(endpoint.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        // Tests run in parallel, each with its own threads.
        assert!(threads() < before + 50, "{} threads, {before} before", threads());
        drop(idle);
    }
}
