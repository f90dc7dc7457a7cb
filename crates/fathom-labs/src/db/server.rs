//! A server that the user runs, as an address: where it listens, who asks, and how the way there is kept private. The
//! password comes from a place that nobody else can read, and goes into no file of fathom's.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

pub use super::sql::tls::Tls;
use super::sql::tls::{Asked, Trust};

/// Databases by name.
pub(super) const DATABASES: [&str; 3] = ["mariadb", "postgresql", "sqlite"];

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// MariaDB and MySQL.
    Mysql,
    /// PostgreSQL.
    Postgres,
}

impl Protocol {
    fn scheme(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
        }
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A unix socket, on this machine.
    Socket(PathBuf),
    /// A name or an address, and a port.
    Host(String, u16),
}

/// By libpq's word, MySQL's (`--ssl-mode`) or that of Go's driver (`tls=`). Words that fall back to no TLS are none.
const TLS: [(&str, Tls); 9] = [
    ("disable", Tls::Off),
    ("disabled", Tls::Off),
    ("false", Tls::Off),
    ("require", Tls::Encrypted),
    ("required", Tls::Encrypted),
    ("verify-ca", Tls::Authority),
    ("verify-full", Tls::Full),
    ("verify-identity", Tls::Full),
    ("true", Tls::Full),
];

/// A password, which is not shown.
#[derive(Clone, Default)]
struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Address of a server of the user's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Server {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it listens.
    pub place: Place,
    /// Who asks.
    pub user: String,
    /// Where PostgreSQL lets in who has no database yet; of no use for MySQL.
    pub database: String,
    /// What is checked of its certificate.
    pub tls: Tls,
    /// Certificates of the authorities that are trusted, as PEM; those of this machine where it is not given.
    pub authorities: Option<PathBuf>,
    #[serde(skip)]
    password: Password,
    #[serde(skip)]
    trust: Trust,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Socket(path) => path.display().fmt(f),
            Place::Host(host, port) => {
                let v6 = host.contains(':');
                let (open, close) = if v6 { ("[", "]") } else { ("", "") };
                let scheme = self.protocol.scheme();
                write!(f, "{scheme}://{}@{open}{host}{close}:{port}", self.user)
            }
        }
    }
}

/// A server of the user's own, as it is named.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ServerArgs {
    /// A running server of yours: mysql://USER@HOST[:PORT] or postgres://USER@HOST[:PORT]/DATABASE, with
    /// ?sslmode=verify-full (the default where HOST is not this machine), verify-ca, require or disable and
    /// &sslrootcert=FILE; nothing is started, and all is done in a database that is removed afterwards. The password comes
    /// from FATHOM_DB_PASSWORD, --password-file, ~/.my.cnf, PGPASSWORD or ~/.pgpass
    #[arg(long, value_name = "URL", value_parser = Server::parse)]
    server: Option<Server>,
    /// The same by the path of its socket
    #[arg(long, value_name = "PATH", conflicts_with = "server")]
    socket: Option<PathBuf>,
    /// File whose first line is the password; nobody else may be able to read it
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl ServerArgs {
    /// The server that was named, with its password.
    pub(super) fn find(&self) -> Result<Option<Server>, String> {
        let by_socket = self.socket.as_deref().map(Server::of_socket);
        let file = self.password_file.as_deref();
        match self.server.clone().or(by_socket) {
            Some(server) => server.find_password(file).map(Some),
            None if file.is_some() => {
                Err("--password-file is that of a server of yours: name it with --server".into())
            }
            None => Ok(None),
        }
    }
}

/// One sentence of what is no address.
const EXPECTED: &str = "expected mysql://USER@HOST[:PORT], postgres://USER@HOST[:PORT]/DATABASE, both with ?sslmode=verify-full|verify-ca|require|disable, or the path of a socket";

