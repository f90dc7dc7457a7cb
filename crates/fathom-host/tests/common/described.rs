//! A machine that is only described.
#![allow(dead_code, unreachable_pub)] // every test program uses another part of this

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use fathom_host::devices::block_devices_in;
use fathom_host::refusal::Refusal;
use fathom_host::{Access, BlockDevice, HostRoot};

/// A machine under construction.
pub struct Machine {
    pub dir: tempfile::TempDir,
}

impl Machine {
    pub fn new() -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        machine.put("proc/self/mountinfo", "");
        machine.put("proc/swaps", "Filename Type Size Used Priority\n");
        fs::create_dir_all(machine.at("sys/class/block")).unwrap();
        machine
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A disk of 1 MiB under a place in the tree of devices; returns that place.
    pub fn disk(&self, place: &str, name: &str, number: &str) -> String {
        let dir = format!("sys/devices/{place}/block/{name}");
        self.node(&dir, name, number);
        dir
    }

    pub fn partition(&self, disk_dir: &str, name: &str, number: &str) -> String {
        let dir = format!("{disk_dir}/{name}");
        self.node(&dir, name, number);
        self.put(&format!("{dir}/partition"), "1");
        self.put(&format!("{dir}/start"), "256");
        self.put(&format!("{dir}/size"), "512");
        self.fill(name, &vec![0; 512 * 512]);
        dir
    }

    pub fn node(&self, dir: &str, name: &str, number: &str) {
        self.put(&format!("{dir}/dev"), number);
        self.put(&format!("{dir}/size"), "2048");
        self.put(&format!("{dir}/ro"), "0");
        symlink(self.at(dir), self.at("sys/class/block").join(name)).unwrap();
        self.fill(name, &vec![0; 1 << 20]);
    }

    pub fn fill(&self, name: &str, bytes: &[u8]) {
        let path = self.at("dev").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// `upper` is made of `lower`.
    pub fn hold(&self, lower_dir: &str, lower: &str, upper_dir: &str, upper: &str) {
        self.put(&format!("{lower_dir}/holders/{upper}"), "");
        self.put(&format!("{upper_dir}/slaves/{lower}"), "");
    }

    pub fn mounts(&self, text: &str) {
        self.put("proc/self/mountinfo", text);
    }

    pub fn device(&self, name: &str) -> BlockDevice {
        block_devices_in(&HostRoot::under(self.dir.path()))
            .unwrap()
            .into_iter()
            .find(|d| d.name == name)
            .unwrap()
    }

    pub fn refusal(&self, name: &str) -> Refusal {
        match self.device(name).verdict.write {
            Access::Refused { refusal, .. } => *refusal,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn is_free(&self, name: &str) -> bool {
        matches!(self.device(name).verdict.write, Access::Confirm { .. })
    }
}
