//! The connection to a server: a unix socket whose reads wait for bytes and for nothing else.
//!
//! A thread that blocks in a read of such a socket is also woken when the server takes what was sent (the wait queue is
//! that of free room, too: `unix_write_space`, net/unix/af_unix.c): once more for each statement. Who waits in poll for
//! bytes sleeps on, as the clients of MariaDB do.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Result, SqlError};

/// A connected socket and how long an answer may take.
pub(super) struct Socket {
    stream: UnixStream,
    patience: Timespec,
}

impl Socket {
    /// Connects; who does not answer within `patience` is lost.
    pub(super) fn connect(path: &Path, patience: Duration) -> Result<Self> {
        let stream = UnixStream::connect(path).map_err(|e| SqlError::lost(&e))?;
        let mut me = Self {
            stream,
            patience: Timespec::default(),
        };
        me.wait_for(patience);
        Ok(me)
    }

    /// From now on it waits so long for an answer.
    pub(super) fn wait_for(&mut self, patience: Duration) {
        self.patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
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
        let mut waited = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut waited, Some(&self.patience))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
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
        let mut client = Socket::connect(&path, Duration::from_secs(60)).unwrap();
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