impl Server {
    /// The database that it is, in the labs' words.
    pub(super) fn called(&self) -> &'static str {
        match self.protocol {
            Protocol::Mysql => DATABASES[0],
            Protocol::Postgres => DATABASES[1],
        }
    }

    /// A server by its socket: PostgreSQL's have a name of their own.
    pub fn of_socket(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let protocol = match name.starts_with(".s.PGSQL.") {
            true => Protocol::Postgres,
            false => Protocol::Mysql,
        };
        Self::at(protocol, Place::Socket(path.to_owned()))
    }

    fn at(protocol: Protocol, place: Place) -> Self {
        Self {
            protocol,
            // Who goes over a network that others share says so where it may be read.
            tls: match &place {
                Place::Host(host, _) if !loops_back(host) => Tls::Full,
                _ => Tls::Off,
            },
            place,
            user: std::env::var("USER").unwrap_or_else(|_| "root".into()),
            database: String::new(),
            authorities: None,
            password: Password::default(),
            trust: Trust::default(),
        }
    }

    /// `mysql://user@host:3306/?ssl-ca=/etc/ca.pem`, `postgres://user@host/db?sslmode=verify-ca`, or a socket's path.
    ///
    /// # Errors
    /// In one sentence: what is no address, a password in it, a word that would fall back to no TLS.
    pub fn parse(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return match url.starts_with(['/', '.']) {
                true => Ok(Self::of_socket(Path::new(url))),
                false => Err(format!("'{url}' is no address of a server: {EXPECTED}")),
            };
        };
        let protocol = match scheme {
            "mysql" | "mariadb" => Protocol::Mysql,
            "postgres" | "postgresql" => Protocol::Postgres,
            _ => return Err(format!("'{scheme}' is no server that is known: {EXPECTED}")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (who, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = who.rsplit_once('@').unwrap_or(("", who));
        if user.contains(':') {
            return Err(
                "a password on the command line can be read by everybody on this machine: leave it out, and set FATHOM_DB_PASSWORD or give --password-file FILE"
                    .into(),
            );
        }
        let mut place = host_of(host, protocol)?;
        let mut me = Self::at(protocol, Place::Socket(PathBuf::new()));
        if !user.is_empty() {
            me.user = decoded(user)?;
        }
        me.database = decoded(path)?;
        let mut tls = None;
        for (key, value) in query.split('&').filter_map(|p| p.split_once('=')) {
            let value = decoded(value)?;
            match key {
                "sslmode" | "ssl-mode" | "ssl_mode" | "tls" => tls = Some(mode(&value)?),
                "sslrootcert" | "ssl-ca" | "ssl_ca" => me.authorities = Some(value.into()),
                "user" => me.user = value,
                "dbname" => me.database = value,
                "socket" => place = Place::Socket(value.into()),
                // libpq's way to say a directory of sockets.
                "host" if value.starts_with('/') => {
                    place = Place::Socket(Path::new(&value).join(".s.PGSQL.5432"));
                }
                "password" => return Err("a password on the command line can be read by everybody on this machine: set FATHOM_DB_PASSWORD or give --password-file FILE".into()),
                _ => {
                    return Err(format!(
                        "'{key}' is not known in the address of a server: expected sslmode (ssl-mode, tls), sslrootcert (ssl-ca), user, dbname, socket, or host with a directory of sockets"
                    ));
                }
            }
        }
        me.tls = Self::at(protocol, place.clone()).tls;
        me.place = place;
        if let Place::Host(..) = me.place {
            me.tls = tls.unwrap_or(match me.authorities {
                Some(_) => Tls::Full,
                None => me.tls,
            });
        }
        // As libpq has it: who names the authorities wants them asked.
        if me.tls == Tls::Encrypted && me.authorities.is_some() {
            me.tls = Tls::Authority;
        }
        Ok(me)
    }

    /// Looks for the password: `file`, the variable FATHOM_DB_PASSWORD, then where the server's own client looks.
    ///
    /// # Errors
    /// A file that cannot be read, or that others can read.
    pub fn find_password(mut self, file: Option<&Path>) -> Result<Self, String> {
        let var = |name: &str| std::env::var(name).ok();
        let home = |name: &str| Some(PathBuf::from(std::env::var_os("HOME")?).join(name));
        let found = match (file, var("FATHOM_DB_PASSWORD"), self.protocol) {
            (Some(file), ..) => {
                let text = private(file)?;
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
            (None, Some(password), _) => Some(password),
            (None, None, Protocol::Mysql) => match home(".my.cnf").filter(|f| f.exists()) {
                Some(f) => of_my_cnf(&private(&f)?),
                None => None,
            },
            (None, None, Protocol::Postgres) => match var("PGPASSWORD") {
                Some(password) => Some(password),
                None => {
                    let file = var("PGPASSFILE").map(PathBuf::from);
                    match file.or_else(|| home(".pgpass")).filter(|f| f.exists()) {
                        Some(f) => self.of_pgpass(&private(&f)?),
                        None => None,
                    }
                }
            },
        };
        self.password = Password(found.unwrap_or_default());
        Ok(self)
    }

    /// The password; empty where there is none.
    pub(super) fn password(&self) -> &str {
        &self.password.0
    }

    /// What TLS to it has to be, where it listens on a host.
    pub(super) fn asked(&self) -> Option<Asked<'_>> {
        match &self.place {
            Place::Socket(_) => None,
            Place::Host(host, _) => Some(Asked {
                tls: self.tls,
                authorities: self.authorities.as_deref(),
                host,
                trust: &self.trust,
                whom: self,
            }),
        }
    }

    /// Whether it is on this machine, as far as its address says.
    pub(super) fn is_here(&self) -> bool {
        match &self.place {
            Place::Socket(_) => true,
            Place::Host(host, _) => loops_back(host),
        }
    }

    /// PostgreSQL's file of passwords: `host:port:database:user:password`, `*` for any, `\` before what is meant as it is.
    fn of_pgpass(&self, text: &str) -> Option<String> {
        let (host, port) = match &self.place {
            Place::Socket(_) => ("localhost".to_owned(), 5432),
            Place::Host(host, port) => (host.clone(), *port),
        };
        let database = match self.database.as_str() {
            "" => "postgres",
            d => d,
        };
        let mine = [&host, &port.to_string(), database, &self.user];
        text.lines().filter(|l| !l.starts_with('#')).find_map(|l| {
            let mut fields = vec![String::new()];
            let mut chars = l.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\\' => fields.last_mut()?.extend(chars.next()),
                    ':' if fields.len() < 5 => fields.push(String::new()),
                    c => fields.last_mut()?.push(c),
                }
            }
            let [their @ .., password] = &fields[..] else {
                return None;
            };
            let fits = their.iter().zip(mine).all(|(t, m)| t == "*" || t == m);
            (their.len() == 4 && fits).then(|| password.clone())
        })
    }
}

