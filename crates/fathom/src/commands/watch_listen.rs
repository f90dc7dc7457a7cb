//! `fathom watch --listen`: what is seen, for a scraper of metrics (Prometheus), on this machine's loopback or a unix socket.
//!
//! The text is made when somebody asks: who watches answers between two looks at the events, so nothing is shared and
//! nothing costs anything while nobody asks.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use anyhow::anyhow;
use fathom_report::label_text;
use fathom_telemetry::histogram::{SparseHistogram, lower_bound, width};
use fathom_telemetry::say;

use crate::exit::{Failure, refused};

/// For a request to come, and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// A request's head is shorter.
const HEAD: usize = 8 << 10;
/// Upper bounds of the buckets of latency: a microsecond, and twice as long each, to 16 s.
const BUCKETS: u32 = 25;

/// Somebody who waits for the text in one of two forms.
struct Asked {
    open_metrics: bool,
    answer: SyncSender<String>,
}

/// Where scrapers ask.
pub(crate) struct Listener {
    asked: Receiver<Asked>,
    /// A socket's file and which one it is; removed at the end.
    socket: Option<(PathBuf, u64)>,
    labels: String,
}

/// What was seen so far.
pub(crate) struct Seen {
    /// I/Os by operation: read, write, trim, sync.
    pub(crate) ios: [u64; 4],
    /// Bytes by operation.
    pub(crate) bytes: [u64; 4],
    /// Outstanding now.
    pub(crate) outstanding: u64,
    /// From queue to completion, ns; `None` where single I/Os are not seen.
    pub(crate) latency: Option<SparseHistogram>,
    /// Events that the kernel dropped.
    pub(crate) lost: u64,
}

/// A stream of either kind.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Listener {
    /// Listens at `PORT`, `localhost:PORT`, `127.0.0.1:PORT`, `[::1]:PORT`, or a unix socket (a path with a `/`).
    pub(crate) fn begin(address: &str, watched: &str) -> Result<Self, Failure> {
        let (tell, asked) = channel();
        let no = |e: io::Error| refused(anyhow!("--listen {address}: {e}"));
        let mut socket = None;
        if address.contains('/') {
            let path = Path::new(address);
            let listener = UnixListener::bind(path).map_err(|e| match e.kind() {
                io::ErrorKind::AddrInUse => refused(anyhow!(
                    "--listen {address}: something has that name already; remove it, or choose another"
                )),
                _ => no(e),
            })?;
            socket = Some((path.to_owned(), path.symlink_metadata().map_err(no)?.ino()));
            serve(tell, move || {
                let stream = listener.accept()?.0;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            })
            .map_err(no)?;
            say!("Metrics: curl --unix-socket {address} http://localhost/metrics");
        } else {
            let listener = TcpListener::bind(loopback(address)?).map_err(no)?;
            let at = listener.local_addr().map_err(no)?;
            serve(tell, move || {
                let stream = listener.accept()?.0;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            })
            .map_err(no)?;
            say!("Metrics: http://{at}/metrics");
        }
        Ok(Self {
            asked,
            socket,
            labels: format!("watched=\"{}\"", label_text(watched)),
        })
    }

    /// Answers who waits, by what is seen now.
    pub(crate) fn answer(&self, seen: &mut dyn FnMut() -> Seen) {
        while let Ok(asked) = self.asked.try_recv() {
            let text = text(&seen(), &self.labels, asked.open_metrics);
            // Who has gone away needs no answer.
            let _ = asked.answer.try_send(text);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some((path, inode)) = &self.socket else {
            return;
        };
        // What took the name since is somebody else's.
        let own = path
            .symlink_metadata()
            .is_ok_and(|m| m.file_type().is_socket() && m.ino() == *inode);
        if own {
            let _ = fs::remove_file(path);
        }
    }
}

/// An address of this machine alone: what a system does is nobody else's business.
fn loopback(address: &str) -> Result<SocketAddr, Failure> {
    let bad = |why: &str| {
        refused(anyhow!(
            "--listen {address}: {why}; expected a port, localhost:9090, [::1]:9090, or the path of a unix socket"
        ))
    };
    let full = match address.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => address.to_owned(),
    };
    let mut all = full.to_socket_addrs().map_err(|e| bad(&e.to_string()))?;
    let at = all.next().ok_or_else(|| bad("it has no address"))?;
    match at.ip().is_loopback() {
        true => Ok(at),
        false => Err(bad("other machines could read what this one does")),
    }
}

/// One request after another, in a thread of its own; it ends with the process.
fn serve(
    tell: Sender<Asked>,
    mut accept: impl FnMut() -> io::Result<Box<dyn Stream>> + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        loop {
            let Ok(mut stream) = accept() else {
                // Out of descriptors, or a connection that was given up: others come.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            // Who does not listen to the end is nobody's fault.
            let _ = one(&mut *stream, &tell);
        }
    };
    std::thread::Builder::new().spawn(work).map(drop)
}

