//! What must be typed after `--destroy`: a word that names the bytes of this device and of no other one of the machine.
//!
//! A serial number is the drive's: several namespaces, units or boot partitions may share it, cheap drives share it with
//! their like, and the kernel's names change at a rescan. So a serial number counts only where one device has it.

use std::path::Path;

use serde::Serialize;

use super::graph::{Graph, Node};
use super::identity::{self, Identity};
use crate::refusal::IdentityKind;
use crate::root::{HostRoot, text};

/// A word that names one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Word {
    /// To be typed.
    pub word: String,
    /// What it is.
    pub kind: IdentityKind,
}

impl Word {
    fn new(word: impl Into<String>, kind: IdentityKind) -> Self {
        let word = word.into();
        Self { word, kind }
    }

    /// Whether it is what was typed. Drives pad their names with blanks: how many does not matter.
    pub fn is(&self, typed: &str) -> bool {
        if matches!(self.kind, IdentityKind::FullPath | IdentityKind::MapName) {
            return self.word == typed;
        }
        let mut typed = typed.split_whitespace().peekable();
        typed.peek().is_some() && self.word.split_whitespace().eq(typed)
    }
}

/// The words that name a device, the one to show first; never empty.
pub(crate) fn words(root: &HostRoot, graph: &Graph, node: &Node) -> Vec<Word> {
    let disk = graph.disk_of(node);
    let path = Word::new(
        node.path(root).display().to_string(),
        IdentityKind::FullPath,
    );
    let mut all = of_disk(root, graph, disk);
    if node.name != disk.name {
        let number = text(&node.dir.join("partition")).unwrap_or_default();
        let parts = all
            .iter()
            .map(|w| Word::new(format!("{}-part{number}", w.word), w.kind));
        let parts: Vec<Word> = parts.collect();
        // The only one of its disk is meant by the name of the disk, which is not writable as long as it is partitioned.
        all = match disk.partitions.len() {
            1 => all.into_iter().chain(parts).collect(),
            _ => parts,
        };
    }
    all.extend(map_names(root, node));
    // A path says where a device is plugged in, not which one it is: only where nothing else names it.
    if all.is_empty() || node.dir.join("dm").is_dir() {
        all.push(path);
    }
    all
}

/// Names of other devices that have this serial number, too.
pub(crate) fn namesakes(root: &HostRoot, graph: &Graph, node: &Node, typed: &str) -> Vec<String> {
    let disk = graph.disk_of(node);
    let typed = Word::new(typed, IdentityKind::SerialNumber);
    let has = |other: &Node| {
        let serial = identity::of(root, other).serial;
        serial.is_some_and(|serial| typed.is(&serial))
    };
    if !has(disk) {
        return Vec::new();
    }
    let parts = disk.partitions.iter().filter(|n| **n != node.name).cloned();
    others(graph, disk)
        .filter(|other| has(other))
        .map(|other| other.name.clone())
        .chain(parts)
        .collect()
}

fn others<'a>(graph: &'a Graph, disk: &'a Node) -> impl Iterator<Item = &'a Node> {
    let disks = graph.nodes.values().filter(|n| n.parent.is_none());
    disks.filter(|other| other.name != disk.name && !other.is_idle_placeholder())
}

fn of_disk(root: &HostRoot, graph: &Graph, disk: &Node) -> Vec<Word> {
    let own = identity::of(root, disk);
    let all: Vec<(&Node, Identity)> = others(graph, disk)
        .map(|other| (other, identity::of(root, other)))
        .filter(|(other, theirs)| !is_path_to(disk, &own, other, theirs))
        .collect();
    let mut words = Vec::new();
    if let Some(serial) = own.serial.as_ref().filter(|s| tells_apart(s)) {
        let same = |theirs: &Identity| theirs.serial.as_ref() == Some(serial);
        if !all.iter().any(|(_, theirs)| same(theirs)) {
            words.push(Word::new(serial, IdentityKind::SerialNumber));
        }
        if let Some(part) = part_of_drive(disk) {
            let same = all.iter().filter(|(_, theirs)| same(theirs));
            if !same
                .into_iter()
                .any(|(other, _)| part_of_drive(other).as_ref() == Some(&part))
            {
                words.push(Word::new(
                    format!("{serial}-{part}"),
                    IdentityKind::SerialAndPart,
                ));
            }
        }
    }
    for name in world_wide(disk) {
        if !all
            .iter()
            .any(|(other, _)| world_wide(other).contains(&name))
        {
            words.push(Word::new(name, IdentityKind::WorldWideName));
        }
    }
    words
}

