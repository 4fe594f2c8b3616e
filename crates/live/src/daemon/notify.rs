//! What a service manager hears of the daemon, by `sd_notify(3)`: nothing where it gave no
//! `NOTIFY_SOCKET`.
//!
//! The crate sd-notify 0.5 knows no sockets of the abstract namespace, which managers of containers
//! use.

use super::services::Counted;
use crate::promote::Counters;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use superpage_output::foreign;

/// How often the line of status is sent, at most.
const STATUS: Duration = Duration::from_secs(10);
/// How that message begins.
const STATUS_IS: &str = "STATUS=";

/// The manager's view of the daemon.
#[derive(Debug)]
pub(super) struct Manager {
    /// Where it listens, if there is one.
    socket: Option<OsString>,
    /// Messages that its socket had no room for, in their order.
    unsent: VecDeque<String>,
    /// The line of status that it has, or will have, and since when.
    sent: Option<(String, Instant)>,
    /// Why the last reload changed nothing.
    refused: Option<String>,
    /// Whether it was logged that messages are lost: once is enough.
    lost: bool,
}

impl Manager {
    /// The one that started this process.
    pub(super) fn of_environment() -> Manager {
        Manager::at(std::env::var_os("NOTIFY_SOCKET"))
    }

    fn at(socket: Option<OsString>) -> Manager {
        Manager { socket, unsent: VecDeque::new(), sent: None, refused: None, lost: false }
    }

    /// The daemon has started.
    pub(super) fn ready(&mut self, counters: &[Counted]) {
        self.send("READY=1");
        self.status(counters);
    }

    /// The configuration is read again, until [`reloaded`](Manager::reloaded).
    pub(super) fn reloading(&mut self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// A reload has ended; `refused` says why it changed nothing.
    pub(super) fn reloaded(&mut self, refused: Option<String>, counters: &[Counted]) {
        (self.refused, self.sent) = (refused, None);
        self.ready(counters);
    }

    /// Sends the line of status if it has changed and the last one is old enough.
    pub(super) fn status(&mut self, counters: &[Counted]) {
        if self.sent.as_ref().is_some_and(|(_, since)| since.elapsed() < STATUS) {
            return;
        }
        let line = line(counters, self.refused.as_deref());
        if self.sent.as_ref().is_none_or(|(sent, _)| *sent != line) {
            // A line that was not sent is out of date.
            self.unsent.retain(|text| !text.starts_with(STATUS_IS));
            self.send(&format!("{STATUS_IS}{line}"));
            self.sent = Some((line, Instant::now()));
        }
    }

    /// The daemon ends.
    pub(super) fn stopping(&mut self) {
        self.send("STOPPING=1");
    }

    fn send(&mut self, text: &str) {
        self.unsent.push_back(text.to_string());
        self.send_again();
    }

    /// Sends what its socket had no room for so far. Waits for nobody: what still has none is for
    /// the next call.
    pub(super) fn send_again(&mut self) {
        while let Some(text) = self.unsent.front() {
            match self.socket.as_ref().map_or(Ok(()), |socket| send_to(socket, text)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if !self.lost => {
                    self.lost = true;
                    let socket = self.socket.as_deref().unwrap_or_default().to_string_lossy();
                    let sentence = "so the service manager does not hear that the daemon runs; without one, unset it";
                    tracing::warn!("NOTIFY_SOCKET={} cannot be reached ({error}), {sentence}", foreign(&socket));
                }
                Err(error) => tracing::debug!("a message to the service manager is lost: {error}"),
                Ok(()) => {}
            }
            self.unsent.pop_front();
        }
    }
}

/// The line of `systemctl status`.
fn line(counters: &[Counted], refused: Option<&str>) -> String {
    let sum = |of: fn(&Counters) -> u64| counters.iter().map(|(_, counters)| of(counters)).sum::<u64>();
    let (watched, promoted) = (sum(|counters| counters.watched), sum(|counters| counters.promoted_regions));
    let line = format!("watching {watched} processes, promoted {promoted} regions");
    // A line feed would end the status.
    let refused = refused.map(|error| format!("; the configuration stays as it was: {}", error.replace('\n', " ")));
    line + &refused.unwrap_or_default()
}

/// Sends to a path, or to a name of the abstract namespace after an `@`. Waits for nobody who does
/// not read.
fn send_to(socket: &OsStr, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let from = UnixDatagram::unbound()?;
    from.set_nonblocking(true)?;
    from.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_socket_has_no_room_for_is_sent_later_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_nonblocking(true).unwrap();
        while send_to(path.as_os_str(), "full").is_ok() {}
        let of = |watched| vec![(None, Counters { watched, ..Counters::default() })];
        let mut manager = Manager::at(Some(path.into()));
        manager.ready(&of(1));
        manager.reloading();
        manager.reloaded(None, &of(2));
        let heard = || {
            let mut bytes = [0; 4096];
            let length = reader.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        while heard().is_some_and(|text| text == "full") {}
        manager.send_again();
        let heard: Vec<String> = std::iter::from_fn(heard).collect();
        let begins: Vec<&str> = heard.iter().map(|text| text.split('\n').next().unwrap()).collect();
        assert_eq!(begins, ["READY=1", "RELOADING=1", "READY=1", "STATUS=watching 2 processes, promoted 0 regions"]);
        assert!(manager.unsent.is_empty());
    }

    #[test]
    fn the_status_is_one_line() {
        let of = |watched, promoted_regions| (None, Counters { watched, promoted_regions, ..Counters::default() });
        assert_eq!(line(&[of(3, 40), of(1, 2)], None), "watching 4 processes, promoted 42 regions");
        let refused = line(&[], Some("a.toml:1: no\nsuch key"));
        assert!(refused.ends_with("stays as it was: a.toml:1: no such key"), "{refused}");
    }
}
