//! What the databases' labs need of this machine where they run in a guest: programs of servers, and what these read.

use std::path::{Path, PathBuf};

use fathom_system::guest::Tools;
use fathom_system::programs;

use super::{cluster, mariadb};
use crate::LabError;

/// What the scripts and programs that make a data directory start.
const HELPERS: [&str; 9] = [
    "basename", "cat", "chmod", "chown", "dirname", "mkdir", "rm", "sed", "uname",
];

/// Of a lab, as its runs call it; those that need nothing get nothing. Of several databases those come that are here: the lab
/// says in the guest what it left out.
///
/// # Errors
/// Where a program that is here cannot be read.
pub fn tools(lab: &str) -> Result<Tools, LabError> {
    let all = match lab {
        "db-mysql" => mariadb_tools()?,
        "db-tpcc" | "db-sql" => mariadb_tools()?.and(postgres_tools()?),
        "db-rocksdb" => match programs::find("db_bench") {
            Some(path) => Tools::default().program(&path)?,
            None => Tools::default(),
        },
        _ => Tools::default(),
    };
    Ok(all)
}

fn mariadb_tools() -> Result<Tools, LabError> {
    if mariadb::probe().is_err() {
        return Ok(Tools::default());
    }
    let mut all = Tools::for_scripts(&HELPERS)?
        .named("mariadbd")?
        .named("mariadb-install-db")?
        .named("my_print_defaults")?;
    // The installer wants the name of its machine to be known.
    if let Some(path) = programs::find("resolveip") {
        all = all.program(&path)?;
    }
    // Where packages keep messages and the tables that a new data directory gets.
    for dir in ["/usr/share/mysql", "/usr/share/mariadb"].map(Path::new) {
        if dir.is_dir() {
            all = all.directory(dir, &|_| true)?;
        }
    }
    Ok(all)
}

fn postgres_tools() -> Result<Tools, LabError> {
    let (Some(server), Some(init)) = (
        cluster::program("postgres", None),
        cluster::program("initdb", None),
    ) else {
        return Ok(Tools::default());
    };
    // As pg_config says it: its programs lie beside each other, and know their directories from there.
    let real = server.canonicalize().unwrap_or(server);
    let mut all = Tools::for_scripts(&HELPERS)?
        .program(&real)?
        .program(&init)?;
    let (Some(home), Some(version)) = (
        real.ancestors().nth(2),
        real.ancestors().nth(2).and_then(Path::file_name),
    ) else {
        return Ok(all);
    };
    let share = Path::new("/usr/share/postgresql").join(version);
    for dir in [home.join("share"), share] {
        if dir.is_dir() {
            all = all.directory(&dir, &|_| true)?;
        }
    }
    // Without its compiler, which brings half a gigabyte, statements are interpreted.
    let wanted =
        |path: &Path| path.extension().is_some_and(|e| e == "so") && !path.ends_with("llvmjit.so");
    let lib: PathBuf = home.join("lib");
    if lib.is_dir() {
        all = all.directory(&lib, &wanted)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_the_servers_that_are_here() {
        assert_eq!(tools("kv").unwrap(), Tools::default());
        let here = mariadb::probe().is_ok();
        assert_eq!(tools("db-mysql").unwrap() != Tools::default(), here);
        let server = programs::find("mariadbd");
        let all = tools("db-tpcc").unwrap();
        assert!(server.is_none_or(|s| !here || all.paths().any(|p| p == s)));
    }
}
