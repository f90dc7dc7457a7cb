//! Whether this machine can run guest code on its processors.
//!
//! A /dev/kvm that opens proves nothing, nor does a tiny guest that runs: where the machine is itself a guest, its
//! hypervisor may emulate guest code, and a kernel then never boots. So a loop of 20,000 iterations is timed: about
//! 1 ns each on hardware, 1,000 to 6,000 ns where they are emulated.

use std::os::fd::AsRawFd;
use std::path::Path;

/// Who executes guest code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accelerator {
    /// The processors.
    Kvm,
    /// QEMU's translator, and why: no number is a performance figure.
    Tcg(String),
}

impl Accelerator {
    /// QEMU's name for it.
    pub fn option(&self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg(_) => "tcg",
        }
    }

    /// Whether numbers are no performance figures.
    pub fn is_emulated(&self) -> bool {
        matches!(self, Self::Tcg(_))
    }

    /// What this machine can do; takes less than a second, whatever /dev/kvm does.
    pub fn probe() -> Self {
        match loop_ns() {
            Ok(ns) if ns <= HARDWARE_NS => Self::Kvm,
            Ok(ns) => Self::Tcg(format!(
                "/dev/kvm is there, but guest code is emulated below it ({ns:.0} ns per iteration of an empty loop, about 1 expected)"
            )),
            Err(why) => Self::Tcg(why),
        }
    }
}

/// Iterations of the loop.
const ITERATIONS: u16 = 20_000;
/// Slower than this is no hardware.
const HARDWARE_NS: f64 = 20.0;
/// The child gets so long.
const LIMIT_S: u32 = 1;

// linux/kvm.h, for x86-64.
const KVM_CREATE_VM: libc::c_ulong = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: libc::c_ulong = 0xae04;
const KVM_CREATE_VCPU: libc::c_ulong = 0xae41;
const KVM_SET_USER_MEMORY_REGION: libc::c_ulong = 0x4020_ae46;
const KVM_RUN: libc::c_ulong = 0xae80;
const KVM_SET_REGS: libc::c_ulong = 0x4090_ae82;
const KVM_GET_SREGS: libc::c_ulong = 0x8138_ae83;
const KVM_SET_SREGS: libc::c_ulong = 0x4138_ae84;
const PAGE: usize = 4096;

/// `kvm_userspace_memory_region`.
#[repr(C)]
struct Region {
    slot: u32,
    flags: u32,
    guest_address: u64,
    bytes: u64,
    host_address: u64,
}

/// Time of one iteration in a guest, ns; measured in a child process that an alarm ends.
fn loop_ns() -> Result<f64, String> {
    let kvm = fathom_files::open::control(Path::new("/dev/kvm"))
        .map_err(|e| format!("/dev/kvm cannot be opened: {e}"))?;
    let (reader, writer) = std::io::pipe().map_err(|e| e.to_string())?;
    // SAFETY: the child calls only what is safe after a fork of a process with threads: system calls without
    // allocation, and _exit. It never returns from `child`.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(format!(
            "no process could be made: {}",
            std::io::Error::last_os_error()
        )),
        0 => child(kvm.as_raw_fd(), writer.as_raw_fd()),
        pid => {
            drop(writer);
            let mut text = [0; 8];
            let got = std::io::Read::read_exact(&mut &reader, &mut text);
            let mut status = 0;
            // SAFETY: waits for the child made above; the pointer is valid.
            unsafe { libc::waitpid(pid, &mut status, 0) };
            match got {
                Ok(()) if u64::from_ne_bytes(text) != u64::MAX => {
                    Ok(u64::from_ne_bytes(text) as f64 / f64::from(ITERATIONS))
                }
                Ok(()) => Err("/dev/kvm is there, but a loop does not run to its end".into()),
                Err(_) => Err("/dev/kvm is there, but a loop in a guest does not end".into()),
            }
        }
    }
}

/// Times `mov cx, N; loop $; hlt` in real mode, writes ns (or MAX) to `out`, and ends.
fn child(kvm: i32, out: i32) -> ! {
    // SAFETY: an alarm without a handler ends the process: the guest may never return.
    unsafe { libc::alarm(LIMIT_S) };
    let ns = guest_loop(kvm).unwrap_or(u64::MAX);
    let bytes = ns.to_ne_bytes();
    // SAFETY: writes eight bytes of a live array to an open descriptor, then ends without running destructors.
    unsafe {
        libc::write(out, bytes.as_ptr().cast(), bytes.len());
        libc::_exit(0)
    }
}

fn guest_loop(kvm: i32) -> Option<u64> {
    let [low, high] = ITERATIONS.to_le_bytes();
    let code = [0xb9, low, high, 0xe2, 0xfe, 0xf4];
    let map = |fd: i32, bytes: usize, flags: i32| -> Option<*mut u8> {
        // SAFETY: maps memory that nobody else uses; failure is checked.
        let p = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        (p != libc::MAP_FAILED).then_some(p.cast())
    };
    let memory = map(-1, PAGE, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    // SAFETY: `memory` is a page; the code has six bytes.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory, code.len()) };
    let call = |fd: i32, request: libc::c_ulong, argument: usize| -> Option<i32> {
        // SAFETY: each request gets the argument that linux/kvm.h names: a number, or a live structure of its size.
        let r = unsafe { libc::ioctl(fd, request as _, argument) };
        (r >= 0).then_some(r)
    };
    let vm = call(kvm, KVM_CREATE_VM, 0)?;
    let region = Region {
        slot: 0,
        flags: 0,
        guest_address: 0x1000,
        bytes: PAGE as u64,
        host_address: memory as u64,
    };
    call(vm, KVM_SET_USER_MEMORY_REGION, &raw const region as usize)?;
    let cpu = call(vm, KVM_CREATE_VCPU, 0)?;
    let size = call(kvm, KVM_GET_VCPU_MMAP_SIZE, 0)? as usize;
    let run = map(cpu, size, libc::MAP_SHARED)?;
    // kvm_sregs: 312 bytes; cs begins at 0 with its base (u64), and its selector at 12.
    let mut special = [0u64; 39];
    call(cpu, KVM_GET_SREGS, special.as_mut_ptr() as usize)?;
    special[0] = 0;
    special[1] &= 0xffff_0000_ffff_ffff;
    special[1] &= !(0xffff << 32);
    call(cpu, KVM_SET_SREGS, special.as_ptr() as usize)?;
    // kvm_regs: sixteen registers, rip, rflags.
    let mut registers = [0u64; 18];
    (registers[16], registers[17]) = (0x1000, 2);
    call(cpu, KVM_SET_REGS, registers.as_ptr() as usize)?;
    let before = fathom_io::clock::monotonic();
    call(cpu, KVM_RUN, 0)?;
    let after = fathom_io::clock::monotonic();
    // kvm_run: exit_reason at 8; 5 is a halt.
    // SAFETY: the mapping is larger than 12 bytes and written by the kernel before the call returned.
    let reason = unsafe { run.add(8).cast::<u32>().read_volatile() };
    (reason == 5).then(|| after.since(before).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_answers_within_its_limit_and_says_why() {
        let began = fathom_io::clock::monotonic();
        let answer = Accelerator::probe();
        let took = fathom_io::clock::monotonic().since(began);
        println!("{answer:?} in {took}");
        assert!(took.as_secs_f64() < f64::from(LIMIT_S) + 1.5, "{took}");
        if let Accelerator::Tcg(why) = answer {
            assert!(why.contains("/dev/kvm"), "{why}");
        }
    }
}
