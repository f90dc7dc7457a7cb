//! What libblkid's own test images hold is recognised: `./test` fetches them from Debian's source package.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use fathom_host::signature::SignatureClass::{
    self, Encrypted, FileSystem, Lvm, PartitionTable, Raid, Swap, Volume, Zfs,
};
use fathom_host::signature::{scan, size_of};

/// Images that are recognised as something of another class than libblkid's, with the reason.
const EXCEPTIONS: [(&str, SignatureClass, &str); 2] = [
    ("bcachefs", Volume, "the first ones said bcache's word"),
    ("bcachefs-2", Volume, "the first ones said bcache's word"),
];

fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/util-linux")
}

/// Classes that stand for what libblkid calls the use of an image.
fn classes(usage: &str) -> &'static [SignatureClass] {
    match usage {
        "filesystem" => &[FileSystem, Zfs],
        "raid" => &[Raid, Lvm, Volume, Zfs],
        "crypto" => &[Encrypted, Volume],
        "other" => &[Swap, Volume],
        other => panic!("a use that this test does not know: {other}"),
    }
}

/// The use of an image as libblkid's tests expect it.
fn usage(name: &str) -> Option<String> {
    // Discs of several sessions have an expectation for each of them, and their beginnings in their names.
    let file = match name.split_once("-multi-0-") {
        Some((kind, rest)) => {
            let tool = rest.rsplit('-').next().unwrap_or_default();
            format!("low-probe-{kind}-multi-{tool}-0")
        }
        None => format!("low-probe-{name}"),
    };
    let path = images().join("expected").join(file);
    let expected = fs::read_to_string(path).ok()?;
    let usage = expected
        .lines()
        .find_map(|l| l.strip_prefix("ID_FS_USAGE="))?;
    Some(usage.to_string())
}

#[test]
fn every_image_of_util_linux_is_recognised_as_what_it_is() {
    let mut found = Vec::new();
    let mut missed = Vec::new();
    for kind in ["images-fs", "images-pt"] {
        let Ok(entries) = fs::read_dir(images().join(kind)) else {
            let _ = std::io::stderr().write_all(
                b"SKIP every_image_of_util_linux_is_recognised_as_what_it_is: needs the images of util-linux' source package in target/util-linux; ./test fetches them where it can\n",
            );
            return;
        };
        for path in entries.map(|e| e.unwrap().path()) {
            let name = path.file_stem().unwrap().to_str().unwrap().to_string();
            let other = EXCEPTIONS.iter().find(|(n, ..)| *n == name);
            let wanted: &[SignatureClass] = match (kind, usage(&name)) {
                ("images-pt", _) => &[PartitionTable],
                (_, Some(usage)) => classes(&usage),
                (_, None) => panic!("{name} has no expectation beside it"),
            };
            let file = File::open(&path).unwrap();
            let seen = scan(&file, size_of(&file).unwrap()).unwrap();
            let is_right = |c| wanted.contains(&c) || other.is_some_and(|(_, o, _)| *o == c);
            if seen.iter().any(|s| is_right(s.class)) {
                found.push((name, other.map(|(.., why)| *why)));
            } else {
                missed.push(format!("{name}: {seen:?} instead of {wanted:?}"));
            }
        }
    }
    println!("{} images of util-linux recognised", found.len());
    for (name, why) in found.iter().filter_map(|(name, why)| Some((name, (*why)?))) {
        println!("{name} is of another class: {why}");
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(found.len() > 100, "only {} images", found.len());
}
