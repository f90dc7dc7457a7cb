//! A device of a known law: a file in user space whose reads are served by so many servers, each of which takes so long. It
//! keeps its own books, which fathom does not see.

use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyEntry, ReplyOpen, Request,
};
use serde_json::Value;

use crate::common::{Place, alone, skip};

const SIZE: u64 = 64 << 20;
const NAME: &str = "device";

/// What was served, as the device saw it.
#[derive(Default)]
struct Books {
    /// From arrival to answer, ns.
    took: Vec<u64>,
    begin: Option<Instant>,
    end: Option<Instant>,
}

/// A request and when it is due, the next one first.
struct Due {
    at: Instant,
    came: Instant,
    bytes: usize,
    reply: ReplyData,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

/// The file: reads queue for the server that is free first.
struct Served {
    takes: Duration,
    free: Mutex<Vec<Instant>>,
    due: Mutex<Sender<Due>>,
}

fn attributes(directory: bool) -> FileAttr {
    FileAttr {
        ino: INodeNo(if directory { 1 } else { 2 }),
        size: if directory { 0 } else { SIZE },
        blocks: SIZE / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if directory {
            FileType::Directory
        } else {
            FileType::RegularFile
        },
        perm: 0o700,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

const VALID: Duration = Duration::from_secs(60);

impl Filesystem for Served {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> std::io::Result<()> {
        let _ = kernel.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = kernel.set_max_background(256);
        Ok(())
    }
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&VALID, &attributes(false), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &attributes(ino == INodeNo::ROOT));
    }
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }
    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let came = Instant::now();
        let mut free = self.free.lock().unwrap();
        let server = free.iter_mut().min().unwrap();
        let at = came.max(*server) + self.takes;
        *server = at;
        let due = Due {
            at,
            came,
            bytes: size as usize,
            reply,
        };
        // The end of the test ends the answers.
        let _ = self.due.lock().unwrap().send(due);
    }
}

/// Answers each request when it is due.
fn answer(due: &Receiver<Due>, books: &Mutex<Books>) {
    let zeros = vec![0; 1 << 20];
    let mut waiting: BinaryHeap<Due> = BinaryHeap::new();
    loop {
        let next = waiting.peek().map(|d| d.at);
        // The last moments are waited for awake: a sleep ends late.
        let left = next.map_or(VALID, |at| {
            at.saturating_duration_since(Instant::now())
                .saturating_sub(Duration::from_micros(150))
        });
        match due.recv_timeout(left) {
            Ok(request) => waiting.push(request),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some(request) = waiting.pop() else {
                    continue;
                };
                while Instant::now() < request.at {
                    std::hint::spin_loop();
                }
                let now = Instant::now();
                let mut books = books.lock().unwrap();
                books
                    .took
                    .push(now.duration_since(request.came).as_nanos() as u64);
                books.begin.get_or_insert(request.came);
                books.end = Some(now);
                drop(books);
                request.reply.data(&zeros[..request.bytes]);
            }
        }
    }
}

/// A mounted device.
struct Device {
    place: Place,
    books: Arc<Mutex<Books>>,
    session: Option<BackgroundSession>,
}

impl Device {
    /// `None` where this machine mounts none.
    fn of(servers: usize, takes: Duration) -> Option<Self> {
        let place = Place::new();
        let mount = place.dir.join("mount");
        std::fs::create_dir(&mount).unwrap();
        let (send, due) = channel();
        let books = Arc::new(Mutex::new(Books::default()));
        let kept = books.clone();
        std::thread::spawn(move || answer(&due, &kept));
        let file = Served {
            takes,
            free: Mutex::new(vec![Instant::now(); servers]),
            due: Mutex::new(send),
        };
        match fuser::spawn_mount(file, &mount, &Config::default()) {
            Ok(session) => Some(Self {
                place,
                books,
                session: Some(session),
            }),
            Err(e) => {
                skip(&format!("no file system in user space can be mounted: {e}"));
                None
            }
        }
    }

