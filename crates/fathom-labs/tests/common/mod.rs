//! What tests in guests share: the kernel that `./test` made ready, the fathom that was built, programs of this machine.
#![allow(dead_code, unreachable_pub)] // every test program uses another part of this

use std::path::{Path, PathBuf};

use fathom_system::guest::{Guest, Supply, Tool};

#[path = "../../../fathom-host/tests/common/mod.rs"]
mod machine;

pub use machine::skip;

/// The kernel that `FATHOM_GUEST_KERNEL` names (bench/devices), or that was made ready, where it is there.
pub fn kernel() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FATHOM_GUEST_KERNEL") {
        return Some(named.into());
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    Some(target.join("guest-kernel")).filter(|p| p.exists())
}

/// All that a guest needs; `None`, said aloud, where a part is missing.
pub fn supply() -> Option<Supply> {
    // Beside the directory of tests.
    let own = std::env::current_exe().unwrap();
    let fathom = own.ancestors().nth(2).unwrap().join("fathom");
    Supply::find(kernel().as_deref(), Some(&fathom))
        .map_err(|e| skip(&e.to_string()))
        .ok()
}

/// Puts a program of this machine into the guest; `false`, said aloud, where it is not installed.
pub fn bring(guest: &mut Guest, program: &str) -> bool {
    let Some(found) = machine::find(program) else {
        skip(&format!("needs the program {program}"));
        return false;
    };
    Tool::of(&found).unwrap().bring(guest).unwrap();
    true
}
