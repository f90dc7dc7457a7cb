//! The connection to a server: a unix socket or TCP, with TLS where that was agreed on, whose reads wait for bytes and for
//! nothing else.
//!
//! A thread that blocks in a read of a unix socket is also woken when the server takes what was sent (the wait queue is
//! that of free room, too: `unix_write_space`, net/unix/af_unix.c): once more for each statement. Who waits in poll for
//! bytes sleeps on, as the clients of MariaDB do.

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::tls::Channel;
use super::{Result, SqlError};
use crate::db::server::{Place, Server};

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Channel, TcpStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(s) => s.as_fd(),
            Self::Tcp(s) | Self::Tls(_, s) => s.as_fd(),
        }
    }
}

/// A connected socket and how long an answer may take.
pub(super) struct Socket {
    stream: Stream,
    patience: Timespec,
}

fn timespec(patience: Duration) -> Timespec {
    Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: patience.subsec_nanos().into(),
    }
}

/// Waits for bytes.
fn wait(stream: impl AsFd, patience: &Timespec) -> io::Result<()> {
    let mut waited = [PollFd::new(&stream, PollFlags::IN)];
    match poll(&mut waited, Some(patience))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

impl Socket {
    /// Connects; who does not answer within `patience` is lost.
    pub(super) fn connect(place: &Place, patience: Duration) -> Result<Self> {
        let stream = match place {
            Place::Socket(path) => Self::unix(path).map_err(|e| SqlError::lost(&e)),
            Place::Host(host, port) => Self::tcp(host, *port, patience).map_err(|e| {
                SqlError::here(format!(
                    "{host}, port {port}: nobody can be reached there: {e}; is the server running, and open to this machine?"
                ))
            }),
        };
        Ok(Self {
            stream: stream?,
            patience: timespec(patience),
        })
    }

    fn unix(path: &Path) -> io::Result<Stream> {
        UnixStream::connect(path).map(Stream::Unix)
    }

    fn tcp(host: &str, port: u16, patience: Duration) -> io::Result<Stream> {
        let mut last = io::Error::other("the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    // A statement is one message: it waits for no more.
                    stream.set_nodelay(true)?;
                    stream.set_write_timeout(Some(Duration::from_secs(120)))?;
                    return Ok(Stream::Tcp(stream));
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// From now on it waits so long for an answer.
    pub(super) fn wait_for(&mut self, patience: Duration) {
        self.patience = timespec(patience);
    }

    /// Agrees on TLS with a server that is ready for it.
    pub(super) fn secure(&mut self, server: &Server) -> Result<()> {
        let (Stream::Tcp(socket), Some(asked)) = (&self.stream, server.asked()) else {
            return Err(SqlError::protocol("TLS on a unix socket"));
        };
        let socket = socket.try_clone().map_err(|e| SqlError::lost(&e))?;
        let patience = self.patience;
        let channel = Channel::open(&asked, &socket, &mut || wait(&socket, &patience))?;
        self.stream = Stream::Tls(channel, socket);
        Ok(())
    }

    /// Whether nobody in between can read along: a password may go over it as it is.
    pub(super) fn is_private(&self) -> bool {
        !matches!(self.stream, Stream::Tcp(_))
    }

    /// What binds an exchange to this TLS channel (RFC 5929).
    pub(super) fn binding(&self) -> Option<Vec<u8>> {
        match &self.stream {
            Stream::Tls(channel, _) => channel.binding(),
            _ => None,
        }
    }
}

/// Messages of this length are read at once: memory for a longer one is taken as its bytes come, since who says so need be
/// no server.
const AT_ONCE: usize = 1 << 20;

/// Reads a message of so many bytes.
pub(super) fn message(
    stream: &mut BufReader<Socket>,
    bytes: usize,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    if bytes <= AT_ONCE {
        into.resize(bytes, 0);
        return stream.read_exact(into);
    }
    into.clear();
    match stream.take(bytes as u64).read_to_end(into)? {
        n if n == bytes => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Stream::Tls(channel, socket) = &mut self.stream {
            let patience = &self.patience;
            return channel.read(socket, buffer, &mut || wait(&*socket, patience));
        }
        wait(&self.stream, &self.patience)?;
        match &mut self.stream {
            Stream::Unix(s) => s.read(buffer),
            Stream::Tcp(s) | Stream::Tls(_, s) => s.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Unix(s) => s.write(bytes),
            Stream::Tcp(s) => s.write(bytes),
            Stream::Tls(channel, s) => channel.write(s, bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_answer_is_read_and_who_gives_none_is_not_waited_for_longer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let server = UnixListener::bind(&path).unwrap();
        let mut client = Socket::connect(&Place::Socket(path), Duration::from_secs(60)).unwrap();
        let (mut theirs, _) = server.accept().unwrap();
        theirs.write_all(b"hello").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(client.read(&mut buffer).unwrap(), 5);
        client.write_all(b"well").unwrap();
        assert_eq!(theirs.read(&mut buffer).unwrap(), 4);
        client.wait_for(Duration::from_millis(1));
        let silent = client.read(&mut buffer).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
        assert_eq!(
            client.read(&mut buffer).unwrap(),
            0,
            "the other end is gone"
        );
    }
}