    /// Runs fathom on it; the run, and what the device saw of it.
    fn measured(&self, args: &[&str]) -> (Value, Books) {
        *self.books.lock().unwrap() = Books::default();
        let path = self.place.dir.join("mount").join(NAME);
        let (command, options) = args.split_first().unwrap();
        let all = [&[*command, path.to_str().unwrap()], options, &["--json"]].concat();
        let said = self.place.fathom(&all);
        assert!(said.stdout.starts_with('{'), "{}", said.stderr);
        (said.json(), std::mem::take(&mut self.books.lock().unwrap()))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Whatever still holds it for a moment: it is gone from the tree at once.
        let mount = self.place.dir.join("mount").into_os_string().into_vec();
        let mount = std::ffi::CString::new(mount).unwrap();
        // SAFETY: a string that ends with 0.
        let gone = unsafe { libc::umount2(mount.as_ptr(), libc::MNT_DETACH) };
        assert!(
            gone == 0 || std::thread::panicking(),
            "{mount:?} stays mounted"
        );
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

mod alone {
    use super::*;

    #[test]
    fn a_device_of_known_servers_is_measured_as_it_serves() {
        let _turn = alone();
        let (servers, takes) = (4, Duration::from_millis(2));
        let Some(device) = Device::of(servers, takes) else {
            return;
        };
        let line = "run --rw randread --engine preadv --time 2s --ramp 0 --threads";
        for threads in [1u32, 2, 16] {
            let words: Vec<String> = format!("{line} {threads}")
                .split(' ')
                .map(String::from)
                .collect();
            let (run, books) =
                device.measured(&words.iter().map(String::as_str).collect::<Vec<_>>());
            let job = &run["jobs"][0];
            let seen = |key: &str| job["read"]["service_ns"][key].as_f64().unwrap();
            let ios = job["read"]["ios"].as_u64().unwrap();
            // Each request is there once; what is under way at the end is served after it.
            let served = books.took.len() as u64;
            assert!(
                ios <= served && served <= ios + u64::from(threads),
                "{ios} of {served}"
            );
            // Never faster than the device was, and later by what the way there and back takes.
            let own = books.took.iter().sum::<u64>() as f64 / served as f64;
            let way = seen("mean") - own;
            println!("{threads} threads: {own:.0} ns inside, {way:.0} on the way");
            assert!(
                (0.0..0.25 * own).contains(&way),
                "{threads}: {way} ns beside {own}"
            );
            // No law is broken: servers are not more than they are, and where enough wait they are busy.
            let capacity = servers as f64 / takes.as_secs_f64();
            let rate = job["read"]["iops"].as_f64().unwrap();
            assert!(rate <= 1.01 * capacity, "{rate} of {capacity}");
            let busy = f64::from(threads).min(servers as f64) / servers as f64;
            assert!(
                rate >= 0.75 * busy * capacity,
                "{threads}: {rate} of {capacity}"
            );
            // Little's law of what the device saw.
            let taken = books
                .end
                .unwrap()
                .duration_since(books.begin.unwrap())
                .as_secs_f64();
            let inside = books.took.iter().sum::<u64>() as f64 / 1e9 / taken;
            let outside = job["qd_achieved"].as_f64().unwrap();
            assert!(inside <= outside * 1.02, "{inside} within {outside}");
            assert!(
                outside <= 1.001 * f64::from(threads),
                "{outside} of {threads}"
            );
        }
    }

    #[test]
    fn the_most_of_a_curve_is_what_the_servers_can_do() {
        let _turn = alone();
        let Some(device) = Device::of(4, Duration::from_millis(2)) else {
            return;
        };
        let line = "curve --closed-only --max-qd 16 --time 500ms --repeats 3";
        let words: Vec<&str> = line.split(' ').collect();
        let (run, _) = device.measured(&words);
        let headlines = run["headlines"].as_array().unwrap();
        let most = headlines.iter().find(|h| h["id"] == "curve-max").unwrap();
        let of = |key: &str| most["estimate"][key].as_f64().unwrap();
        let (value, low, high) = (of("value"), of("low"), of("high"));
        println!("{value:.0} in {low:.0} .. {high:.0}");
        // 2,000 at most, less what answers are late: the interval claims no more than there is, and is no wider than what is
        // under way at the ends of 500 ms makes it.
        assert!(low <= 2_000.0 && high >= 1_900.0, "{most}");
        assert!(value > 1_600.0 && (high - low) / value < 0.06, "{most}");
    }
}
