//! `ioengine=net` and `netsplice`: bytes through a socket, to and from fio or fathom at the other end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fathom_io::load::{Performer, PilotIo};
use fathom_telemetry::Op;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags,
    SocketType,
};

use super::Surroundings;
use crate::FioError;
use crate::section::Section;

/// How often a wait looks whether the job shall end.
const LOOK: Duration = Duration::from_millis(100);

/// What fio's sockets begin and end with ("link", then what).
const MAGIC: u32 = 0x6c69_6e6b;
const OPEN: u32 = 0x98;
const CLOSE: u32 = 0x89;
/// Begins the last 24 bytes of each datagram: then its number, then its size.
const SEQUENCE: u64 = 0x6573_7571_6e55_6563;

/// "Operation canceled": the other end closed, or the job shall end. No error of the job.
pub(crate) const OVER: i32 = 125;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
    Unix,
}

/// Whether it reads, and whether it writes.
fn directions(s: &Section) -> Result<(bool, bool), FioError> {
    let rw = s.get("rw").unwrap_or("read");
    match rw.split(':').next() {
        Some("read") => Ok((true, false)),
        Some("write") => Ok((false, true)),
        Some("rw" | "readwrite") => Ok((true, true)),
        _ => Err(s.invalid(
            "rw",
            "network I/O is read, write or readwrite: nothing random, no trims",
        )),
    }
}

/// The protocol, and whether it is one of IPv6.
fn protocol(s: &Section) -> Result<(Protocol, bool), FioError> {
    Ok(match s.get("protocol").unwrap_or("tcp") {
        "udp" => (Protocol::Udp, false),
        "udpv6" => (Protocol::Udp, true),
        "tcpv6" => (Protocol::Tcp, true),
        "unix" => (Protocol::Unix, false),
        "vsock" => {
            return Err(FioError::unsupported(
                &s.name,
                "protocol=vsock",
                "choose tcp, udp or unix",
            ));
        }
        _ => (Protocol::Tcp, false),
    })
}

fn check_port(s: &Section, protocol: Protocol, port: u64) -> Result<(), FioError> {
    match protocol {
        Protocol::Unix if port > 0 => {
            Err(s.invalid("port", "a unix socket has none: leave it out"))
        }
        Protocol::Tcp | Protocol::Udp if port == 0 => {
            Err(s.invalid("port", "tcp and udp need one, such as port=8888"))
        }
        _ => Ok(()),
    }
}

/// A job's socket, as its section describes it.
#[derive(Debug)]
pub(crate) struct Net {
    protocol: Protocol,
    six: bool,
    listen: bool,
    host: Option<String>,
    port: u16,
    nodelay: bool,
    pingpong: bool,
    window: usize,
    /// Most bytes of a segment; 0 leaves it to the kernel.
    mss: u32,
    interface: Option<Ipv4Addr>,
    ttl: u32,
    /// The socket that waits for others, from before any job begins.
    waiting: Mutex<Option<OwnedFd>>,
    /// Datagrams that never came.
    dropped: AtomicU64,
}

impl Net {
    /// fio's own rules of what goes with what.
    pub(super) fn of(s: &Section, clone: u32) -> Result<Self, FioError> {
        let (reads, writes) = directions(s)?;
        let (protocol, six) = protocol(s)?;
        let host = s.get("hostname").or(s.get("filename"));
        let host = host.filter(|h| !h.is_empty()).map(str::to_owned);
        let port = s.number("port").unwrap_or(0);
        let mut listen = s.flag("listen", false);
        check_port(s, protocol, port)?;
        if protocol != Protocol::Tcp {
            if listen {
                return Err(s.invalid(
                    "listen",
                    "only tcp has it: elsewhere the job that reads waits",
                ));
            }
            if reads && writes {
                return Err(s.invalid("rw", "a job on this protocol reads or writes: choose one"));
            }
            if protocol == Protocol::Unix && host.is_none() {
                return Err(s.invalid("hostname", "a unix socket needs its path"));
            }
            listen = reads;
        }
        if !listen && host.is_none() {
            return Err(s.invalid(
                "hostname",
                "there is nobody to connect to: name a host, or set listen",
            ));
        }
        let group = host.as_deref().and_then(|h| h.parse::<Ipv4Addr>().ok());
        let multicast = group.is_some_and(|a| a.is_multicast());
        if listen && host.is_some() && protocol != Protocol::Unix && !multicast {
            return Err(s.invalid(
                "hostname",
                "a job that waits for others has none, unless it is a multicast group",
            ));
        }
        let interface = match s.text("interface").map(str::parse) {
            None => None,
            Some(Ok(address)) => Some(address),
            Some(Err(_)) => {
                return Err(s.invalid("interface", "expected the IPv4 address of an interface"));
            }
        };
        let port = u16::try_from(port + u64::from(clone))
            .map_err(|_| s.invalid("port", "expected at most 65535"))?;
        Ok(Self {
            protocol,
            six,
            listen,
            host,
            port,
            nodelay: s.flag("nodelay", false),
            pingpong: s.flag("pingpong", false),
            window: s.number("window_size").unwrap_or(0) as usize,
            mss: s.number("mss").unwrap_or(0).min(i32::MAX as u64) as u32,
            interface,
            ttl: s.number("ttl").unwrap_or(1).min(255) as u32,
            waiting: Mutex::new(None),
            dropped: AtomicU64::new(0),
        })
    }

