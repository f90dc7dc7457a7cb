//! Outputs against what people and others put in their way; every file is compared byte by byte.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::Ordering;

use super::*;

const USERS: &[u8] = b"three years of measurements\n";

fn is_log(head: &[u8]) -> bool {
    head.starts_with(b"log 1\n")
}

const LOG: Existing = Existing::OfKind(is_log);

fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn an_output_appears_whole_and_one_that_is_dropped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let mut out = Output::create(&path, Existing::None).unwrap();
    out.write_all(b"half").unwrap();
    out.flush().unwrap();
    assert!(names(dir.path()).is_empty(), "no name before it is whole");
    drop(out);
    assert!(names(dir.path()).is_empty());
    write(&path, Existing::None, b"whole").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn what_fathom_wrote_is_replaced_and_a_file_of_the_users_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    write(&path, LOG, b"first").unwrap();
    write(&path, LOG, b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    // Changed since: the user's.
    fs::write(&path, USERS).unwrap();
    for existing in [LOG, Existing::OWN, Existing::None, Existing::Alike] {
        let e = write(&path, existing, b"third").unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AlreadyExists, "{e}");
        assert_eq!(fs::read(&path).unwrap(), USERS);
    }
    write(&path, Existing::Any, b"third").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"third");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn an_empty_file_and_one_of_the_kind_are_replaced_and_keep_their_access_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    for content in ["", "log 1\nby another program\n"] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write(&path, LOG, b"log 1\nours\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"log 1\nours\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }
    fs::write(&path, "a,b\n1,2\n").unwrap();
    write(&path, Existing::Alike, b"a,b\n3,4\n").unwrap();
    assert!(write(&path, Existing::Alike, b"a,c\n3,4\n").is_ok(), "ours");
    fs::write(&path, "a,b\n1,2\n").unwrap();
    assert!(write(&path, Existing::Alike, b"a,c\n3,4\n").is_err());
    assert_eq!(fs::read(&path).unwrap(), b"a,b\n1,2\n");
}

#[test]
fn links_pipes_directories_and_what_is_no_name_are_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("users"), USERS).unwrap();
    symlink(at("users"), at("link")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    symlink("/dev/null", at("device")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    let pipe = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status();
    let all = ["link", "dangling", "device", "directory", "pipe"];
    let made = usize::from(pipe.is_ok_and(|s| s.success()));
    for name in &all[..4 + made] {
        for existing in [Existing::Any, Existing::Alike, LOG, Existing::None] {
            let e = write(&at(name), existing, b"x").unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::InvalidInput, "{name}: {e}");
            let e = Output::add_to(&at(name), existing).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::InvalidInput, "{name}: {e}");
        }
    }
    assert!(check(Path::new("/"), Existing::Any).is_err());
    assert!(check(&at(".."), Existing::Any).is_err());
    assert_eq!(fs::read(at("users")).unwrap(), USERS);
    assert!(!at("nowhere").exists());
    assert_eq!(names(dir.path()).len(), 5 + made);
}

#[test]
fn what_holds_nothing_is_written_as_it_comes() {
    write(Path::new("/dev/null"), Existing::None, b"x").unwrap();
    let full = write(Path::new("/dev/full"), Existing::None, b"x").unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    assert!(
        fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device()
    );
    let random = check(Path::new("/dev/random"), Existing::Any).unwrap_err();
    assert_eq!(random.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn what_is_put_in_the_place_while_the_output_is_written_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let began = |existing| {
        let mut out = Output::create(&path, existing).unwrap();
        out.write_all(b"log 1\nnew\n").unwrap();
        out
    };
    let out = began(LOG);
    fs::write(&path, USERS).unwrap();
    assert!(out.commit().is_err());
    assert_eq!(fs::read(&path).unwrap(), USERS);
    assert_eq!(names(dir.path()), ["out"]);
    fs::remove_file(&path).unwrap();

    let out = began(Existing::Any);
    fs::create_dir(&path).unwrap();
    assert!(out.commit().is_err());
    assert!(path.is_dir());
    fs::remove_dir(&path).unwrap();

    // A link in the place of the directory leads nowhere: the directory itself is held.
    let (real, moved) = (dir.path().join("real"), dir.path().join("moved"));
    let other = dir.path().join("other");
    fs::create_dir(&real).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("out"), b"").unwrap();
    let out = Output::create(&real.join("out"), LOG).unwrap();
    fs::rename(&real, &moved).unwrap();
    symlink(&other, &real).unwrap();
    out.commit().unwrap();
    assert!(moved.join("out").exists());
    assert_eq!(fs::metadata(other.join("out")).unwrap().len(), 0);
}

