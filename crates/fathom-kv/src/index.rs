//! The inner nodes, in memory: a B-link tree (Lehman and Yao 1981) from keys to leaves.
//!
//! A search holds one latch at a time. A node that was split is still reached from its left neighbour, so
//! nobody waits for the parent to hear of it. Nodes are never removed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, RwLock};

use crate::arena::Arena;
use crate::error::{KvError, Result};
use crate::sync::{Waits, lock, read, write};

/// Children of a node, at most.
const FAN_OUT: usize = 256;
const NONE: u32 = u32::MAX;

struct Node {
    /// 1: children are leaves.
    level: u32,
    /// Smallest key of each child; the first holds for everything below, too.
    keys: Vec<u64>,
    children: Vec<u32>,
    high: Option<u64>,
    right: u32,
}

impl Node {
    fn child(&self, key: u64) -> u32 {
        let i = self.keys.partition_point(|k| *k <= key);
        self.children[i.saturating_sub(1)]
    }
    fn is_left_of(&self, key: u64) -> bool {
        self.high.is_some_and(|h| key >= h)
    }
}

pub(crate) struct Index {
    nodes: Arena<RwLock<Node>>,
    root: AtomicU32,
    grow: Mutex<()>,
    waits: Waits,
}

impl Index {
    /// Over leaves with their smallest keys, in order; there is at least one.
    pub(crate) fn new(leaves: &[(u64, u32)], most: u64) -> Result<Self> {
        // Half-full nodes on all levels, and a little.
        let nodes = Arena::new(most / (FAN_OUT as u64 / 4) + 1024);
        let mut level = 1;
        let mut below = leaves.to_vec();
        loop {
            let mut above = Vec::new();
            // Room to grow: a tree that was just opened shall not split everywhere at once.
            let groups: Vec<_> = below.chunks(FAN_OUT * 3 / 4).collect();
            let first = nodes.len();
            for (i, group) in groups.iter().enumerate() {
                let next = groups.get(i + 1);
                let node = Node {
                    level,
                    keys: group.iter().map(|x| x.0).collect(),
                    children: group.iter().map(|x| x.1).collect(),
                    high: next.map(|n| n[0].0),
                    right: next.map_or(NONE, |_| first + i as u32 + 1),
                };
                above.push((group[0].0, push(&nodes, node)?));
            }
            if above.len() == 1 {
                return Ok(Self {
                    nodes,
                    root: AtomicU32::new(above[0].1),
                    grow: Mutex::new(()),
                    waits: Waits::default(),
                });
            }
            below = above;
            level += 1;
        }
    }
    /// Waits for latches of inner nodes.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }
    /// Nodes, and levels of them.
    pub(crate) fn size(&self) -> Result<(u32, u32)> {
        let root = self.node(self.root.load(Ordering::Acquire))?;
        Ok((self.nodes.len(), read(root, &self.waits).level))
    }
    fn node(&self, n: u32) -> Result<&RwLock<Node>> {
        self.nodes
            .get(n)
            .ok_or_else(|| KvError::Inconsistent(format!("inner node {n} does not exist")))
    }
    /// The leaf for a key, or one to the left of it that was split meanwhile.
    pub(crate) fn leaf(&self, key: u64) -> Result<u32> {
        self.descend(key, 0)
    }
    /// The node of `level` on the way to a key, or one to its left.
    fn descend(&self, key: u64, level: u32) -> Result<u32> {
        let mut at = self.root.load(Ordering::Acquire);
        loop {
            let node = read(self.node(at)?, &self.waits);
            if node.is_left_of(key) {
                at = node.right;
            } else if node.level <= level {
                return Ok(at);
            } else {
                at = node.child(key);
                if node.level == 1 {
                    return Ok(at);
                }
            }
        }
    }
    /// Makes a new leaf known that begins with `key`.
    pub(crate) fn insert(&self, key: u64, leaf: u32) -> Result<()> {
        let (mut key, mut child, mut level) = (key, leaf, 1);
        loop {
            let Some((sep, node)) = self.insert_at(key, child, level)? else {
                return Ok(());
            };
            level += 1;
            let _growing = lock(&self.grow);
            let root = self.root.load(Ordering::Acquire);
            let (top, first) = {
                let node = read(self.node(root)?, &self.waits);
                (node.level, node.keys[0])
            };
            if top >= level {
                (key, child) = (sep, node);
                continue;
            }
            let new = Node {
                level,
                keys: vec![first, sep],
                children: vec![root, node],
                high: None,
                right: NONE,
            };
            self.root.store(push(&self.nodes, new)?, Ordering::Release);
            return Ok(());
        }
    }
    /// The new right half and its smallest key, where the node had to be split.
    fn insert_at(&self, key: u64, child: u32, level: u32) -> Result<Option<(u64, u32)>> {
        let mut at = self.descend(key, level)?;
        let mut node = loop {
            let node = write(self.node(at)?, &self.waits);
            if !node.is_left_of(key) {
                break node;
            }
            at = node.right;
        };
        let i = node.keys.partition_point(|k| *k <= key);
        node.keys.insert(i, key);
        node.children.insert(i, child);
        if node.keys.len() <= FAN_OUT {
            return Ok(None);
        }
        let half = node.keys.len() / 2;
        let keys = node.keys.split_off(half);
        let children = node.children.split_off(half);
        let sep = keys[0];
        let right = Node {
            level,
            keys,
            children,
            high: node.high,
            right: node.right,
        };
        let n = push(&self.nodes, right)?;
        (node.high, node.right) = (Some(sep), n);
        Ok(Some((sep, n)))
    }
}

fn push(nodes: &Arena<RwLock<Node>>, node: Node) -> Result<u32> {
    nodes
        .push(RwLock::new(node))
        .ok_or_else(|| KvError::Inconsistent("there are more inner nodes than leaves allow".into()))
}
