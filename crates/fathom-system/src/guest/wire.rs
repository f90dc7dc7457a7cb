//! How host and guest speak: a line of JSON per message, bytes behind it where the line says so.
//!
//! The same messages go over a virtio port, over ssh, and over a pipe in tests.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};

use fathom_io::Wanted;
use fathom_io::driver::ClosedWindow;
use fathom_io::files::{Phase, Seen, Steps};
use fathom_io::replay::{Fidelity, Playing};
use fathom_telemetry::codec;
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::window::DirectionWindow;
use fathom_telemetry::{Nanos, SparseHistogram, Window};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Raised when a message changes its meaning: host and guest run the same binary, over ssh perhaps not.
pub const VERSION: u32 = 5;
/// How often an agent that was asked something says that it lives, whatever it does meanwhile.
pub const PULSE: Nanos = Nanos::from_secs(5);
/// The same while it does something and has a lease.
pub const PULSE_LEASED: Nanos = Nanos::from_millis(500);
/// Longer lines and larger data are taken for damage.
const LINE_MAX: u64 = 16 << 20;
const RAW_MAX: u64 = 1 << 30;

/// What the host asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// Who are you?
    Hello,
    /// What time is it there?
    Clock,
    /// Runs a program and waits for it; `fathom` is the agent's own binary.
    Exec {
        /// Program and arguments.
        argv: Vec<String>,
        /// Where.
        dir: String,
    },
    /// Makes a file of the bytes that follow.
    Put {
        /// Its path.
        path: String,
        /// Permissions.
        mode: u32,
    },
    /// Sends a file, or every file of a directory.
    Fetch {
        /// Its path.
        path: String,
    },
    /// Opens a target under the safety rules.
    Open {
        /// As typed.
        target: String,
        /// What jobs want from it.
        wanted: Box<Wanted>,
        /// The mark of the scratch file that another host has made there and that all use.
        joins: Option<String>,
    },
    /// Which of these names are there, beside the open target?
    Sees {
        /// Names without a directory.
        names: Vec<String>,
    },
    /// Makes a directory for files beside the open target, or joins the one that another host has made there.
    Place {
        /// Its name, and its mark.
        joins: Option<(String, String)>,
    },
    /// Does steps with files there; what comes after [`Ask::Begin`] waits for it.
    Steps {
        /// They.
        steps: Steps,
    },
    /// Fills a scratch file.
    Prepare,
    /// Keeps the bytes that follow as a trace, in memory: nothing of it is left when the agent ends.
    Trace {
        /// Whether they follow what came before.
        goes_on: bool,
    },
    /// Sets a lab's load up on the open target; it waits for [`Ask::Begin`].
    Load {
        /// The lab.
        lab: String,
        /// What to do, in its words.
        asked: Value,
    },
    /// Sets jobs up that run at the same time on the open target; they wait for [`Ask::Begin`].
    Run {
        /// They.
        jobs: Vec<AskedJob>,
    },
    /// Sends the I/Os of the group that ran last, where its jobs recorded them, in pieces of a file.
    Rows,
    /// To [`Answer::Ready`]: when the first I/O is due.
    Begin {
        /// On the agent's clock, ns.
        at: u64,
    },
    /// An agent that hears nothing for so long ends its load, cleans up and leaves; it says at least every half second
    /// that it lives while it does something.
    Lease {
        /// ns.
        limit: u64,
    },
    /// Somebody listens.
    Alive,
    /// Ends a group early.
    Stop,
    /// Closes the target.
    Close,
    /// Ends the agent; a guest powers off.
    Off,
}

/// A job as it is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedJob {
    /// Options by name, as in `run.json`.
    pub spec: Value,
    /// Experiment that planned it.
    pub experiment: String,
    /// Which repeat.
    pub repeat: u32,
    /// The trace that it plays, which came by [`Ask::Trace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub playing: Option<Playing>,
    /// What it does with files in the directory of [`Ask::Place`], instead of I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Phase>,
}