#[test]
fn a_file_that_others_put_there_and_take_away_all_the_time_is_never_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (path, users) = (dir.path().join("out"), dir.path().join("users"));
    fs::write(&users, USERS).unwrap();
    let ours = dir.path().join("ours");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for now in [&users, &ours] {
                    let _ = rustix::fs::renameat_with(CWD, now, CWD, &path, RenameFlags::EXCHANGE);
                }
            }
        });
        for _ in 0..300 {
            let _ = write(&ours, LOG, b"log 1\n");
            let _ = write(&path, LOG, b"log 1\n");
        }
        over.store(true, Ordering::Relaxed);
    });
    let left: Vec<Vec<u8>> = names(dir.path())
        .iter()
        .map(|n| fs::read(dir.path().join(n)).unwrap())
        .collect();
    let kept = left.iter().filter(|c| *c == USERS).count();
    assert_eq!(kept, 1, "{:?}", names(dir.path()));
}

#[test]
fn what_is_published_grows_in_its_place_and_what_is_added_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let mut out = Output::create(&path, LOG).unwrap();
    out.write_all(b"log 1\n").unwrap();
    out.publish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"log 1\n");
    out.write_all(b"more\n").unwrap();
    out.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"log 1\nmore\n");
    for n in 0..2 {
        let mut out = Output::add_to(&path, LOG).unwrap();
        writeln!(out, "added {n}").unwrap();
        out.commit().unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "log 1\nmore\nadded 0\nadded 1\n"
    );
    fs::write(&path, USERS).unwrap();
    assert!(Output::add_to(&path, LOG).is_err());
    let mut out = Output::add_to(&path, Existing::Any).unwrap();
    out.write_all(b"added").unwrap();
    out.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), [USERS, b"added"].concat());
    let fresh = dir.path().join("fresh");
    Output::add_to(&fresh, LOG).unwrap().commit().unwrap();
    assert_eq!(fs::read(&fresh).unwrap(), b"");
    assert_eq!(names(dir.path()), ["fresh", "out"]);
}

#[test]
fn where_files_need_names_an_output_behaves_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let began = |existing| {
        let mut out = Output::create(&path, existing).unwrap();
        let place = out.place.as_mut().unwrap();
        let (file, partial) = with_name(&place.dir).unwrap();
        place.partial = Some(partial);
        out.out = BufWriter::new(file);
        out.write_all(b"log 1\n").unwrap();
        out
    };
    let out = began(LOG);
    assert_eq!(names(dir.path()).len(), 1);
    drop(out);
    assert!(names(dir.path()).is_empty());
    began(LOG).commit().unwrap();
    began(LOG).commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"log 1\n");
    for existing in [LOG, Existing::None] {
        fs::remove_file(&path).unwrap();
        let out = began(existing);
        fs::write(&path, USERS).unwrap();
        assert!(out.commit().is_err());
        assert_eq!(fs::read(&path).unwrap(), USERS);
    }
    began(Existing::Any).commit().unwrap();
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn an_output_is_no_target_that_fathom_would_overwrite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    write(&path, Existing::None, b"x").unwrap();
    assert!(!crate::may_overwrite(&path));
}

#[test]
fn a_temporary_directory_is_new_and_private() {
    let one = crate::create::temporary_dir("fathom-files-test-").unwrap();
    let two = crate::create::temporary_dir("fathom-files-test-").unwrap();
    assert_ne!(one, two);
    assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o700);
    // Those that are there are somebody else's, whatever their names.
    assert!(crate::create::private_dir(&one).is_err());
    let prefix = "fathom-files-trap-";
    let at = |n: u32| std::env::temp_dir().join(format!("{prefix}{}-{n}", std::process::id()));
    let traps: Vec<PathBuf> = (0..20).map(at).collect();
    for (i, trap) in traps.iter().enumerate() {
        match i % 2 {
            0 => fs::create_dir(trap).unwrap(),
            _ => symlink(&one, trap).unwrap(),
        }
    }
    let three = crate::create::temporary_dir(prefix).unwrap();
    assert!(!traps.contains(&three));
    for (i, trap) in traps.iter().enumerate() {
        match i % 2 {
            0 => fs::remove_dir(trap).unwrap(),
            _ => fs::remove_file(trap).unwrap(),
        }
    }
    for dir in [one, two, three] {
        fs::remove_dir(dir).unwrap();
    }
}
