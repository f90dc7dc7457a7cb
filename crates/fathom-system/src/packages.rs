//! What brings a missing program, in the words of the distribution that runs here.

use std::sync::OnceLock;

/// Fedora's names where they are not Debian's.
const FEDORA: &[(&str, &str)] = &[
    ("default-jdk-headless", "java-latest-openjdk-devel"),
    ("mariadb-client-core", "mariadb"),
    ("mariadb-server-core", "mariadb-server"),
    ("musl-tools", "musl-gcc"),
    ("postgresql", "postgresql-server"),
    ("qemu-system-x86", "qemu-system-x86-core"),
];

/// A family of distributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Debian,
    Fedora,
    Other,
}

/// The command that installs packages, named as Debian names them: `apt-get install xfsprogs lvm2`.
pub fn install(debian: &str) -> String {
    static HERE: OnceLock<Family> = OnceLock::new();
    let family = *HERE
        .get_or_init(|| family(&std::fs::read_to_string("/etc/os-release").unwrap_or_default()));
    command(family, debian)
}

fn command(family: Family, debian: &str) -> String {
    let fedora = |name| FEDORA.iter().find(|f| f.0 == name).map_or(name, |f| f.1);
    match family {
        Family::Debian => format!("apt-get install {debian}"),
        Family::Fedora => {
            let names: Vec<&str> = debian.split(' ').map(fedora).collect();
            format!("dnf install {}", names.join(" "))
        }
        Family::Other => format!("install what Debian calls {debian}"),
    }
}

/// By `ID` and `ID_LIKE` of os-release(5).
fn family(os_release: &str) -> Family {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|l| l.strip_prefix(key));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let ids = format!("{} {}", value("ID="), value("ID_LIKE="));
    let is = |names: &[&str]| ids.split_whitespace().any(|id| names.contains(&id));
    if is(&["debian", "ubuntu"]) {
        Family::Debian
    } else if is(&["fedora", "rhel", "centos"]) {
        Family::Fedora
    } else {
        Family::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_gets_its_own_command_and_names() {
        // First lines of the files of Debian 12, Ubuntu 24.04, Fedora 41, Rocky 9 and Arch.
        for (text, said) in [
            (
                "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n",
                "apt-get install mariadb-server-core lvm2",
            ),
            (
                "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n",
                "apt-get install mariadb-server-core lvm2",
            ),
            (
                "NAME=\"Fedora Linux\"\nID=fedora\n",
                "dnf install mariadb-server lvm2",
            ),
            (
                "NAME=\"Rocky Linux\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                "dnf install mariadb-server lvm2",
            ),
            (
                "NAME=\"Arch Linux\"\nID=arch\n",
                "install what Debian calls mariadb-server-core lvm2",
            ),
            ("", "install what Debian calls mariadb-server-core lvm2"),
        ] {
            assert_eq!(command(family(text), "mariadb-server-core lvm2"), said);
        }
    }
}
