//! fio's own example job files (Debian package fio-examples): those with a standard engine parse, convert, and run with
//! shrunken size and time. `bench/fio-examples` holds what they do against fio itself.

use std::path::Path;
use std::process::Command;

const WHERE: &str = "/usr/share/doc/fio/examples";
const STANDARD: [&str; 10] = [
    "sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring", "mmap", "posixaio", "null",
];

fn fathom(args: &[&str], file: &Path) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .arg("fio")
        .args(args)
        .arg(file)
        .current_dir(file.parent().unwrap())
        .output()
        .unwrap();
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

#[test]
fn examples_with_a_standard_engine_parse() {
    let Ok(list) = std::fs::read_dir(WHERE) else {
        println!(
            "SKIP examples_with_a_standard_engine_parse: {WHERE} is missing (apt-get install fio-examples)"
        );
        return;
    };
    let mut seen = 0;
    for path in list.flatten().map(|e| e.path()) {
        if path.extension().is_none_or(|e| e != "fio") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let standard = text
            .lines()
            .filter_map(|l| l.trim().strip_prefix("ioengine="))
            .all(|e| STANDARD.contains(&e.trim()));
        // A value from the environment has none here.
        if !standard || text.contains("${") {
            continue;
        }
        seen += 1;
        let (code, said) = fathom(&["--parse-only"], &path);
        assert_eq!(code, Some(0), "{}: {said}", path.display());
        let (code, said) = fathom(&["--convert"], &path);
        assert!(
            code == Some(0) || (code == Some(2) && said.contains("job '")),
            "{}: {said}",
            path.display()
        );
    }
    assert!(seen > 20, "{seen} examples were found");
}

/// The author's devices and directories become scratch ones, and what the author's environment holds is put in.
fn at_home(text: &str) -> String {
    let mut sized = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let body = line.split([';', '#']).next().unwrap_or("").trim();
        let (name, value) = body.split_once('=').unwrap_or((body, ""));
        sized |= matches!(name.trim(), "size" | "filesize" | "io_size");
        lines.push(match (name.trim(), value.trim()) {
            ("filename", v) if v.starts_with('/') && v != "/dev/null" && v != "/dev/zero" => {
                format!("filename={}", v.replace('/', "_"))
            }
            ("directory", _) => "directory=.".to_owned(),
            // A machine may have one node only.
            ("numa_cpu_nodes", _) => "numa_cpu_nodes=0".to_owned(),
            // The author's device has zones of its own. (A block must fit into one.)
            ("zonemode", "zbd") => "zonemode=zbd\nzonesize=512k".to_owned(),
            ("zonesize", _) if text.contains("zonemode=zbd") => String::new(),
            ("numa_mem_policy", _) => "numa_mem_policy=local".to_owned(),
            // The file does not exist yet here.
            ("allow_file_create", _) => String::new(),
            _ => body.to_owned(),
        });
    }
    let size = if sized { "" } else { "size=64m\n" };
    let mut text = lines.join("\n") + "\n";
    for (name, value) in [
        ("${FIO_RW}", "randread"),
        ("${FIO_BS}", "4k"),
        ("${FIO_IODEPTH}", "4"),
    ] {
        text = text.replace(name, value);
    }
    match text.find("[global]\n") {
        Some(at) => {
            text.insert_str(at + 9, size);
            text
        }
        None => format!("[global]\n{size}\n{text}"),
    }
}

#[test]
fn examples_with_a_standard_engine_run_with_shrunken_size_and_time() {
    let Ok(list) = std::fs::read_dir(WHERE) else {
        println!(
            "SKIP examples_with_a_standard_engine_run_with_shrunken_size_and_time: {WHERE} is missing (apt-get install fio-examples)"
        );
        return;
    };
    let mut ran = 0;
    for path in list.flatten().map(|e| e.path()) {
        if path.extension().is_none_or(|e| e != "fio") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let standard = text
            .lines()
            .filter_map(|l| l.trim().strip_prefix("ioengine="))
            .all(|e| STANDARD.contains(&e.trim()));
        if !standard {
            continue;
        }
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = dir.path().join("job.fio");
        std::fs::write(&file, at_home(&text)).unwrap();
        let caps = [
            "--size-cap=1m",
            "--time-cap=100ms",
            "--output-format=json",
            "--output=out.json",
        ];
        let (code, said) = fathom(&caps, &file);
        assert_eq!(code, Some(0), "{}: {said}", path.display());
        let out: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.path().join("out.json")).unwrap()).unwrap();
        let ios: u64 = out["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|j| {
                ["read", "write", "trim"].map(|d| j[d]["total_ios"].as_u64().unwrap_or(0))
            })
            .sum();
        // Nothing was written to the zones that these two read.
        assert!(
            ios > 0 || path.ends_with("zbd-seq-read.fio") || path.ends_with("xnvme-zoned.fio"),
            "{} did nothing",
            path.display()
        );
        ran += 1;
    }
    assert!(ran >= 35, "{ran} examples ran");
}
