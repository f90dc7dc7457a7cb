//! Tests of the whole: jobs of the driver on simulated targets, against what is published.

use fathom_io::JobSpec;
use fathom_io::driver::{PlannedJob, run_virtual};
use fathom_io::job::{BlockSizes, Limits, Rw};
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::Job;

use crate::{SimTarget, Simulation};

fn run(target: &str, rw: Rw, bs: u64, threads: u32, direct: bool, ms: u64) -> Job {
    let t = SimTarget::parse(target).unwrap();
    let spec = JobSpec {
        rw,
        bs: BlockSizes::one(bs),
        threads,
        direct,
        size: Some(fathom_telemetry::Bytes(20_000 << 20)),
        time: Some(Nanos::from_millis(ms)),
        ramp: Nanos::from_millis(10),
        window: Nanos::from_millis(10),
        ..JobSpec::default()
    };
    let limits = Limits {
        size: t.size(),
        direct_align: 512,
    };
    let jobs = [PlannedJob::new(spec.validate(&limits).unwrap())];
    let mut sim = Simulation::new(&t, 1);
    sim.assign(&jobs);
    run_virtual(&jobs, &mut sim, Nanos::ZERO, "sim", None, &mut ())
        .pop()
        .unwrap()
}

#[test]
fn look() {
    for (t, ms) in [
        ("optane-900p", 200),
        ("intel-s3510", 1000),
        ("ramdisk", 20),
        ("vm:optane-900p", 300),
        ("vm:intel-s3510", 1000),
        ("vm:ramdisk", 20),
    ] {
        let mut seen = Vec::new();
        for n in [1, 2, 4, 6, 8, 9, 10, 11, 12, 14, 16, 20, 24, 32, 64] {
            let d = run(&format!("sim:{t}"), Rw::RandRead, 4096, n, true, ms)
                .read
                .unwrap();
            seen.push((n, d.iops, d.service_ns.mean.unwrap_or(0.0) / 1e3));
        }
        let max = seen.last().unwrap().1;
        println!("{t}: max {max:.0}");
        let base = seen[0].2;
        for (n, i, l) in &seen {
            println!(
                "   {n:3} {i:9.0} {:.3} {l:.2} us  +{:.1}%",
                i / max,
                (l / base - 1.0) * 100.0
            );
        }
    }
    for (l, ns) in [
        (0, vec![2, 4, 6, 8]),
        (1, vec![2, 4, 6, 8]),
        (10, vec![4, 6, 8]),
        (5, vec![3, 4, 6, 8]),
        (6, vec![4, 6, 8]),
    ] {
        for n in ns {
            let t = format!("sim:raid{l}:{n}xoptane-900p");
            let r = |rw, d| {
                let j = run(&t, rw, 512 << 10, 64, d, 200);
                j.read.or(j.write).unwrap().bytes_per_second / 1e9
            };
            println!(
                "{t} bufread {:.2} bufwrite {:.3} read {:.2} write {:.3}",
                r(Rw::RandRead, false),
                r(Rw::RandWrite, false),
                r(Rw::RandRead, true),
                r(Rw::RandWrite, true)
            );
        }
    }
    let d = run("sim:vm6:optane-900p", Rw::RandRead, 4096, 384, true, 200)
        .read
        .unwrap();
    println!("vm6 {}", d.iops);
    for (t, rw, bs) in [
        ("optane-900p", Rw::RandRead, 131072),
        ("optane-900p", Rw::RandWrite, 131072),
        ("intel-s3510", Rw::RandRead, 131072),
        ("intel-s3510", Rw::RandWrite, 131072),
        ("optane-900p", Rw::RandWrite, 4096),
        ("intel-s3510", Rw::RandWrite, 4096),
        ("ramdisk", Rw::RandRead, 131072),
        ("ramdisk", Rw::RandWrite, 4096),
    ] {
        let j = run(&format!("sim:{t}"), rw, bs, 64, true, 300);
        let d = j.read.or(j.write).unwrap();
        println!(
            "{t} {rw:?} {bs} {:.0} MB/s {:.0} IOPS",
            d.bytes_per_second / 1e6,
            d.iops
        );
    }
}
