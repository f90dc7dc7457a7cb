//! Servers that the user runs: passwords, TLS with right and wrong certificates, one database of fathom's own, settings that
//! are tried and put back. Each server is made by the test, on a port of this machine.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::machine::find;
use crate::common::{Place, beside_others, end, send, skip, until, wait};
use crate::db::{found, has, ids, table};
use crate::db_failures::{mariadb, reached};

pub(crate) const SECRET: &str = "s3 cret'";

/// A server, ended with the test.
pub(crate) struct Server {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Each ends its own processes.
        send(self.child.id(), libc::SIGQUIT);
        std::thread::sleep(std::time::Duration::from_millis(300));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is signed by one authority: a certificate of this machine, one of another, one that has expired.
const CERTIFICATES: [(&str, &str, &str); 3] = [
    ("good", "DNS:localhost", "2"),
    ("other", "DNS:other.example", "2"),
    ("old", "DNS:localhost", "-1"),
];

fn certificates(dir: &Path) {
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        command.args(args.split(' ')).current_dir(dir);
        let said = command.stdin(Stdio::null()).output().unwrap();
        assert!(said.status.success(), "openssl {args}: {said:?}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"
    ));
    for (name, of, days) in CERTIFICATES {
        openssl(&format!(
            "req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        let more = format!("subjectAltName={of}\nbasicConstraints=CA:FALSE\n");
        fs::write(dir.join("more"), more).unwrap();
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -extfile more -out {name}.pem"
        ));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

pub(crate) fn quiet(command: &mut Command) -> &mut Command {
    let null = Stdio::null;
    command.stdin(null()).stdout(null()).stderr(null())
}

/// A directory that a server's account can enter, with certificates where there are to be any.
fn directory(tls: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if tls {
        certificates(dir.path());
    }
    dir
}

/// A MariaDB with the certificate of this name.
fn mariadb_with(certificate: Option<&str>) -> Server {
    let dir = directory(certificate.is_some());
    let of = |name: &str| dir.path().join(name).display().to_string();
    let words = SECRET.replace('\'', "''");
    let sql = format!(
        "CREATE USER bench@'127.0.0.1' IDENTIFIED BY '{words}';\nGRANT ALL ON `fathom\\_%`.* TO bench@'127.0.0.1';\n\
         CREATE USER admin@'127.0.0.1' IDENTIFIED BY '{words}';\nGRANT ALL ON *.* TO admin@'127.0.0.1';\n\
         CREATE DATABASE mine;\nCREATE TABLE mine.t (a INT);\nINSERT INTO mine.t VALUES (1), (2);\n"
    );
    fs::write(dir.path().join("init.sql"), sql).unwrap();
    let start = |program: &str, args: &[String]| {
        let mut command = Command::new(find(program).unwrap());
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", of("data")));
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        quiet(command.args(args)).spawn().unwrap()
    };
    let words = [
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
    ];
    let made = start("mariadb-install-db", &words.map(str::to_owned)).wait();
    assert!(made.unwrap().success());
    let port = free_port();
    let mut args = vec![
        format!("--socket={}", of("s")),
        format!("--pid-file={}", of("pid")),
        format!("--init-file={}", of("init.sql")),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--skip-name-resolve".into(),
        "--innodb-buffer-pool-size=16M".into(),
        "--innodb-log-file-size=16M".into(),
    ];
    if let Some(name) = certificate {
        args.push(format!("--ssl-cert={}", of(&format!("{name}.pem"))));
        args.push(format!("--ssl-key={}", of(&format!("{name}.key"))));
    }
    let child = start("mariadbd", &args);
    let server = Server { child, dir, port };
    until("the server is there", || {
        server.dir.path().join("s").exists()
    });
    server
}

impl Server {
    pub(crate) fn url(&self, scheme: &str, user: &str, more: &str) -> String {
        format!("{scheme}://{user}@localhost:{}/{more}", self.port)
    }

    fn verified(&self, scheme: &str, user: &str, mode: &str) -> String {
        let ca = self.dir.path().join("ca.pem");
        self.url(
            scheme,
            user,
            &format!("?sslmode={mode}&sslrootcert={}", ca.display()),
        )
    }

    /// What MariaDB says to its administrator.
    fn mariadb(&self, sql: &str) -> String {
        let mut client = Command::new(find("mariadb").unwrap());
        let said = client
            .arg("--no-defaults")
            .arg(format!("--socket={}", self.dir.path().join("s").display()))
            .args(["-u", "root", "-N", "-B", "-e", sql])
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    /// The same of PostgreSQL.
    pub(crate) fn psql(&self, sql: &str) -> String {
        let said = Command::new(find("psql").unwrap())
            .arg("-h")
            .arg(self.dir.path())
            .args([
                "-p",
                &self.port.to_string(),
                "-U",
                "postgres",
                "-d",
                "postgres",
                "-Atqc",
                sql,
            ])
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }
}

/// Where PostgreSQL's programs are, and its clients': FATHOM_TEST_POSTGRES names those of another version.
pub(crate) fn postgresql() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("FATHOM_TEST_POSTGRES") {
        return Some(dir.into());
    }
    let all = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let bin = all
        .flatten()
        .map(|v| v.path().join("bin"))
        .find(|b| b.join("initdb").exists());
    if bin.is_none() || !has("psql") {
        skip("no PostgreSQL: apt-get install postgresql");
        return None;
    }
    bin
}

pub(crate) fn postgresql_with(bin: &Path, certificate: Option<&str>) -> Server {
    let dir = directory(certificate.is_some());
    let account = rustix::process::geteuid().is_root().then(|| {
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = users.lines().find(|l| l.starts_with("postgres:")).unwrap();
        let ids: Vec<u32> = line
            .split(':')
            .skip(2)
            .take(2)
            .map(|n| n.parse().unwrap())
            .collect();
        (ids[0], ids[1])
    });
    if let Some((user, group)) = account {
        chown(dir.path(), Some(user), Some(group)).unwrap();
        for entry in fs::read_dir(dir.path()).unwrap().flatten() {
            chown(entry.path(), Some(user), Some(group)).unwrap();
        }
    }
    let start = |program: &str, args: &[&str]| {
        let mut command = Command::new(bin.join(program));
        if let Some((user, group)) = account {
            command.uid(user).gid(group);
        }
        quiet(command.args(args).current_dir(dir.path()))
            .spawn()
            .unwrap()
    };
    let made = start(
        "initdb",
        &["-D", "data", "-U", "postgres", "-A", "trust", "--no-sync"],
    )
    .wait();
    assert!(made.unwrap().success());
    let rules = "local all all trust\nhost all md5 all md5\nhost all clear all password\nhost all all all scram-sha-256\n";
    fs::write(dir.path().join("data/pg_hba.conf"), rules).unwrap();
    let port = free_port();
    let place = dir.path().display().to_string();
    let mut settings = vec![
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        format!("unix_socket_directories={place}"),
        "dynamic_shared_memory_type=mmap".into(),
    ];
    if let Some(name) = certificate {
        settings.push("ssl=on".into());
        settings.push(format!("ssl_cert_file={place}/{name}.pem"));
        settings.push(format!("ssl_key_file={place}/{name}.key"));
    }
    let mut args = vec!["-D", "data"];
    settings.iter().for_each(|s| args.extend(["-c", s]));
    let child = start("postgres", &args);
    let server = Server { child, dir, port };
    let socket = server.dir.path().join(format!(".s.PGSQL.{port}"));
    until("the server is there", || {
        let mut ready = Command::new(find("psql").unwrap());
        let ready = ready.args([
            "-h",
            &place,
            "-p",
            &port.to_string(),
            "-U",
            "postgres",
            "-c",
            "SELECT 1",
        ]);
        socket.exists() && quiet(ready).status().unwrap().success()
    });
    let words = SECRET.replace('\'', "''");
    server.psql(&format!(
        "CREATE ROLE bench LOGIN CREATEDB PASSWORD '{words}'; CREATE ROLE clear LOGIN CREATEDB PASSWORD '{words}'; \
         CREATE ROLE poor LOGIN PASSWORD '{words}'; SET password_encryption = md5; CREATE ROLE md5 LOGIN CREATEDB PASSWORD '{words}'"
    ));
    server.psql("CREATE DATABASE mine");
    server
}

/// A short run at an address, with a password.
fn asked(place: &Place, url: &str, password: &str, more: &[&str]) -> Command {
    let args = [
        "db",
        "mysql",
        ".",
        "--rows",
        "1000",
        "--threads",
        "1",
        "--workload",
        "mixed",
        "--time",
        "200ms",
        "--no-embedded",
        "--json",
        "--server",
        url,
    ];
    let mut command = place.command(&[&args[..], more].concat());
    command
        .env("FATHOM_DB_PASSWORD", password)
        .env("HOME", place.base());
    command
}

const ONE: [&str; 4] = ["--experiment", "one", "--repeats", "1"];

/// Tries addresses; each is refused with these words before anything is measured.
fn refused(place: &Place, tries: &[(String, &str, &str)]) {
    for (url, password, said) in tries {
        let refusal = wait(asked(place, url, password, &ONE)).expect(2).stderr;
        assert!(refusal.contains(said), "{url}: {refusal}");
        assert!(!refusal.contains("s3 cret"), "{refusal}");
    }
    assert!(place.names().is_empty(), "{:?}", place.names());
}

/// One that is let in; the password is in no file of the run.
fn measured(place: &Place, url: &str, engine: &str) {
    let said = wait(asked(place, url, SECRET, &ONE));
    assert!(!said.stdout.contains("s3 cret"));
    let Some(json) = found(said) else { return };
    assert_eq!(ids(&json, "sections"), ["oltp-one"], "{url}");
    let section = &json["sections"][0];
    assert!(
        section["title"].as_str().unwrap().starts_with(engine),
        "{section}"
    );
    let rows = table(&json, "oltp-one-server")["rows"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(rows, 1);
}

fn has_openssl() -> bool {
    let there = has("openssl");
    if !there {
        skip("no openssl, which makes the certificates");
    }
    there
}

#[test]
fn a_mariadb_of_the_users_is_reached_with_password_and_tls_and_by_nobody_else() {
    let _turn = beside_others();
    if !mariadb() || !has_openssl() {
        return;
    }
    let place = Place::new();
    let server = mariadb_with(Some("good"));
    let url = |user: &str, mode: &str| server.verified("mysql", user, mode);
    measured(
        &place,
        &server.url("mysql", "bench", ""),
        "InnoDB (MariaDB)",
    );
    measured(&place, &url("bench", "verify-full"), "InnoDB (MariaDB)");
    let by_number = url("bench", "verify-full").replace("localhost", "127.0.0.1");
    refused(
        &place,
        &[
            (
                url("bench", "verify-full"),
                "wrong",
                "Access denied for user 'bench'",
            ),
            (url("bench", "verify-full"), "", "set FATHOM_DB_PASSWORD"),
            (
                server.url("mysql", "bench", "?sslmode=verify-full"),
                SECRET,
                "nobody who is trusted here",
            ),
            (by_number, SECRET, "is of other hosts than 127.0.0.1"),
        ],
    );
    for (certificate, mode, said) in [
        ("old", "verify-full", "has expired"),
        ("other", "verify-full", "is of other hosts than localhost"),
    ] {
        let server = mariadb_with(Some(certificate));
        refused(
            &place,
            &[(server.verified("mysql", "bench", mode), SECRET, said)],
        );
        if certificate == "other" {
            // Who asks for no name has none checked.
            measured(
                &place,
                &server.verified("mysql", "bench", "verify-ca"),
                "InnoDB",
            );
        }
    }
    let bare = mariadb_with(None);
    refused(
        &place,
        &[(
            bare.url("mysql", "bench", "?sslmode=require"),
            SECRET,
            "offers no TLS",
        )],
    );
    assert_eq!(bare.mariadb("SHOW DATABASES LIKE 'fathom%'"), "");
}

#[test]
fn a_postgresql_of_the_users_is_reached_with_password_and_tls_and_by_nobody_else() {
    let _turn = beside_others();
    let Some(bin) = postgresql().filter(|_| has_openssl()) else {
        return;
    };
    let place = Place::new();
    let server = postgresql_with(&bin, Some("good"));
    let full = |user: &str| server.verified("postgres", user, "verify-full");
    for url in [
        server.url("postgres", "md5", ""),
        full("bench"),
        full("clear"),
    ] {
        measured(&place, &url, "PostgreSQL");
    }
    refused(
        &place,
        &[
            (full("bench"), "wrong", "password authentication failed"),
            (full("bench"), "", "set FATHOM_DB_PASSWORD"),
            // A password in clear goes over TLS alone.
            (
                server.url("postgres", "clear", ""),
                SECRET,
                "the connection is not private",
            ),
            (
                server.url("postgres", "bench", "?sslmode=verify-full"),
                SECRET,
                "nobody who is trusted here",
            ),
            (full("poor"), SECRET, "ALTER ROLE poor CREATEDB"),
        ],
    );
    for (certificate, said) in [("old", "has expired"), ("other", "is of other hosts")] {
        let server = postgresql_with(&bin, Some(certificate));
        let url = server.verified("postgres", "bench", "verify-full");
        refused(&place, &[(url, SECRET, said)]);
    }
    let bare = postgresql_with(&bin, None);
    let url = bare.url("postgres", "bench", "?sslmode=require");
    refused(&place, &[(url, SECRET, "offers no TLS")]);
    // Who is believed without a password, and is nobody there.
    let socket = bare.dir.path().join(format!(".s.PGSQL.{}", bare.port));
    let mut stranger = place.command(&["db", "mysql", ".", "--socket", socket.to_str().unwrap()]);
    stranger.env("USER", "stranger");
    let said = wait(stranger).expect(2).stderr;
    assert!(said.contains("role \"stranger\" does not exist"), "{said}");
}

#[test]
fn what_is_tried_on_a_server_of_the_users_is_put_back_also_by_the_run_after_a_killed_one() {
    let _turn = beside_others();
    if !mariadb() {
        return;
    }
    let place = Place::new();
    let server = mariadb_with(None);
    let url = |user: &str| server.url("mysql", user, "");
    let tried = ["--experiment", "try", "--try", "innodb_io_capacity=5000"];
    let consent = [&tried[..], &["--change-server"]].concat();
    let capacity = || server.mariadb("SELECT @@innodb_io_capacity, @@innodb_io_capacity_max");
    let before = (
        capacity(),
        server.mariadb("SHOW DATABASES; CHECKSUM TABLE mine.t"),
    );
    for (user, args, said) in [
        ("admin", &tried[..], "add --change-server"),
        ("bench", &consent, "GRANT SUPER"),
        (
            "admin",
            &[
                "--experiment",
                "try",
                "--try",
                "innodb_log_buffer_size=1m",
                "--change-server",
            ],
            "restart",
        ),
        (
            "admin",
            &[
                "--experiment",
                "try",
                "--try",
                "innodb_doublewrite=0",
                "--change-server",
            ],
            "restart",
        ),
        (
            "admin",
            &[
                "--experiment",
                "try",
                "--try",
                "innodb_flush_log_at_trx_commit=2",
                "--change-server",
            ],
            "what a crash leaves",
        ),
        (
            "admin",
            &[
                "--experiment",
                "try",
                "--try",
                "general_log=1",
                "--change-server",
            ],
            "changes more",
        ),
        (
            "admin",
            &[
                "--experiment",
                "try",
                "--try",
                "innodb_lru_scan_depth=10",
                "--change-server",
            ],
            "the server makes 100 of it",
        ),
    ] {
        let refusal = wait(asked(&place, &url(user), SECRET, args))
            .expect(2)
            .stderr;
        assert!(refusal.contains(said), "{args:?}: {refusal}");
        assert_eq!(capacity(), before.0);
    }
    // One that is killed while the setting is tried.
    let long = [&consent[..], &["--repeats", "9"]].concat();
    let mut command = asked(&place, &url("admin"), SECRET, &long);
    let mut child = quiet(&mut command).spawn().unwrap();
    let id = child.id();
    let changed = reached(&mut child, || {
        let lab = || place.names().iter().any(|n| n.starts_with(".fathom-lab"));
        if !capacity().starts_with("5000") || !lab() {
            return false;
        }
        // It goes on to the next setting in its own time: what holds when it stands still is what it is killed with.
        send(id, libc::SIGSTOP);
        let held = capacity() == "5000\t10000";
        if !held {
            send(id, libc::SIGCONT);
        }
        held
    });
    assert!(changed, "the setting was never tried");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(capacity(), "5000\t10000");
    // The lock is free once the server has seen that its holder is gone.
    let lock = format!("SELECT IS_FREE_LOCK('fathom_{id}')");
    until("the lock is free", || server.mariadb(&lock) == "1");
    let args = [&consent[..], &["--repeats", "2"]].concat();
    let said = wait(asked(&place, &url("admin"), SECRET, &args));
    assert!(
        said.stderr
            .contains(&format!("removed the database fathom_{id}")),
        "{}",
        said.stderr
    );
    let after = (
        capacity(),
        server.mariadb("SHOW DATABASES; CHECKSUM TABLE mine.t"),
    );
    assert_eq!(after, before);
    if let Some(json) = found(said) {
        let rows = table(&json, "oltp-try-tried")["rows"]
            .as_array()
            .unwrap()
            .clone();
        assert_eq!(rows.len(), 1, "{rows:?}");
    }
}

#[test]
fn in_a_postgresql_of_the_users_only_fathoms_own_database_is_made_and_removed() {
    let _turn = beside_others();
    let Some(bin) = postgresql() else { return };
    let place = Place::new();
    let server = postgresql_with(&bin, None);
    let databases = || server.psql("SELECT datname FROM pg_database ORDER BY 1");
    // Nobody's: without the mark, and with it and a stranger inside.
    server.psql("CREATE DATABASE fathom_4000000001 OWNER bench");
    server.psql("CREATE DATABASE fathom_4000000002 OWNER bench");
    server.psql("COMMENT ON DATABASE fathom_4000000002 IS 'made by fathom, removed by fathom'");
    let mut stranger = Command::new(find("psql").unwrap());
    let stranger = stranger.arg("-h").arg(server.dir.path());
    let stranger = stranger.args([
        "-p",
        &server.port.to_string(),
        "-U",
        "bench",
        "-d",
        "fathom_4000000002",
    ]);
    assert!(
        quiet(stranger.args(["-c", "CREATE SEQUENCE accounts"]))
            .status()
            .unwrap()
            .success()
    );
    let before = databases();
    let url = server.url("postgres", "bench", "");
    let long = [&ONE[..2], &["--repeats", "9"]].concat();
    let mut command = asked(&place, &url, SECRET, &long);
    let mut child = quiet(&mut command).spawn().unwrap();
    let name = format!("fathom_{}", child.id());
    let active = format!("SELECT count(*) > 2 FROM pg_stat_activity WHERE datname = '{name}'");
    assert!(
        reached(&mut child, || server.psql(&active) == "t"),
        "it never began"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(databases().contains(&name));
    let gone = format!("SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = '{name}'");
    until("its sessions have ended", || server.psql(&gone) == "t");
    for (setting, said) in [
        ("shared_buffers=1GB", "takes a restart"),
        ("max_wal_size=2GB", "ALTER SYSTEM"),
        ("commit_delay=10", "GRANT SET ON PARAMETER"),
        ("nonsense=1", "is no setting"),
    ] {
        let refusal = wait(asked(
            &place,
            &url,
            SECRET,
            &["--experiment", "try", "--try", setting],
        ))
        .expect(2);
        assert!(
            refusal.stderr.contains(said),
            "{setting}: {}",
            refusal.stderr
        );
    }
    // The first of these has removed what was left; nothing else has gone.
    assert_eq!(databases(), before);
    let args = [
        "--experiment",
        "try",
        "--try",
        "synchronous_commit=off",
        "--repeats",
        "2",
    ];
    let said = end(asked(&place, &url, SECRET, &args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap());
    if let Some(json) = found(said) {
        let rows = table(&json, "oltp-try-tried")["rows"]
            .as_array()
            .unwrap()
            .clone();
        assert_eq!(rows.len(), 1, "{rows:?}");
    }
    assert_eq!(databases(), before);
}
