//! What a device is made of, step by step down to the real disks, and what each step counts.
//!
//! A loop device, a mapping or an array counts what is asked of it, whether it came from a disk or not: a page cache, a hole
//! or an unmapped block below shows only in what the next device down has counted.

use std::fs::File;
use std::io;

use super::{Counters, NoCounters, devices_behind};
use crate::devices::graph::{Graph, Node};
use crate::root::{DeviceNumber, HostRoot, flag};

/// Devices on devices: nobody stacks deeper, and a description that leads back to itself ends here.
const DEPTH_MAX: usize = 8;

/// The devices one step further down, which count together.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    stats: Vec<File>,
}

/// All steps below some devices, and what is known of the way down.
#[derive(Debug, Default)]
pub struct Below {
    pub(super) steps: Vec<Step>,
    /// Whole disks on the way and at its end, those it began with included: number and kernel name.
    pub disks: Vec<(DeviceNumber, String)>,
    /// Loop devices on the way that read and write their file through the page cache.
    pub cached_loops: Vec<String>,
    /// Why the way ends before a disk that counts, in words: the file of a loop device lies in memory, …
    pub unseen: Option<String>,
}

impl Below {
    pub(super) fn find(root: &HostRoot, graph: &Graph, from: &[&Node]) -> Self {
        let mut below = Self::default();
        let mut at: Vec<&Node> = from.to_vec();
        for _ in 0..DEPTH_MAX {
            for node in &at {
                let disk = graph.disk_of(node);
                let known = (disk.number, disk.name.clone());
                if !below.disks.contains(&known) {
                    below.disks.push(known);
                }
            }
            match step_down(root, graph, &at, &mut below.cached_loops) {
                Ok(next) if next.is_empty() => break,
                Ok(next) => at = next,
                Err(why) => {
                    below.unseen = Some(why.to_string());
                    break;
                }
            }
            match Step::open(graph, &at) {
                Ok(step) => below.steps.push(step),
                Err(why) => {
                    below.unseen = Some(why);
                    break;
                }
            }
        }
        below
    }

    /// What every step has counted, in order.
    pub(super) fn read(&self) -> io::Result<Vec<Counters>> {
        self.steps
            .iter()
            .map(|s| super::sum(&s.name, &s.stats))
            .collect()
    }
}

impl Step {
    fn open(graph: &Graph, nodes: &[&Node]) -> Result<Self, String> {
        for node in nodes {
            super::counting(graph.disk_of(node)).map_err(|e| e.to_string())?;
        }
        Ok(Self {
            name: super::joined(nodes),
            stats: super::open_stats(graph, nodes)
                .map_err(|e| format!("the counters below cannot be read: {e}"))?,
        })
    }
}

/// What these devices are made of; one that is made of nothing else stays, beside others that are. Empty at the bottom.
fn step_down<'a>(
    root: &HostRoot,
    graph: &'a Graph,
    at: &[&'a Node],
    cached_loops: &mut Vec<String>,
) -> Result<Vec<&'a Node>, NoCounters> {
    let mut next: Vec<&Node> = Vec::new();
    let mut deeper = false;
    for node in at {
        let disk = graph.disk_of(node);
        let made_of = made_of(root, graph, disk)?;
        if disk.loop_file.is_some() && flag(&disk.dir.join("loop/dio")) == Some(false) {
            cached_loops.push(disk.name.clone());
        }
        deeper |= !made_of.is_empty();
        let these = if made_of.is_empty() {
            vec![*node]
        } else {
            made_of
        };
        for node in these {
            if !next.iter().any(|n| n.name == node.name) {
                next.push(node);
            }
        }
    }
    Ok(if deeper { next } else { Vec::new() })
}

fn made_of<'a>(
    root: &HostRoot,
    graph: &'a Graph,
    disk: &'a Node,
) -> Result<Vec<&'a Node>, NoCounters> {
    let slaves: Vec<&Node> = disk.slaves.iter().filter_map(|s| graph.get(s)).collect();
    if !slaves.is_empty() {
        return Ok(slaves);
    }
    let Some(file) = &disk.loop_file else {
        return Ok(Vec::new());
    };
    let by_number = disk
        .loop_backing
        .and_then(|b| graph.by_number(b.block.unwrap_or(b.device)));
    match by_number {
        Some(node) => Ok(vec![node]),
        None => devices_behind(root, graph, file, 0),
    }
}