/// Whether two nodes are two paths to one device, for certain: a name that is given once in the world, the same size, and
/// a bus on which there can be two ways.
fn is_path_to(disk: &Node, own: &Identity, other: &Node, theirs: &Identity) -> bool {
    let one_way = |i: &Identity| {
        matches!(
            i.transport.as_deref(),
            Some("usb" | "sata" | "mmc" | "virtio")
        )
    };
    let names = world_wide(disk);
    !one_way(own)
        && !one_way(theirs)
        && disk.size_bytes == other.size_bytes
        && own.serial == theirs.serial
        && !names.is_empty()
        && names == world_wide(other)
}

/// Names that are given once in the world, as the kernel writes them. Those that it makes up of vendor, model and serial
/// number are none: what copies one copies all.
fn world_wide(disk: &Node) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let zero = |s: &str| s.bytes().all(|b| matches!(b, b'0' | b'-' | b' '));
    let mut add = |prefix: &str, name: Option<String>| {
        let Some(name) = name.filter(|n| !zero(n)) else {
            return;
        };
        let name = format!("{prefix}{}", name.replace(' ', ""));
        if !names.contains(&name) {
            names.push(name);
        }
    };
    let given = |n: &String| {
        let bare = ["naa.", "eui.", "uuid."]
            .iter()
            .find_map(|p| n.strip_prefix(p));
        bare.is_some_and(|b| !zero(b))
    };
    add("", disk.wwid.clone().filter(given));
    let file = |name: &str| text(&disk.dir.join(name));
    add("eui.", file("nguid").map(|n| n.replace('-', "")));
    add("eui.", file("eui"));
    add("uuid.", file("uuid"));
    names
}

/// Which part of the drive it is, where a drive may have several: namespace, unit, or area of an eMMC.
fn part_of_drive(disk: &Node) -> Option<String> {
    if let Some(nsid) = text(&disk.dir.join("nsid")) {
        return Some(format!("ns{nsid}"));
    }
    if let Some(rest) = disk.name.strip_prefix("mmcblk") {
        let area = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        return Some(if area.is_empty() { "user" } else { area }.to_owned());
    }
    // host:channel:target:unit
    let address = std::fs::canonicalize(disk.dir.join("device")).ok()?;
    let address = address.file_name()?.to_str()?.to_owned();
    let parts: Vec<&str> = address.split(':').collect();
    let numbers = parts.iter().all(|p| p.parse::<u64>().is_ok());
    (parts.len() == 4 && numbers).then(|| format!("lun{}", parts[3]))
}

/// Whether a serial number is one: cheap drives have blanks, noughts or one letter in its place.
fn tells_apart(serial: &str) -> bool {
    let mut letters = serial.chars().filter(|c| c.is_alphanumeric());
    let first = letters.next();
    letters.any(|c| Some(c) != first) || first.is_some_and(|c| c != '0' && serial.len() == 1)
}

/// Names of a map: of one that is a device with several paths its world-wide name, and what it was named.
fn map_names(root: &HostRoot, node: &Node) -> Vec<Word> {
    let Some(name) = text(&node.dir.join("dm/name")) else {
        return Vec::new();
    };
    let uuid = text(&node.dir.join("dm/uuid")).unwrap_or_default();
    let wwid = uuid.strip_prefix("mpath-");
    let wwid = wwid.map(|w| Word::new(w, IdentityKind::WorldWideName));
    let path = root.dev.join("mapper").join(&name).display().to_string();
    wwid.into_iter()
        .chain([
            Word::new(path, IdentityKind::MapName),
            Word::new(name, IdentityKind::MapName),
        ])
        .collect()
}

/// The node of a map that has no link of its own: `/dev/mapper/NAME` is made by udev, which is not everywhere.
pub(crate) fn node_of_map(root: &HostRoot, path: &Path) -> Option<std::path::PathBuf> {
    let name = path.strip_prefix(root.dev.join("mapper")).ok()?;
    let graph = Graph::read(root).ok()?;
    let mut maps = graph.nodes.values();
    let map = maps.find(|n| text(&n.dir.join("dm/name")).is_some_and(|t| Path::new(&t) == name))?;
    Some(map.path(root))
}