fn loops_back(host: &str) -> bool {
    let address: Option<std::net::IpAddr> = host.parse().ok();
    host == "localhost" || address.is_some_and(|a| a.is_loopback())
}

/// `host`, `host:port`, `[address]:port`; nothing is this machine.
fn host_of(text: &str, protocol: Protocol) -> Result<Place, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':')),
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let usual = match protocol {
        Protocol::Mysql => 3306,
        Protocol::Postgres => 5432,
    };
    let port = port.map_or(Ok(usual), str::parse);
    let port = port.map_err(|_| format!("'{text}' has no port that is a number: {EXPECTED}"))?;
    let host = match host {
        "" => "localhost".to_owned(),
        host => decoded(host)?,
    };
    Ok(Place::Host(host, port))
}

fn mode(word: &str) -> Result<Tls, String> {
    let word = word.to_lowercase().replace('_', "-");
    let known = TLS.iter().find(|t| t.0 == word);
    known.map(|t| t.1).ok_or_else(|| match word.as_str() {
        "prefer" | "preferred" | "allow" => format!(
            "sslmode={word} falls back to no TLS without a word: say require, verify-ca, verify-full, or disable"
        ),
        _ => format!("sslmode={word} is not known: expected verify-full, verify-ca, require or disable"),
    })
}

/// `%41` becomes `A`.
fn decoded(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let pair = [bytes.next(), bytes.next()].map(Option::unwrap_or_default);
        let hex = std::str::from_utf8(&pair).ok();
        let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
        out.push(byte.ok_or_else(|| format!("'{text}': two digits were expected after %"))?);
    }
    String::from_utf8(out).map_err(|_| format!("'{text}' is no text"))
}

/// A file that only its owner, who is this user or root, can read.
fn private(file: &Path) -> Result<String, String> {
    let name = file.display();
    let about =
        std::fs::metadata(file).map_err(|e| format!("{name}: the password cannot be read: {e}"))?;
    let me = rustix::process::geteuid().as_raw();
    if about.mode() & 0o077 != 0 || ![me, 0].contains(&about.uid()) {
        return Err(format!(
            "{name}: others can read this password, or could have put it there: chmod 600 {name}, as a file of your own"
        ));
    }
    std::fs::read_to_string(file).map_err(|e| format!("{name}: the password cannot be read: {e}"))
}

