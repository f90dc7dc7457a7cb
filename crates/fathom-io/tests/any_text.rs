//! No text makes the readers of job options and job files, and no bytes make those of traces, panic or hang.

use std::path::Path;

use fathom_io::job::options::OPTIONS;
use fathom_io::job::{JobSpec, Limits, jobs_from_toml};
use fathom_io::replay::{Events, Fit, Format, Layout, survey};
use fathom_telemetry::iolog::IoLog;
use fathom_telemetry::{Identity, Nanos, Op, Record};
use proptest::prelude::*;

#[path = "../../fathom-host/tests/common/fuzz.rs"]
mod fuzz;

use fuzz::{cases, changed, changes, fuzz};

const LIMITS: Limits = Limits {
    size: 1 << 30,
    direct_align: 512,
    hosts: 4,
};

#[test]
fn no_value_of_any_option_makes_the_readers_panic() {
    let values = prop_oneof![
        any::<String>(),
        "[-+]?[0-9.]{0,22}[kmgtKMGTsu%:,/€µ]{0,4}[iB€0-9:,/%=-]{0,8}",
        "(zipf|hotspot|uniform|every|fua|on|off|[0-9]+k)[:=/]?[0-9€.,:/=-]{0,12}",
    ];
    let inputs = (0..OPTIONS.len(), values);
    fuzz(cases(2000), &inputs, |(option, text)| {
        let option = &OPTIONS[*option];
        let mut spec = JobSpec::default();
        if (option.set)(&mut spec, text).is_ok() {
            let _ = (option.get)(&spec);
            let _ = spec.validate(&LIMITS);
        }
    });
}

const JOBS: [&str; 3] = [
    "target = \"/mnt/data\"\n\n[global]\nsize = \"4g\"\ntime = \"30s\"\ndirect = true\n\n[[job]]\nname = \"reader\"\ngroup = \"together\"\nrw = \"read\"\nbs = \"128k\"\nqd = 16\n\n[[job]]\nname = \"writer\"\ngroup = \"together\"\nrw = \"randwrite\"\nrate = 5000\n",
    "[global]\nengine = \"preadv\"\nseed = 7\nbs = \"4k:70,64k:30\"\nread-share = 70\n[[job]]\nrw = \"randrw\"\ndist = \"zipf:1.2\"\nthreads = 4\ncpus = \"0,2-3\"\nrandom-map = true\noffset = \"1m\"\nsize = \"512m\"\nalign = \"64k\"\nios = 1000\nwindow = \"100ms\"\n",
    "[[job]]\nname = \"burst\"\nrw = \"randwrite\"\nqd = 32\nrate = \"600k\"\narrival = \"poisson\"\nsync = \"fsync:8+range-write:4\"\nthink = \"10us\"\nbytes = \"64m\"\non-hosts = \"1-2\"\n[[job]]\nname = \"hot\"\nrw = \"trim\"\ndist = \"hotspot:20/80\"\niopoll = true\nsqpoll = false\n",
];

#[test]
fn no_job_file_makes_the_reader_panic() {
    let inputs = (0..JOBS.len(), changes());
    let read = |text: &str| {
        let Ok(file) = jobs_from_toml(text) else {
            return;
        };
        for job in file.jobs {
            for option in OPTIONS {
                let _ = (option.get)(&job);
            }
            let _ = job.validate(&LIMITS);
        }
    };
    for jobs in JOBS {
        assert!(!jobs_from_toml(jobs).unwrap().jobs.is_empty());
    }
    fuzz(cases(300), &inputs, |(n, changes)| {
        read(&String::from_utf8_lossy(&changed(
            JOBS[*n].as_bytes(),
            changes,
        )));
    });
    fuzz(cases(300) / 10, &any::<String>(), |text| read(text));
}

/// One record of blktrace.
fn blk(time: u64, sector: u64, bytes: u32, action: u32, payload: &[u8]) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(0x6561_7407u32.to_le_bytes());
    b.extend(1u32.to_le_bytes());
    b.extend(time.to_le_bytes());
    b.extend(sector.to_le_bytes());
    b.extend(bytes.to_le_bytes());
    b.extend(action.to_le_bytes());
    b.extend(42u32.to_le_bytes());
    b.extend((8u32 << 20).to_le_bytes());
    b.extend(0u32.to_le_bytes());
    b.extend(0u16.to_le_bytes());
    b.extend((payload.len() as u16).to_le_bytes());
    b.extend(payload);
    b
}