    /// Datagrams that the other end sent and that never came.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn group(&self) -> Option<Ipv4Addr> {
        let host = self.host.as_ref()?.parse::<Ipv4Addr>().ok()?;
        (self.protocol == Protocol::Udp && host.is_multicast()).then_some(host)
    }

    fn socket(&self) -> rustix::io::Result<OwnedFd> {
        let family = match (self.protocol, self.six) {
            (Protocol::Unix, _) => AddressFamily::UNIX,
            (_, true) => AddressFamily::INET6,
            (_, false) => AddressFamily::INET,
        };
        let kind = match self.protocol {
            Protocol::Udp => SocketType::DGRAM,
            Protocol::Tcp | Protocol::Unix => SocketType::STREAM,
        };
        let fd = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        if self.mss > 0 && self.protocol == Protocol::Tcp {
            limit_segments(&fd, self.mss)?;
        }
        if self.window > 0 {
            if self.listen || self.pingpong {
                sockopt::set_socket_recv_buffer_size(&fd, self.window)?;
            }
            if !self.listen || self.pingpong {
                sockopt::set_socket_send_buffer_size(&fd, self.window)?;
            }
        }
        Ok(fd)
    }

    fn any(&self) -> IpAddr {
        if self.six {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        }
    }

    /// Begins to listen, where the job waits for others.
    pub(super) fn prepare(&self) -> Result<(), String> {
        if !self.listen {
            return Ok(());
        }
        let fd = self.bind().map_err(|e| match &self.host {
            Some(host) if self.protocol == Protocol::Unix => {
                format!("the socket {host} could not be made: {e}")
            }
            _ => format!("port {} could not be had: {e}", self.port),
        })?;
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(fd);
        Ok(())
    }

    fn bind(&self) -> rustix::io::Result<OwnedFd> {
        let fd = self.socket()?;
        if let (Protocol::Unix, Some(path)) = (self.protocol, &self.host) {
            abandon(Path::new(path), &fd);
            net::bind(&fd, &SocketAddrUnix::new(path.as_str())?)?;
        } else {
            sockopt::set_socket_reuseaddr(&fd, true)?;
            sockopt::set_socket_reuseport(&fd, true)?;
            let mut at = self.any();
            if let Some(group) = self.group() {
                let interface = self.interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
                sockopt::set_ip_add_membership(&fd, &group, &interface)?;
                at = group.into();
            }
            net::bind(&fd, &SocketAddr::new(at, self.port))?;
        }
        if self.protocol != Protocol::Udp {
            net::listen(&fd, 10)?;
        }
        Ok(fd)
    }

    /// Connects, or waits for who does.
    pub(super) fn open(
        self: &Arc<Self>,
        around: Surroundings,
    ) -> Result<Box<dyn Performer>, String> {
        let mut link = Link {
            net: self.clone(),
            left: around.bytes.unwrap_or(u64::MAX),
            around,
            fd: None,
            peer: None,
            sent: 0,
            expected: Some(0),
        };
        link.open().map_err(|e| match &self.host {
            Some(host) if !self.listen => format!("no connection to {host}: {e}"),
            _ => format!("nobody connected: {e}"),
        })?;
        Ok(Box::new(link))
    }
}

