//! What a killed PostgreSQL leaves besides its directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The one thing of a killed server that does not go with its directory: a System V segment, by which servers know
/// that a directory is in use. `postmaster.pid` names it in its seventh line (key and number). Whoever can write there
/// can name any segment: only one of the file's own owner goes.
pub fn release(dir: &Path) {
    let Some((file, owner)) = owned(&dir.join("data/postmaster.pid")) else {
        return;
    };
    let owner = owner.to_string();
    let mut words = file.lines().nth(6).unwrap_or_default().split_whitespace();
    let (Some(key), Some(id)) = (words.next(), words.next()) else {
        return;
    };
    let Ok(number) = id.parse::<i32>() else {
        return;
    };
    // Its processes are on their way out.
    for _ in 0..20 {
        // Key, number, mode, bytes, creator, last user, processes that have it, owner and group, those of who made it.
        let all = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
        let mut rows = all
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>());
        // The number may belong to somebody else by now: then its key does not fit.
        match rows.find(|r| r.get(..2) == Some(&[key, id])) {
            Some(row) if [7, 9].iter().any(|i| row.get(*i) != Some(&&*owner)) => return,
            Some(row) if row.get(6) == Some(&"0") => {
                // SAFETY: removes a segment that nobody uses, made for the server in this directory.
                unsafe { libc::shmctl(number, libc::IPC_RMID, std::ptr::null_mut()) };
                return;
            }
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
            None => return,
        }
    }
}

/// What is in a file, and whose it is; nothing behind a link.
fn owned(path: &Path) -> Option<(String, u32)> {
    let file = fathom_files::open::for_reading(path, libc::O_NOFOLLOW).ok()?;
    let owner = file.metadata().ok()?.uid();
    Some((std::io::read_to_string(file).ok()?, owner))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn a_segment_goes_with_its_directory_only_where_both_have_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data/postmaster.pid");
        fs::create_dir(dir.path().join("data")).unwrap();
        let key = 0x7a00_0000 | std::process::id() as i32;
        // SAFETY: makes a segment of one page that no process has.
        let id = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) };
        assert!(id >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: asks for it by its key; nothing is made.
        let there = || unsafe { libc::shmget(key, 0, 0) } == id;
        let name = format!("1\n\n\n\n\n\n {key} {id}\n");
        fs::write(&file, &name).unwrap();
        if crate::programs::is_root() {
            chown(&file, Some(1), None).unwrap();
            release(dir.path());
            assert!(there(), "it belongs to somebody else than the file does");
            chown(&file, Some(0), None).unwrap();
        }
        fs::write(&file, name.replace(&key.to_string(), "7")).unwrap();
        release(dir.path());
        assert!(there(), "its key is another");
        fs::write(&file, &name).unwrap();
        release(dir.path());
        assert!(!there());
    }
}
