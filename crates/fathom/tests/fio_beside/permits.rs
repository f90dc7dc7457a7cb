//! What a script may write to, by the environment.

use std::process::Command;

use super::common::{Loop, fathom, scratch};

#[test]
fn a_file_of_others_is_written_only_where_the_environment_names_it() {
    let dir = scratch();
    for name in ["named", "other"] {
        std::fs::write(dir.path().join(name), vec![7u8; 65_536]).unwrap();
    }
    std::os::unix::fs::symlink("other", dir.path().join("link")).unwrap();
    let real = dir.path().canonicalize().unwrap();
    let permits = format!("{0}/named:{0}/link", real.display());
    let write = |name: &str| {
        Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args(["fio", "--name=a", "--rw=write", "--bs=4k", "--size=64k"])
            .arg(format!("--filename={name}"))
            .env("FATHOM_FIO_WRITE", &permits)
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    let content = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let out = write("named");
    if String::from_utf8_lossy(&out.stderr).contains("attributes") {
        println!("SKIP a_file_of_others_…: no extended attributes here");
        return;
    }
    assert!(out.status.success(), "{out:?}");
    assert_ne!(content("named"), vec![7u8; 65_536]);
    // It is the user's again: without the variable it is refused as before.
    let again = fathom(
        dir.path(),
        &["--name=a", "--rw=write", "--size=64k", "--filename=named"],
    );
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    // Neither another file nor one behind a link on the list.
    for name in ["other", "link"] {
        let out = write(name);
        assert_eq!(out.status.code(), Some(2), "{name}: {out:?}");
        assert_eq!(content("other"), vec![7u8; 65_536]);
    }
}

#[test]
fn a_device_that_the_environment_names_needs_no_word_on_the_command_line() {
    const TEST: &str = "a_device_that_the_environment_names_needs_no_word_on_the_command_line";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 2) else {
        return;
    };
    for (named, code) in [("/dev/null:/dev/nothing", 2), (device.path.as_str(), 0)] {
        let out = Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args(["fio", "--name=a", "--rw=write", "--bs=64k"])
            .arg(format!("--filename={}", device.path))
            .env("FATHOM_FIO_WRITE", named)
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(code), "{named}: {out:?}");
    }
}