/// What the guest answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Ask::Hello`].
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Its name there.
        #[serde(default)]
        host: String,
        /// Version of its fathom; older ones do not say.
        #[serde(default)]
        fathom: String,
        /// Release of the kernel.
        kernel: String,
        /// Clock source of the kernel.
        clock: String,
        /// Processors.
        cpus: u32,
        /// Block devices.
        disks: Vec<String>,
    },
    /// To [`Ask::Clock`].
    Clock {
        /// ns.
        now: u64,
    },
    /// Every [`PULSE`], between other answers: its kernel and its processors still run.
    Alive,
    /// Done; nothing to say.
    Done,
    /// To [`Ask::Sees`], in the order of the names.
    Sees {
        /// Whether it is there.
        seen: Vec<bool>,
    },
    /// To [`Ask::Place`].
    Placed {
        /// Name of the directory.
        name: String,
        /// Its mark.
        mark: String,
    },
    /// To [`Ask::Run`], [`Ask::Load`] and [`Ask::Steps`]: all is set up.
    Ready,
    /// It could not be done.
    Failed {
        /// Why.
        message: String,
        /// Whether input or safety rules are the cause.
        refused: bool,
    },
    /// To [`Ask::Exec`].
    Output {
        /// Exit status; `None` where a signal ended it.
        status: Option<i32>,
        /// Standard output.
        out: String,
        /// Standard error.
        err: String,
    },
    /// One of the files of [`Ask::Fetch`]; its bytes follow.
    File {
        /// Below what was asked for; empty for a single file.
        path: String,
    },
    /// To [`Ask::Open`].
    Opened {
        /// Bytes.
        size: u64,
        /// Alignment of direct I/O.
        align: u32,
        /// What it is.
        about: Box<schema::Target>,
        /// Bytes that [`Ask::Prepare`] writes.
        fills: u64,
        /// The mark of a file that fathom made.
        mark: Option<String>,
        /// Whether a model answers.
        simulated: bool,
        /// File system and its options.
        place: String,
    },
    /// A closed window of a running job; its histograms follow.
    Window {
        /// Index of the job in the group.
        job: usize,
        /// Its start after the measured part began, ns.
        start: i64,
        /// When that was on the agent's clock, ns.
        #[serde(default)]
        origin: u64,
        /// ns.
        width: u64,
        /// Number since the origin.
        index: u64,
        /// By operation.
        directions: Box<[Option<Counts>; 4]>,
    },
    /// A running group's progress.
    Progress {
        /// ns since its start.
        elapsed: u64,
        /// Completed.
        ios: u64,
        /// Transferred.
        bytes: u64,
    },
    /// To [`Ask::Run`], [`Ask::Load`], [`Ask::Steps`] and [`Ask::Prepare`].
    Ran(Ran),
    /// To [`Ask::Rows`]: its bytes follow.
    Piece,
    /// After the last [`Answer::Piece`]: what is missing from the file.
    Rows {
        /// I/Os by index of the job in the group.
        lost: BTreeMap<u16, u64>,
        /// Why it ends early.
        error: Option<String>,
    },
}

/// What a part of a group came to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ran {
    /// Measures, in the order of the jobs.
    pub jobs: Vec<Job>,
    /// When the first I/O was due on the agent's clock, ns.
    pub began: u64,
    /// What came of steps, or of a job with files, on the agent's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Seen>,
    /// How well the jobs that played a trace kept its times, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub played: Vec<Fidelity>,
    /// What the lab of [`Ask::Load`] says beside its job.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub said: Value,
}

/// One direction of a window: numbers, and how many bytes each of its three histograms takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    ios: u64,
    bytes: u64,
    errors: u64,
    short: u64,
    lengths: [usize; 3],
}

impl Answer {
    /// A window and the bytes of its histograms.
    pub fn window(w: &ClosedWindow<'_>) -> (Self, Vec<u8>) {
        let window = w.window;
        let mut raw = Vec::new();
        let directions = std::array::from_fn(|i| {
            window.directions[i].as_ref().map(|d| Counts {
                ios: d.ios,
                bytes: d.bytes,
                errors: d.errors,
                short: d.short,
                lengths: [&d.submit, &d.service, &d.response].map(|h| {
                    let before = raw.len();
                    codec::encode(h, &mut raw);
                    raw.len() - before
                }),
            })
        });
        let answer = Self::Window {
            job: w.job,
            start: w.start_ns,
            origin: w.origin.0,
            width: w.width.0,
            index: window.index,
            directions: Box::new(directions),
        };
        (answer, raw)
    }
}

/// The window of an [`Answer::Window`] and its bytes.
///
/// # Errors
/// Where the bytes are not what the numbers say.
pub fn window(index: u64, directions: &[Option<Counts>; 4], raw: &[u8]) -> io::Result<Window> {
    let mut rest = raw;
    let mut next = |length: usize| -> io::Result<SparseHistogram> {
        let (one, more) = rest.split_at_checked(length).ok_or_else(damaged)?;
        rest = more;
        codec::decode(one).map_err(io::Error::other)
    };
    let mut window = Window {
        index,
        ..Window::default()
    };
    for (place, counts) in window.directions.iter_mut().zip(directions) {
        let Some(c) = counts else { continue };
        *place = Some(Box::new(DirectionWindow {
            ios: c.ios,
            bytes: c.bytes,
            errors: c.errors,
            short: c.short,
            submit: next(c.lengths[0])?,
            service: next(c.lengths[1])?,
            response: next(c.lengths[2])?,
        }));
    }
    Ok(window)
}

