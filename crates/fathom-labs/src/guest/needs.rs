//! What another lab needs of a machine in which it runs: programs of this one, a file system, and memory for both.

use std::path::PathBuf;

use fathom_system::filesystem::FileSystem;
use fathom_system::guest::{Machine, Tools};
use fathom_system::packages;
use fathom_system::programs;
use fathom_telemetry::Bytes;

use crate::LabError;
use crate::db::tools;

/// Memory of a machine with servers: they, the files that they are made of, and what they cache.
const MEMORY: Bytes = Bytes::gib(2);

/// Programs, with all that they are linked with and read, and a file system.
#[derive(Debug, Clone)]
pub struct Needs {
    tools: Tools,
    file_system: Option<&'static FileSystem>,
}

impl Needs {
    /// Of a lab, as its runs call it, in a file system where there is one to be made, with files that its options name.
    ///
    /// # Errors
    /// Where a program is missing here.
    pub fn of(
        lab: &str,
        file_system: Option<&'static FileSystem>,
        files: &[PathBuf],
    ) -> Result<Self, LabError> {
        let mut tools = tools::tools(lab)?;
        for file in files {
            tools = tools.given(file);
        }
        if let Some(fs) = file_system {
            let mkfs = format!("mkfs.{}", fs.name);
            let path = programs::find(&mkfs).ok_or_else(|| LabError::Missing {
                what: format!("{mkfs} is not installed"),
                remedy: packages::install(fs.package),
            })?;
            tools = tools.program(&path)?.named("mount")?;
        }
        Ok(Self { tools, file_system })
    }

    /// Memory that a machine should have, where nobody chose it; none where only fathom runs in it.
    pub(crate) fn memory(&self) -> Bytes {
        match self.tools == Tools::default() {
            true => Bytes(0),
            false => MEMORY,
        }
    }

    /// Puts it into a machine that is to be booted.
    pub(crate) fn give(&self, machine: &mut Machine) {
        machine.tools = std::mem::take(&mut machine.tools).and(self.tools.clone());
        let module = self.file_system.map(|fs| fs.name.to_owned());
        machine.modules.extend(module);
    }
}
