//! SIGBUS while a mapped file is copied becomes a failed copy.
//!
//! The kernel sends it where a mapped page cannot be had: the file was shortened, its disk is full behind a hole, the
//! medium failed. Nobody else is to be spared it: a signal at any other address takes its former way.
//!
//! Invariant: `FROM` and `TO` of a thread name a mapping of its own exactly while that thread copies from or to it, so
//! that replacing a page between them by an empty one can change nothing but that copy, which then counts as failed.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

thread_local! {
    // Without destructors and made by constants: reading them in a signal handler is one load.
    static FROM: AtomicUsize = const { AtomicUsize::new(0) };
    static TO: AtomicUsize = const { AtomicUsize::new(0) };
    static FAILED: AtomicBool = const { AtomicBool::new(false) };
}

static PAGE: AtomicUsize = AtomicUsize::new(4096);
/// Who had the signal before; `None` where the handler could not be set.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// Sets the handler, once for the process.
pub(super) fn prepare() {
    BEFORE.get_or_init(|| {
        // SAFETY: asks for a number.
        if let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) {
            PAGE.store(page, Ordering::Relaxed);
        }
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both structures are valid and initialised as the call wants them; the handler has the signature that
        // SA_SIGINFO asks for and does only what a handler may.
        unsafe {
            let mut now: libc::sigaction = MaybeUninit::zeroed().assume_init();
            now.sa_sigaction = handler as *const () as usize;
            now.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            (libc::sigaction(libc::SIGBUS, &now, before.as_mut_ptr()) == 0)
                .then(|| before.assume_init())
        }
    });
}

/// Copies with pages of a mapping of `len` bytes at `base`; whether all of them could be had. Where not, what was
/// copied is worth nothing, and the pages must be mapped again before they are used.
pub(super) fn copied(base: *mut u8, len: usize, copy: impl FnOnce()) -> bool {
    FAILED.with(|f| f.store(false, Ordering::Relaxed));
    TO.with(|t| t.store(base as usize + len, Ordering::Relaxed));
    FROM.with(|f| f.store(base as usize, Ordering::Relaxed));
    // The handler runs on this thread: order for the compiler is enough.
    compiler_fence(Ordering::SeqCst);
    copy();
    compiler_fence(Ordering::SeqCst);
    FROM.with(|f| f.store(0, Ordering::Relaxed));
    TO.with(|t| t.store(0, Ordering::Relaxed));
    !FAILED.with(|f| f.load(Ordering::Relaxed))
}

/// Puts an empty page in the place of one that cannot be had, where this thread copies; else gives the signal back.
extern "C" fn handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid structure, and this signal's has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    let (from, to) = (
        FROM.with(|f| f.load(Ordering::Relaxed)),
        TO.with(|t| t.load(Ordering::Relaxed)),
    );
    let page = PAGE.load(Ordering::Relaxed);
    if from != 0 && (from..to).contains(&at) {
        let start = at & !(page - 1);
        // SAFETY: the page lies in a mapping of the thread that was interrupted (see the invariant above); mmap is a
        // plain system call.
        let put = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if put != libc::MAP_FAILED {
            FAILED.with(|f| f.store(true, Ordering::Relaxed));
            return;
        }
    }
    // Whoever had it before gets it when the instruction is tried again.
    if let Some(Some(before)) = BEFORE.get() {
        // SAFETY: the structure is the one that the system gave.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    } else {
        // SAFETY: as the process was without this module.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