/// fathom's own: some hundred I/Os.
fn own(path: &Path) -> Vec<u8> {
    let log = IoLog::create(path, Identity::default(), 1).unwrap();
    let mut h = log.handle(0, 1, Nanos(0));
    for i in 0..300u64 {
        h.push(&Record {
            op: if i % 3 == 0 { Op::Write } else { Op::Read },
            offset: i * 7919 % 1000 * 4096,
            len: 4096,
            intended: Nanos(i * 1000),
            submitted: Nanos(i * 1000 + 10),
            completed: Nanos(i * 1000 + 900),
            result: 4096,
        });
    }
    drop(h);
    log.finish().unwrap();
    std::fs::read(path).unwrap()
}

/// One of each format, as its makers write it.
fn traces(dir: &Path) -> Vec<Vec<u8>> {
    let (read, write, flush, discard) = (1 << 16, 1 << 17, 1 << 18, 1 << 29);
    let binary = [
        blk(0, 0, 0, 1 << 26, b"process name"),
        blk(90, 2048, 4096, read | 1, b""),
        blk(100, 2048, 4096, read | 7, b""),
        blk(300, 4096, 8192, write | 7, b"x"),
        blk(700, 4096, 8192, write | 8, b""),
        blk(900, 2048, 4096, read | 8, b""),
        blk(950, 0, 0, write | flush | 7, b""),
        blk(980, 8192, 4096, write | discard | 7, b""),
    ];
    let text = [
        "128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,1044\n128166372026382155,hm,1,Write,2822144,4096,1044\n",
        "0,20941264,8192,W,0.551706\r\n1,3436288,15872,r,1.0011\r\n0,20941264,8192,W,1.551706\r\n",
        "419,W,17792704512,4096,1577808144360767\n725,R,59110326272,360448,1577808144360813\n",
        "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 8192 4096\n/dev/sdb wait 1500 0\n/dev/sdb write 0 4096\n/dev/sdb datasync 0 0\n/dev/sdb trim 4096 4096\n/dev/sdb close\n",
        "fio version 3 iolog\n0 f add\n130 f open\n141 f read 61440 4096\n1000108 f write 937984 4096\n1000154 f close\n",
    ];
    let mut all = vec![binary.concat(), own(&dir.join("io.parquet"))];
    all.extend(text.map(|t| t.as_bytes().to_vec()));
    all
}

/// Everything that is done with a trace before it is played.
fn read(path: &Path, format: Option<Format>) -> bool {
    let Ok(facts) = survey(path, format, Events::Auto, None, false, || false) else {
        return false;
    };
    let _ = (facts.total(), facts.duration(), facts.ops());
    for fit in [Fit::Auto, Fit::Keep, Fit::Scale, Fit::Wrap] {
        let _ = Layout::new(&facts, &LIMITS, true, fit);
    }
    true
}

#[test]
fn no_bytes_make_the_readers_of_traces_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let whole = traces(dir.path());
    for bytes in &whole {
        std::fs::write(&path, bytes).unwrap();
        assert!(read(&path, None), "{:?}", String::from_utf8_lossy(bytes));
    }
    let formats = [
        None,
        Some(Format::Blktrace),
        Some(Format::Fio),
        Some(Format::Msr),
        Some(Format::Spc),
        Some(Format::Alibaba),
        Some(Format::Fathom),
    ];
    let all = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        for format in formats {
            read(&path, format);
        }
    };
    let inputs = (0..whole.len(), changes());
    fuzz(cases(150), &inputs, |(n, changes)| {
        all(&changed(&whole[*n], changes));
    });
    let line = "(([0-9]{1,20}|[rwRWds€ ]|read|write|Read|Write|fio version 3 iolog|[-.0-9e]{1,8})[ ,\t]){1,7}\r?\n";
    let content = prop_oneof![
        any::<Vec<u8>>(),
        prop::collection::vec(line, 0..8).prop_map(|l| l.concat().into_bytes()),
        any::<Vec<[u8; 48]>>().prop_map(|records| {
            let magic = 0x6561_7407u32.to_le_bytes();
            records
                .iter()
                .flat_map(|r| [&magic[..], &r[4..]].concat())
                .collect()
        }),
    ];
    fuzz(cases(150), &content, |bytes| all(bytes));
}
