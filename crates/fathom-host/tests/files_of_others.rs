//! A file is only overwritten if fathom made it and nobody has put it to use since.

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use common::{Disk, Loop, possible, run, skip, try_run, turn};
use fathom_host::refusal::Refusal;
use fathom_host::{Provenance, create_file, may_overwrite, open_file_for_write};

fn refusal(path: &Path) -> Refusal {
    let before = fs::read(path).ok();
    let refusal = open_file_for_write(path).expect_err("was let through");
    assert_eq!(fs::read(path).ok(), before, "the file changed");
    assert!(refusal.to_string().contains(';'), "no remedy in: {refusal}");
    refusal
}

#[test]
fn a_file_that_fathom_made_may_be_overwritten_also_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made");
    let made = create_file(&path).unwrap();
    if !made.marked {
        return skip("the directory for temporary files has no user xattrs");
    }
    made.file.set_len(8192).unwrap();
    assert!(may_overwrite(&path));
    let Provenance::Fathom(text) = fathom_host::mark::provenance(&made.file).unwrap() else {
        panic!("no mark");
    };
    assert!(
        text.starts_with("fathom ") && text.contains("Z run="),
        "{text}"
    );
    let renamed = dir.path().join("renamed");
    fs::rename(&path, &renamed).unwrap();
    let permit = open_file_for_write(&renamed).unwrap();
    permit.file.write_all_at(b"new", 0).unwrap();
    symlink(&renamed, &path).unwrap();
    assert_eq!(
        open_file_for_write(&path).unwrap().path,
        renamed.canonicalize().unwrap()
    );
}

#[test]
fn a_file_of_somebody_else_is_refused_and_so_is_making_it_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("thesis.txt");
    fs::write(&path, "years of work").unwrap();
    assert!(!may_overwrite(&path));
    assert!(matches!(refusal(&path), Refusal::ForeignFile { .. }));
    assert!(matches!(
        create_file(&path).unwrap_err(),
        Refusal::Exists { .. }
    ));
    // A mark with other words is not fathom's.
    let _ = rustix::fs::setxattr(
        &path,
        "user.fathom.made",
        b"by hand",
        rustix::fs::XattrFlags::empty(),
    );
    assert!(!may_overwrite(&path));
    assert_eq!(fs::read(&path).unwrap(), b"years of work");
    assert!(!may_overwrite(dir.path()));
    assert!(!may_overwrite(&dir.path().join("missing")));
    assert!(matches!(
        refusal(dir.path()),
        Refusal::NotRegularFile { .. }
    ));
    assert!(matches!(
        open_file_for_write(Path::new("/no/such/file")).unwrap_err(),
        Refusal::Missing { .. }
    ));
}

#[test]
fn a_file_that_fathom_made_and_somebody_put_to_use_is_refused() {
    let _turn = turn();
    if !possible(&["mkfs.ext4", "mkswap"]) {
        return;
    }
    let disk = Disk::new(1);
    let path = disk.beside("made");
    let made = create_file(&path).unwrap();
    if !made.marked {
        return skip("the directory for temporary files has no user xattrs");
    }
    made.file.write_all_at(&vec![0; 8 << 20], 0).unwrap();
    made.file.sync_all().unwrap();
    {
        let device = Loop::of(&path);
        match refusal(&path) {
            Refusal::FileInUse { used, .. } => assert!(used.contains(device.name()), "{used}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(open_file_for_write(&path).is_ok());
    let name = path.to_str().unwrap();
    run("mkfs.ext4", &["-q", "-F", name]);
    assert!(
        matches!(refusal(&path), Refusal::FileInUse { .. }),
        "an image with a file system"
    );
    run("wipefs", &["--all", "--quiet", name]);
    // mkfs punched holes, which a swap file must not have.
    made.file.write_all_at(&vec![0; 8 << 20], 0).unwrap();
    made.file.sync_all().unwrap();
    let _ = try_run("chmod", &["600", name]);
    run("mkswap", &["-q", name]);
    if let Err(e) = try_run("swapon", &[name]) {
        return skip(&format!("no swap file can be used: {e}"));
    }
    let refused = std::panic::catch_unwind(|| open_file_for_write(&path).unwrap_err());
    run("swapoff", &[name]);
    match refused.unwrap() {
        Refusal::FileInUse { used, .. } => assert_eq!(used, "swap"),
        other => panic!("{other:?}"),
    }
}