fn damaged() -> io::Error {
    io::Error::other("what came from the other side is damaged")
}

/// A message's line.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    #[serde(flatten)]
    message: T,
    #[serde(default, skip_serializing_if = "is_zero")]
    raw: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Writes a message and the bytes that belong to it.
///
/// # Errors
/// Where the other side is gone.
pub fn send<T: Serialize>(out: &mut impl Write, message: &T, raw: &[u8]) -> io::Result<()> {
    let line = Line {
        message,
        raw: raw.len() as u64,
    };
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(raw);
    out.write_all(&bytes)?;
    out.flush()
}

/// Reads messages.
pub struct Reader<R>(BufReader<R>);

impl<R: Read> Reader<R> {
    /// From the other side.
    pub fn new(from: R) -> Self {
        Self(BufReader::with_capacity(1 << 16, from))
    }

    /// The next message with its bytes; `None` at the end.
    ///
    /// # Errors
    /// Where the other side is gone, or sends what is no message.
    pub fn message<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<u8>)>> {
        let mut text = Vec::new();
        (&mut self.0).take(LINE_MAX).read_until(b'\n', &mut text)?;
        if text.is_empty() {
            return Ok(None);
        }
        let line: Line<T> = serde_json::from_slice(&text).map_err(|e| {
            let shown: String = String::from_utf8_lossy(&text).chars().take(80).collect();
            io::Error::other(format!(
                "no message of fathom came from the other side ({e}): {shown}"
            ))
        })?;
        if line.raw > RAW_MAX {
            return Err(damaged());
        }
        let mut raw = vec![0; line.raw as usize];
        self.0.read_exact(&mut raw)?;
        Ok(Some((line.message, raw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back<T: Serialize + DeserializeOwned>(message: &T, raw: &[u8]) -> (T, Vec<u8>) {
        let mut bytes = Vec::new();
        send(&mut bytes, message, raw).unwrap();
        Reader::new(&bytes[..]).message().unwrap().unwrap()
    }

    #[test]
    fn messages_and_their_bytes_come_back_as_they_were_sent() {
        let ask = Ask::Run {
            jobs: vec![AskedJob {
                spec: serde_json::json!({"rw": "randread", "qd": 4}),
                experiment: "vm".into(),
                repeat: 2,
                playing: None,
                files: None,
            }],
        };
        assert_eq!(back(&ask, b""), (ask.clone(), Vec::new()));
        let put = Ask::Put {
            path: "/tmp/x".into(),
            mode: 0o600,
        };
        assert_eq!(
            back(&put, b"with\nlines"),
            (put.clone(), b"with\nlines".to_vec())
        );
    }

    #[test]
    fn windows_keep_every_bucket() {
        let mut h = fathom_telemetry::Histogram::new();
        (1..1000u64).for_each(|v| h.record(v * v));
        let direction = DirectionWindow {
            ios: 999,
            bytes: 999 * 4096,
            errors: 1,
            short: 2,
            submit: h.to_sparse(),
            service: SparseHistogram::default(),
            response: h.to_sparse(),
        };
        let w = Window {
            index: 5,
            directions: [None, Some(Box::new(direction)), None, None],
        };
        let (answer, raw) = Answer::window(&ClosedWindow {
            job: 0,
            start_ns: -100,
            origin: Nanos(7),
            width: Nanos(1),
            window: &w,
        });
        let (came, raw) = back(&answer, &raw);
        let Answer::Window {
            index, directions, ..
        } = came
        else {
            panic!("{came:?}")
        };
        assert_eq!(window(index, &directions, &raw).unwrap(), w);
        assert!(
            window(index, &directions, &raw[1..]).is_err(),
            "damage is seen"
        );
    }

    #[test]
    fn what_is_no_message_is_an_error_with_its_beginning() {
        let mut r = Reader::new(&b"login: \n"[..]);
        let e = r.message::<Ask>().unwrap_err().to_string();
        assert!(e.contains("login:"), "{e}");
        assert!(Reader::new(&b""[..]).message::<Ask>().unwrap().is_none());
    }
}