/// TCP_MAXSEG, which rustix has not.
fn limit_segments(fd: &OwnedFd, bytes: u32) -> rustix::io::Result<()> {
    let bytes = bytes as libc::c_int;
    // SAFETY: the kernel reads one int, which lives until the call returns.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            std::ptr::from_ref(&bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// A socket that nobody listens at any more gives its name back; what else has the name keeps it.
fn abandon(path: &Path, probe: &OwnedFd) {
    let socket = path
        .symlink_metadata()
        .is_ok_and(|m| m.file_type().is_socket());
    let address = SocketAddrUnix::new(path);
    if socket && address.is_ok_and(|a| net::connect(probe, &a) == Err(Errno::CONNREFUSED)) {
        let _ = std::fs::remove_file(path);
    }
}

/// A thread's connection.
struct Link {
    net: Arc<Net>,
    around: Surroundings,
    /// `None` once the other end has closed.
    fd: Option<OwnedFd>,
    peer: Option<SocketAddrAny>,
    /// Bytes to send; 0 and below ends what follows at once.
    left: u64,
    /// Datagrams sent.
    sent: u64,
    /// Number of the next datagram; `None` where the other end does not count.
    expected: Option<u64>,
}

impl Link {
    fn open(&mut self) -> Result<(), String> {
        let text = |e: Errno| e.to_string();
        let net = self.net.clone();
        let fd = if net.listen {
            let waiting = net
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let waiting = waiting.ok_or("the socket is gone")?;
            if net.protocol == Protocol::Udp {
                waiting
            } else {
                self.accept(&waiting)?
            }
        } else {
            self.connect()?
        };
        if net.nodelay && net.protocol == Protocol::Tcp {
            sockopt::set_tcp_nodelay(&fd, true).map_err(text)?;
        }
        // Waits end now and then, so that the job's end is seen.
        for way in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&fd, way, Some(LOOK)).map_err(text)?;
        }
        self.fd = Some(fd);
        if net.protocol == Protocol::Udp {
            self.greet()?;
        }
        Ok(())
    }

    fn accept(&self, waiting: &OwnedFd) -> Result<OwnedFd, String> {
        sockopt::set_socket_timeout(waiting, Timeout::Recv, Some(LOOK))
            .map_err(|e| e.to_string())?;
        loop {
            match net::accept_with(waiting, SocketFlags::CLOEXEC) {
                Ok(fd) => return Ok(fd),
                Err(Errno::AGAIN | Errno::INTR) if !self.around.ended() => {}
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    fn connect(&mut self) -> Result<OwnedFd, String> {
        let net = self.net.clone();
        let fd = net.socket().map_err(|e| e.to_string())?;
        let host = net.host.as_deref().unwrap_or_default();
        let address = match net.protocol {
            Protocol::Unix => SocketAddrUnix::new(host).map_err(|e| e.to_string())?.into(),
            Protocol::Tcp | Protocol::Udp => {
                let found = (host, net.port)
                    .to_socket_addrs()
                    .map_err(|e| e.to_string())?;
                let found: Vec<SocketAddr> = found.collect();
                let fits = found.iter().find(|a| a.is_ipv6() == net.six);
                let version = if net.six { 6 } else { 4 };
                let fits = fits.ok_or_else(|| format!("it has no address of IPv{version}"))?;
                SocketAddrAny::from(*fits)
            }
        };
        if net.protocol == Protocol::Udp {
            if net.group().is_some() {
                if let Some(interface) = &net.interface {
                    sockopt::set_ip_multicast_if(&fd, interface).map_err(|e| e.to_string())?;
                }
                sockopt::set_ip_multicast_ttl(&fd, net.ttl).map_err(|e| e.to_string())?;
            }
            self.peer = Some(address);
            return Ok(fd);
        }
        net::connect(&fd, &address).map_err(|e| e.to_string())?;
        Ok(fd)
    }

    /// The first datagram says that there is a sender.
    fn greet(&mut self) -> Result<(), String> {
        let mut word = [0; 8];
        word[..4].copy_from_slice(&MAGIC.to_be_bytes());
        word[4..].copy_from_slice(&OPEN.to_be_bytes());
        if !self.net.listen {
            return self
                .send_datagram(&word)
                .map(drop)
                .map_err(|e| e.to_string());
        }
        let mut found = [0; 8];
        match self.receive_datagram(&mut found) {
            Ok(8) if found == word => Ok(()),
            Ok(_) => Err("the first datagram is none of fio's or fathom's".into()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn fd(&self) -> rustix::io::Result<std::os::fd::BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd).ok_or(Errno::CANCELED)
    }

    /// Whether a call that came to nothing is worth another: until somebody asks for the end.
    fn again(&self, e: Errno) -> rustix::io::Result<()> {
        match e {
            Errno::AGAIN | Errno::INTR if self.around.ended() => Err(Errno::CANCELED),
            Errno::AGAIN | Errno::INTR => Ok(()),
            e => Err(e),
        }
    }

    fn send_datagram(&self, data: &[u8]) -> rustix::io::Result<usize> {
        let to = self.peer.as_ref().ok_or(Errno::DESTADDRREQ)?;
        loop {
            match net::sendto(self.fd()?, data, SendFlags::NOSIGNAL, to) {
                Ok(n) => return Ok(n),
                Err(e) => self.again(e)?,
            }
        }
    }

    fn receive_datagram(&mut self, data: &mut [u8]) -> rustix::io::Result<usize> {
        loop {
            match net::recvfrom(self.fd()?, &mut *data, RecvFlags::empty()) {
                Ok((n, _, from)) => {
                    // Who answers, answers who asked.
                    self.peer = from.or(self.peer.take());
                    return Ok(n);
                }
                Err(e) => self.again(e)?,
            }
        }
    }

    fn send(&mut self, data: &mut [u8]) -> rustix::io::Result<usize> {
        if self.net.protocol == Protocol::Udp {
            if let Some(at) = data.len().checked_sub(24).filter(|_| !self.net.pingpong) {
                let size = data.len() as u64;
                let tail = [SEQUENCE, self.sent, size];
                for (place, value) in data[at..].chunks_mut(8).zip(tail) {
                    place.copy_from_slice(&value.to_le_bytes());
                }
                self.sent += 1;
            }
            return self.send_datagram(data);
        }
        self.left = self.left.saturating_sub(data.len() as u64);
        let mut flags = SendFlags::NOSIGNAL;
        if self.left > 0 && !self.net.pingpong {
            flags |= SendFlags::MORE;
        }
        let mut done = 0;
        while done < data.len() {
            match net::send(self.fd()?, &data[done..], flags) {
                Ok(n) => done += n,
                Err(e) => self.again(e)?,
            }
        }
        Ok(done)
    }

    fn receive(&mut self, data: &mut [u8]) -> rustix::io::Result<usize> {
        if self.net.protocol == Protocol::Udp {
            let n = self.receive_datagram(data)?;
            if is_close(&data[..n]) {
                self.fd = None;
                return Err(Errno::CANCELED);
            }
            self.count(&data[..n]);
            return Ok(n);
        }
        let mut done = 0;
        while done < data.len() {
            match net::recv(self.fd()?, &mut data[done..], RecvFlags::empty()) {
                Ok((0, _)) => break,
                Ok((n, _)) => done += n,
                Err(e) => self.again(e)?,
            }
        }
        if done == data.len() {
            return Ok(done);
        }
        // The other end has closed; fio's last word is no data.
        self.fd = None;
        if done == 0 || is_close(&data[..done]) {
            return Err(Errno::CANCELED);
        }
        Ok(done)
    }

    /// Notes how many datagrams are missing before this one.
    fn count(&mut self, data: &[u8]) {
        let Some(expected) = self.expected else {
            return;
        };
        let Some(tail) = data.len().checked_sub(24).map(|at| &data[at..]) else {
            return;
        };
        let word = |i: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&tail[i * 8..(i + 1) * 8]);
            u64::from_le_bytes(bytes)
        };
        if word(0) != SEQUENCE {
            return;
        }
        if word(2) != data.len() as u64 {
            self.expected = None;
            return;
        }
        let missing = word(1).saturating_sub(expected);
        self.net.dropped.fetch_add(missing, Ordering::Relaxed);
        self.expected = Some(word(1) + 1);
    }
}

fn is_close(data: &[u8]) -> bool {
    data.len() == 8 && data[..4] == MAGIC.to_le_bytes() && data[4..] == CLOSE.to_le_bytes()
}

impl Performer for Link {
    fn perform(&mut self, io: &PilotIo, data: &mut [u8]) -> i64 {
        let answers = self.net.pingpong;
        let done = match io.op {
            Op::Read => self.receive(data).and_then(|n| {
                if answers {
                    self.send(&mut data[..n])?;
                }
                Ok(n)
            }),
            Op::Write => self.send(data).and_then(|n| {
                if answers {
                    self.receive(data)?;
                }
                Ok(n)
            }),
            Op::Sync => Ok(0),
            Op::Trim => Err(Errno::INVAL),
        };
        super::result(done)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        let mut word = [0; 8];
        word[..4].copy_from_slice(&MAGIC.to_le_bytes());
        word[4..].copy_from_slice(&CLOSE.to_le_bytes());
        // Who does not hear it sees that the connection ends.
        let _ = match (self.net.protocol, &self.peer) {
            (Protocol::Udp, Some(to)) => net::sendto(&fd, &word, SendFlags::NOSIGNAL, to).map(drop),
            (Protocol::Udp, None) => Ok(()),
            _ => net::send(&fd, &word, SendFlags::NOSIGNAL).map(drop),
        };
        if let (Protocol::Unix, true, Some(path)) =
            (self.net.protocol, self.net.listen, &self.net.host)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}
