//! What tests in guests share: the kernel and the static binary that `./test` made ready, and programs of this machine.
#![allow(dead_code, unreachable_pub)] // every test program uses another part of this

use std::path::{Path, PathBuf};

use fathom_system::guest::{Guest, Supply, Tool};

#[path = "../../../fathom-host/tests/common/mod.rs"]
mod machine;

pub use machine::skip;

/// Kernel and static binary, where they are.
pub fn parts() -> [Option<PathBuf>; 2] {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    ["guest-kernel", "x86_64-unknown-linux-musl/guest/fathom"]
        .map(|p| Some(target.join(p)).filter(|p| p.exists()))
}

/// All that a guest needs; `None`, said aloud, where a part is missing.
pub fn supply() -> Option<Supply> {
    let [kernel, binary] = parts();
    Supply::find(kernel.as_deref(), binary.as_deref())
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
