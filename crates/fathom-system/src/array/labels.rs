//! Labels that LVM and ZFS leave on members, read as fathom's own: with its mark, written on this machine, of an array that
//! is gone. On another machine, or in a guest over the same device, its process may live.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Beginning of the name of every group of LVM and every pool of ZFS; the number of the process follows.
pub(crate) const PREFIX: &str = "fathom_";
/// What says that fathom made a group: a tag of LVM, and a property of ZFS (`fathom:made=yes`).
pub(crate) const TAG: &str = "made-by-fathom";
/// LVM's label and the metadata behind it (pvcreate(8): the first MiB); ZFS' first label lies within, too.
const HEAD: usize = 1 << 20;
/// LVM's metadata area, where pvcreate puts it.
const AREA: usize = 4096;
/// The list of names and values in ZFS' label (`vdev_phys_t`, sys/vdev_impl.h).
const VALUES: std::ops::Range<usize> = 16 << 10..128 << 10;
/// `POOL_STATE_DESTROYED` (sys/fs/zfs.h).
const DESTROYED: u64 = 2;

/// Name of the group or pool that a device belonged to, where fathom made it. Of a pool only once it is destroyed: who
/// has one that lives does not claim its devices everywhere (zfs-fuse).
pub(crate) fn owner(device: &File) -> Option<String> {
    let mut head = vec![0; HEAD];
    let mut read = 0;
    while read < HEAD {
        match device.read_at(&mut head[read..], read as u64) {
            Ok(0) | Err(_) => break,
            Ok(n) => read += n,
        }
    }
    head.truncate(read);
    let here = rustix::system::uname();
    let here = here.nodename().to_string_lossy();
    group(&head, &here).or_else(|| pool(&head, &here))
}

/// The same of a node.
pub(crate) fn owner_of(node: &Path) -> Option<String> {
    owner(&File::open(node).ok()?)
}

/// lib/label/label.h, lib/format_text/layout.h.
fn group(head: &[u8], here: &str) -> Option<String> {
    let is = |at: usize, sign: &[u8]| head.get(at..at + sign.len()) == Some(sign);
    if !is(512, b"LABELONE") || !is(536, b"LVM2 001") || !is(AREA + 4, b" LVM2 x[5A%r0N*>") {
        return None;
    }
    let number = |at: usize| {
        let bytes = head.get(AREA + at..AREA + at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let begin = AREA.checked_add(number(40)?)?;
    let text = head.get(begin..begin.checked_add(number(48)?)?)?;
    let text = std::str::from_utf8(text).ok()?;
    let ours = text.contains(&format!("tags = [\"{TAG}\"]"))
        && text.contains(&format!("creation_host = \"{here}\""));
    ours.then(|| text.split_once(" {").map(|(name, _)| name.to_owned()))?
}

fn pool(head: &[u8], here: &str) -> Option<String> {
    let values = head.get(VALUES)?;
    // XDR: name, type (9: text, 8: number of 64 bits), how many, the value.
    let value = |of: &[u8]| {
        let at = values.windows(of.len()).position(|w| w == of)?;
        values.get(at + of.len()..)
    };
    let text = |of: &[u8]| {
        let value = value(of)?;
        let length = u32::from_be_bytes(value.get(..4)?.try_into().ok()?) as usize;
        std::str::from_utf8(value.get(4..)?.get(..length)?).ok()
    };
    let state = value(b"\0\0\0\x05state\0\0\0\0\0\0\x08\0\0\0\x01")?.get(..8)?;
    let over = u64::from_be_bytes(state.try_into().ok()?) == DESTROYED;
    let name = text(b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01")?;
    let host = text(b"\0\0\0\x08hostname\0\0\0\x09\0\0\0\x01")?;
    (over && host == here).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `vgcreate --addtag` wrote it.
    fn labelled(tag: &str) -> Vec<u8> {
        let mut head = vec![0; 16 << 10];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(512, b"LABELONE");
        put(536, b"LVM2 001");
        put(AREA + 4, b" LVM2 x[5A%r0N*>");
        let text =
            format!("fathom_7 {{\nid = \"x\"\ntags = [\"{tag}\"]\n}}\ncreation_host = \"a\"\n");
        put(AREA + 40, &0x800_u64.to_le_bytes());
        put(AREA + 48, &(text.len() as u64).to_le_bytes());
        put(AREA + 0x800, text.as_bytes());
        head
    }

    #[test]
    fn a_group_with_our_tag_is_ours_and_any_other_is_not() {
        assert_eq!(group(&labelled(TAG), "a").as_deref(), Some("fathom_7"));
        assert_eq!(group(&labelled(TAG), "b"), None, "another machine's");
        assert_eq!(group(&labelled("somebody's"), "a"), None);
        let mut beyond = labelled(TAG);
        beyond[AREA + 48..AREA + 56].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(group(&beyond, "a"), None);
        assert_eq!(group(&labelled(TAG)[..600], "a"), None);
        assert_eq!(group(&[], "a"), None);
    }

    /// As zfs-fuse 0.7.0 wrote it.
    fn of_pool(state: u8) -> Vec<u8> {
        let mut head = vec![0; 128 << 10];
        let list = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24\0\0\0\x20\0\0\0\x07version\0\
            \0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0\x17\0\0\0\x28\0\0\0\x28\0\0\0\x04name\
            \0\0\0\x09\0\0\0\x01\0\0\0\x08fathom_7\0\0\0\x24\0\0\0\x20\0\0\0\x05state\0\0\0\
            \0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0";
        let host = b"\0\0\0\x24\0\0\0\x28\0\0\0\x08hostname\0\0\0\x09\0\0\0\x01\0\0\0\x01a\0\0\0";
        let list = [&list[..], &[state], host].concat();
        head[VALUES.start..VALUES.start + list.len()].copy_from_slice(&list);
        head
    }

    #[test]
    fn a_pool_is_over_when_it_is_destroyed() {
        assert_eq!(pool(&of_pool(2), "a").as_deref(), Some("fathom_7"));
        assert_eq!(pool(&of_pool(0), "a"), None, "it lives");
        assert_eq!(pool(&of_pool(2), "b"), None, "another machine's");
        assert_eq!(pool(&vec![0; 128 << 10], "a"), None);
        assert_eq!(pool(&[], "a"), None);
    }
}