/// The password in the sections that MySQL's and MariaDB's clients read.
fn of_my_cnf(text: &str) -> Option<String> {
    let mut mine = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            mine = [
                "[client]",
                "[client-mariadb]",
                "[mysql]",
                "[mariadb-client]",
            ]
            .contains(&line);
        } else if let Some((key, value)) = line.split_once('=').filter(|_| mine)
            && key.trim() == "password"
        {
            let value = value.trim();
            let bare = ['"', '\''].iter().find_map(|q| {
                let inner = value.strip_prefix(*q)?;
                inner.strip_suffix(*q)
            });
            found = Some(bare.unwrap_or(value).to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_what_is_none_is_refused_in_words() {
        let s = Server::parse("mysql://me%40x@db.example:3307/?ssl-ca=/ca.pem").unwrap();
        assert_eq!((s.user.as_str(), s.tls), ("me@x", Tls::Full));
        assert_eq!(s.place, Place::Host("db.example".into(), 3307));
        assert_eq!(s.to_string(), "mysql://me@x@db.example:3307");
        let s = Server::parse("postgresql://u@[::1]/mine?sslmode=require").unwrap();
        assert_eq!((s.database.as_str(), s.tls), ("mine", Tls::Encrypted));
        assert_eq!(s.place, Place::Host("::1".into(), 5432));
        // Over a network it is private and proven, on this machine it need not be.
        assert_eq!(Server::parse("mariadb://u@db").unwrap().tls, Tls::Full);
        assert_eq!(
            Server::parse("mariadb://u@127.0.0.1").unwrap().tls,
            Tls::Off
        );
        let s = Server::parse("postgres://u@db/?sslmode=require&sslrootcert=/ca").unwrap();
        assert_eq!(s.tls, Tls::Authority);
        let s = Server::parse("/run/postgresql/.s.PGSQL.5432").unwrap();
        assert_eq!((s.protocol, s.tls), (Protocol::Postgres, Tls::Off));
        let s = Server::parse("postgres:///d?host=/run/postgresql").unwrap();
        assert_eq!(
            s.place,
            Place::Socket("/run/postgresql/.s.PGSQL.5432".into())
        );
        for (url, said) in [
            ("mysql://u:secret@db", "can be read by everybody"),
            ("postgres://u@db?password=x", "can be read by everybody"),
            ("oracle://u@db", "no server that is known"),
            ("db.example", "no address"),
            ("mysql://u@db:x", "no port"),
            ("postgres://u@db?sslmode=prefer", "falls back"),
            ("postgres://u@db?sslmode=maybe", "is not known"),
            ("mysql://u@db?compress=1", "is not known"),
            ("mysql://u%4@db", "two digits"),
        ] {
            let e = Server::parse(url).unwrap_err();
            assert!(e.contains(said) && !e.contains("secret"), "{url}: {e}");
        }
    }

    #[test]
    fn passwords_come_from_private_files_and_are_never_saved() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "s3cret\n").unwrap();
        let server = || Server::parse("postgres://u@db/d").unwrap();
        let mode = |m| std::fs::set_permissions(&file, PermissionsExt::from_mode(m)).unwrap();
        mode(0o640);
        let e = server().find_password(Some(&file)).unwrap_err();
        assert!(e.contains("chmod 600") && !e.contains("s3cret"), "{e}");
        mode(0o600);
        let s = server().find_password(Some(&file)).unwrap();
        assert_eq!(s.password(), "s3cret");
        let (saved, shown) = (serde_json::to_string(&s).unwrap(), format!("{s:?}{s}"));
        assert!(!saved.contains("s3cret") && !shown.contains("s3cret"));
        let words = "# mine\nother:5432:*:u:no\ndb:*:d:u:a\\:b\n*:*:*:*:last\n";
        assert_eq!(s.of_pgpass(words).as_deref(), Some("a:b"));
        let words = "[mysqld]\npassword=no\n[client]\nuser=u\npassword = \"p=w\"\n";
        assert_eq!(of_my_cnf(words).as_deref(), Some("p=w"));
        assert_eq!(of_my_cnf("[mysqld]\npassword=no\n"), None);
    }
}