fn one(stream: &mut dyn Stream, tell: &Sender<Asked>) -> io::Result<()> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            n if head.len() + n <= HEAD => head.extend_from_slice(&part[..n]),
            _ => return reply(stream, "431 Request Header Fields Too Large", PLAIN, ""),
        }
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if method != "get" {
        return reply(stream, "405 Method Not Allowed", PLAIN, "expected GET\n");
    }
    if !matches!(path.split('?').next(), Some("/metrics" | "/")) {
        return reply(stream, "404 Not Found", PLAIN, "expected /metrics\n");
    }
    let open_metrics = (head.lines())
        .any(|l| l.starts_with("accept:") && l.contains("application/openmetrics-text"));
    let (answer, text) = sync_channel(1);
    let asked = Asked {
        open_metrics,
        answer,
    };
    let text = match tell.send(asked) {
        Ok(()) => text.recv_timeout(PATIENCE).ok(),
        Err(_) => None,
    };
    match text {
        Some(text) => {
            let kind = if open_metrics { OPEN_METRICS } else { PLAIN };
            reply(stream, "200 OK", kind, &text)
        }
        None => reply(stream, "503 Service Unavailable", PLAIN, "it has ended\n"),
    }
}

const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn reply(stream: &mut dyn Stream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()
}

/// OpenMetrics, or Prometheus' own text, in which a counter's family has the name of its sample.
fn text(seen: &Seen, labels: &str, open_metrics: bool) -> String {
    let mut out = String::new();
    let mut counter = |name: &str, help: &str, by: &[(&str, u64)]| {
        let family = match open_metrics {
            true => name.to_owned(),
            false => format!("{name}_total"),
        };
        let _ = writeln!(out, "# HELP {family} {help}\n# TYPE {family} counter");
        for (op, n) in by {
            let op = match op.is_empty() {
                true => String::new(),
                false => format!(",op=\"{op}\""),
            };
            let _ = writeln!(out, "{name}_total{{{labels}{op}}} {n}");
        }
    };
    let by = |n: [u64; 4]| {
        [
            ("read", n[0]),
            ("write", n[1]),
            ("trim", n[2]),
            ("sync", n[3]),
        ]
    };
    counter("fathom_watch_ios", "I/Os that were queued.", &by(seen.ios));
    counter("fathom_watch_bytes", "Bytes of them.", &by(seen.bytes)[..3]);
    counter(
        "fathom_watch_lost_events",
        "Events that the kernel dropped: other numbers are too low.",
        &[("", seen.lost)],
    );
    let _ = writeln!(
        out,
        "# HELP fathom_watch_outstanding I/Os outstanding now.\n# TYPE fathom_watch_outstanding gauge\nfathom_watch_outstanding{{{labels}}} {}",
        seen.outstanding
    );
    if let Some(latency) = &seen.latency {
        let name = "fathom_watch_latency_seconds";
        let _ = writeln!(
            out,
            "# HELP {name} From queue to completion.\n# TYPE {name} histogram"
        );
        let (mut below, mut buckets) = (0, latency.buckets.iter().peekable());
        for k in 0..BUCKETS {
            let bound = 1000u64 << k;
            // A bucket of ours that reaches over the bound counts with the next one.
            while let Some((b, n)) = buckets.peek() {
                let b = *b as usize;
                if lower_bound(b) + width(b) > bound + 1 {
                    break;
                }
                below += n;
                buckets.next();
            }
            let _ = writeln!(
                out,
                "{name}_bucket{{{labels},le=\"{}\"}} {below}",
                bound as f64 / 1e9
            );
        }
        let m = &latency.moments;
        let sum = m.mean().unwrap_or(0.0) * m.count as f64 / 1e9;
        let _ = writeln!(
            out,
            "{name}_bucket{{{labels},le=\"+Inf\"}} {n}\n{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {n}",
            n = m.count
        );
    }
    if open_metrics {
        out.push_str("# EOF\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::Histogram;

    #[test]
    fn both_forms_count_the_same_and_buckets_add_up() {
        let mut h = Histogram::new();
        for ns in [900, 1_500, 90_000, 90_000, 20_000_000_000] {
            h.record(ns);
        }
        let seen = Seen {
            ios: [5, 2, 0, 1],
            bytes: [20_480, 8_192, 0, 0],
            outstanding: 3,
            latency: Some(h.to_sparse()),
            lost: 0,
        };
        let plain = text(&seen, "watched=\"vda\"", false);
        for line in [
            "# TYPE fathom_watch_ios_total counter",
            "fathom_watch_ios_total{watched=\"vda\",op=\"read\"} 5",
            "fathom_watch_latency_seconds_bucket{watched=\"vda\",le=\"0.000001\"} 1",
            "fathom_watch_latency_seconds_bucket{watched=\"vda\",le=\"0.000128\"} 4",
            "fathom_watch_latency_seconds_bucket{watched=\"vda\",le=\"16.777216\"} 4",
            "fathom_watch_latency_seconds_bucket{watched=\"vda\",le=\"+Inf\"} 5",
            "fathom_watch_latency_seconds_count{watched=\"vda\"} 5",
        ] {
            assert!(plain.lines().any(|l| l == line), "{line}: {plain}");
        }
        let dashboard = include_str!("../../../../packaging/grafana-dashboard.json");
        let drawn = dashboard
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|w| w.starts_with("fathom_watch_"));
        for name in drawn {
            assert!(plain.contains(&format!("\n{name}{{watched=")), "{name}");
        }
        let open = text(&seen, "watched=\"vda\"", true);
        assert!(open.contains("# TYPE fathom_watch_ios counter") && open.ends_with("# EOF\n"));
        assert!(!plain.contains("# EOF"));
    }

    #[test]
    fn only_this_machine_may_ask() {
        assert!(loopback("0").is_ok() && loopback("localhost:0").is_ok());
        for other in ["0.0.0.0:9090", "[::]:9090", "192.0.2.1:9090"] {
            assert!(loopback(other).is_err(), "{other}");
        }
    }
}
