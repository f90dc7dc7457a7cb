//! fio's options that belong to one engine; elsewhere fio does not know them.
//!
//! Names, aliases, types, bounds and defaults are fio's; the last two columns say what becomes of each.

use super::{Fate::*, Kind::*, OptionDef, def};

/// Engines of sockets.
const NET: &[&str] = &["net", "netsplice"];

#[rustfmt::skip]
pub(super) const ENGINES: &[OptionDef] = &[
    def("hipri", "", Flag, "", Mapped, "iopoll; calls carry RWF_HIPRI with pvsync2", &["io_uring", "io_uring_cmd", "pvsync2"]),
    def("readfua", "", Bool, "0", Refused, "not available", &["io_uring", "io_uring_cmd"]),
    def("writefua", "", Bool, "0", Refused, "use sync=dsync", &["io_uring", "io_uring_cmd"]),
    def("write_mode", "", Free, "write", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("verify_mode", "", Choice(&["read", "compare"]), "read", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("fixedbufs", "", Flag, "", Mapped, "without it plain-buffers, unless sqthread_poll is set", &["io_uring", "io_uring_cmd"]),
    def("registerfiles", "", Flag, "", Mapped, "without it plain-files, unless sqthread_poll is set", &["io_uring", "io_uring_cmd"]),
    def("sqthread_poll", "", Flag, "", Mapped, "sqpoll", &["io_uring", "io_uring_cmd"]),
    def("sqthread_poll_cpu", "", Int(0, 0), "", Harmless, "the kernel chooses", &["io_uring", "io_uring_cmd"]),
    def("nonvectored", "", Int(0, 0), "-1", Harmless, "no vectors", &["io_uring", "io_uring_cmd"]),
    def("uncached", "", Int(0, 0), "", Mapped, "uncached", &["io_uring", "io_uring_cmd", "pvsync2"]),
    def("nowait", "", Bool, "", Mapped, "nowait", &["io_uring", "io_uring_cmd", "libaio", "pvsync2"]),
    def("force_async", "", Int(0, 0), "", Mapped, "force-async: every so many", &["io_uring", "io_uring_cmd"]),
    def("cmd_type", "", Choice(&["nvme", "bsg"]), "nvme", Refused, "only nvme", &["io_uring", "io_uring_cmd"]),
    def("cdb_len", "", Choice(&["0", "10", "16", "32"]), "0", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("verify_bytchk", "", Choice(&["0", "1", "3"]), "0", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("read_mode", "", Choice(&["read", "prefetch"]), "read", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("md_per_io_size", "", Int(0, 0), "0", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("pi_act", "", Bool, "1", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("pi_chk", "", Text, "", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("apptag", "", Int(0, 0), "0x1234", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("apptag_mask", "", Int(0, 0), "0xffff", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("deac", "", Bool, "0", Refused, "not available: it belongs to commands of io_uring_cmd", &["io_uring", "io_uring_cmd"]),
    def("cpuload", "cpu_load", Int(0, 0), "0", Mapped, "share of the time in which a processor is kept busy, percent", &["cpuio"]),
    def("cpumode", "", Choice(&["noop", "qsort"]), "noop", Refused, "a processor is kept busy without touching memory: cpumode=noop", &["cpuio"]),
    def("cpuchunks", "cpuchunk", Int(0, 0), "50000", Mapped, "busy time at a piece, microseconds", &["cpuio"]),
    def("exit_on_io_done", "exit_io_done", Bool, "0", Mapped, "ends when no job with I/O runs any more", &["cpuio"]),
    def("userspace_reap", "", Flag, "", Harmless, "io_getevents is called every time", &["libaio"]),
    def("libaio_vectored", "", Bool, "", Harmless, "no vectors", &["libaio"]),
    def("thp", "", Int(0, 0), "", Harmless, "huge pages where possible", &["mmap"]),
    def("hipri_percentage", "", Int(0, 100), "100", Mapped, "hipri-share", &["pvsync2"]),
    def("cmdprio_percentage", "", Int(0, 100), "", Mapped, "I/O priorities of single I/Os", &["io_uring", "io_uring_cmd", "libaio"]),
    def("cmdprio_class", "", Int(0, 3), "", Mapped, "I/O priorities of single I/Os", &["io_uring", "io_uring_cmd", "libaio"]),
    def("cmdprio_hint", "", Int(0, 1023), "", Mapped, "I/O priorities of single I/Os", &["io_uring", "io_uring_cmd", "libaio"]),
    def("cmdprio", "", Int(0, 7), "", Mapped, "I/O priorities of single I/Os", &["io_uring", "io_uring_cmd", "libaio"]),
    def("cmdprio_bssplit", "", Text, "", Mapped, "I/O priorities of single I/Os", &["io_uring", "io_uring_cmd", "libaio"]),
    def("stat_type", "", Choice(&["stat", "lstat", "statx"]), "stat", Mapped, "the call that looks a name up", &["filestat", "dirstat"]),
    def("program", "", Text, "", Mapped, "what is run", &["exec"]),
    def("arguments", "", Text, "", Mapped, "with %r and %n as in fio", &["exec"]),
    def("grace_time", "", Int(0, 0), "1", Mapped, "seconds between SIGTERM and SIGKILL", &["exec"]),
    def("std_redirect", "", Bool, "1", Mapped, "JOB.stdout and JOB.stderr; without it what it says goes to standard error", &["exec"]),
    def("hostname", "", Text, "", Mapped, "who to connect to, a multicast group, or the path of a unix socket", NET),
    def("port", "", Int(1, 65535), "", Mapped, "of tcp and udp; each clone has its own", NET),
    def("protocol", "proto", Choice(&["tcp", "tcpv6", "udp", "udpv6", "unix", "vsock"]), "tcp", Mapped, "vsock is refused", NET),
    def("nodelay", "", Bool, "0", Mapped, "TCP_NODELAY", NET),
    def("listen", "", Flag, "", Mapped, "waits for others (tcp)", NET),
    def("pingpong", "", Flag, "", Mapped, "each I/O is answered", NET),
    def("interface", "", Text, "", Mapped, "address of the interface for multicast", NET),
    def("ttl", "", Int(0, 0), "1", Mapped, "of multicast", NET),
    def("window_size", "", Int(0, 0), "", Mapped, "socket buffers", NET),
    def("mss", "", Int(0, 0), "", Refused, "the kernel chooses the size of segments", NET),
];
