//! `fathom devices`: what is there, what it is, whether it is safe to use.

use fathom_host::devices::nvme::{Format, Nvme};
use fathom_host::health::latency::Latency;
use fathom_host::health::logs::{self, Logs};
use fathom_host::refusal::shell_word;
use fathom_host::{Access, BlockDevice, HostRoot};
use fathom_telemetry::Bytes;

use crate::cli::DevicesArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

pub(crate) fn devices(args: &DevicesArgs) -> Outcome {
    let mut devices = fathom_host::block_devices().map_err(refused)?;
    if !args.all {
        devices.retain(|d| d.size_bytes > 0);
    }
    let mounts =
        fathom_host::mounts::MountTable::read(&fathom_host::HostRoot::real()).map_err(refused)?;
    if args.json {
        let disks = || devices.iter().filter(|d| d.parent.is_none());
        let health: Vec<_> = disks()
            .map(|d| fathom_host::health::read(&HostRoot::real(), &d.name))
            .filter(|h| !h.sources.is_empty())
            .collect();
        let logs: Vec<_> = disks()
            .filter_map(|d| logs::read(&HostRoot::real(), &d.name))
            .collect();
        let json = serde_json::json!({ "devices": devices, "health": health, "logs": logs, "mounts": mounts.mounts });
        screen::json(&json)?;
        return Ok(DONE);
    }
    let mut text = String::new();
    for d in &devices {
        text += &describe(d);
    }
    if devices.is_empty() {
        text += "no block devices\n";
    }
    text += "\nFile systems on devices\n";
    for m in mounts
        .mounts
        .iter()
        .filter(|m| m.source.starts_with("/dev/"))
    {
        let space = fathom_host::space(&m.at)
            .map(|s| format!(", {} free of {}", Bytes(s.fits_bytes), Bytes(s.total_bytes)))
            .unwrap_or_default();
        let access = if m.is_read_only() {
            "read-only"
        } else {
            "scratch files allowed"
        };
        text += &format!(
            "  {:<24} {} on {}{space}; {access}\n",
            m.at.display().to_string(),
            m.fs_type,
            m.source.display()
        );
    }
    screen::print(&text);
    Ok(DONE)
}

fn describe(d: &BlockDevice) -> String {
    let or = |o: &Option<String>| o.clone().unwrap_or_default();
    let mut text = format!("{}  {}", d.path.display(), Bytes(d.size_bytes));
    let model = [or(&d.model), or(&d.firmware), or(&d.transport)]
        .iter()
        .filter(|s| !s.is_empty())
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if !model.is_empty() {
        text += &format!("  {model}");
    }
    text += "\n";
    if let Some(serial) = &d.serial {
        text += &format!("    serial   {serial}\n");
    }
    let words: Vec<String> = d.words.iter().map(|w| shell_word(&w.word)).collect();
    text += &format!("    name     {}\n", words.join(", "));
    if let Some(q) = &d.queue {
        let value = serde_json::to_value(q).unwrap_or_default();
        let list: Vec<String> = value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, v)| !v.is_null() && !v.is_array())
            .map(|(k, v)| {
                format!(
                    "{k} {}",
                    v.as_str().map_or_else(|| v.to_string(), str::to_owned)
                )
            })
            .collect();
        text += &format!("    queue    {}\n", list.join(", "));
    }
    if let Some(h) = health(d) {
        text += &format!("    health   {h}\n");
    }
    if let (Some(n), None) = (&d.nvme, &d.parent) {
        text += &format!("    nvme     {}\n", nvme(n));
        let logs = logs::read(&HostRoot::real(), &d.name).map(|l| told(&l));
        if let Some(logs) = logs.filter(|l| !l.is_empty()) {
            text += &format!("    logs     {logs}\n");
        }
        for caution in n.cautions() {
            text += &format!("    note     {caution}\n");
        }
    }
    for u in &d.uses {
        text += &format!("    used     {u}\n");
    }
    text += &format!("    read     {}\n", access(&d.verdict.read));
    text += &format!("    write    {}\n", access(&d.verdict.write));
    text
}

/// A namespace in a line: which, its formats (the one in use in brackets), its ways.
fn nvme(n: &Nvme) -> String {
    let format = |f: &Format| {
        let metadata = match f.metadata_bytes {
            0 => String::new(),
            m => format!("+{m}"),
        };
        let size = format!("{}{metadata}", f.block_bytes);
        if f.in_use { format!("[{size}]") } else { size }
    };
    let formats: Vec<String> = n.formats.iter().map(format).collect();
    let ways = n.controllers.iter().map(|c| {
        let said = [&c.transport, &c.address, &c.state, &c.access];
        let said: Vec<&str> = said.into_iter().flatten().map(String::as_str).collect();
        format!("{} ({})", c.name, said.join(" "))
    });
    let parts = [
        n.nsid
            .map(|i| format!("namespace {i} of {}", n.namespaces.len().max(1))),
        (!formats.is_empty()).then(|| format!("formats {}", formats.join(" "))),
        n.protection
            .filter(|p| *p > 0)
            .map(|p| format!("protection type {p}")),
        n.power_state
            .map(|p| format!("power state {p} of {}", n.power_states.len())),
        (!n.controllers.is_empty()).then(|| ways.collect::<Vec<_>>().join(", ")),
        n.can_format.then(|| {
            let reaches = n.format_reaches_drive || n.erase_reaches_drive;
            let what = if reaches { " (of all namespaces)" } else { "" };
            format!("can be formatted{what}")
        }),
        n.atomic_normal_bytes
            .zip(n.atomic_bytes)
            .map(|(normal, power)| {
                format!("atomic {} ({} at power loss)", Bytes(normal), Bytes(power))
            }),
        (!n.operations.words().is_empty()).then(|| n.operations.words().join(" ")),
        (!n.operations.placements.is_empty())
            .then(|| format!("{} placement handles", n.operations.placements.len())),
        (!n.sanitize.is_empty()).then(|| format!("sanitize: {}", n.sanitize.join(", "))),
        n.errors_logged
            .filter(|e| *e > 0)
            .map(|e| format!("{e} errors logged")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Logs of a drive in a line.
fn told(l: &Logs) -> String {
    let firmware = l.firmware.as_ref().map(|f| {
        let slots: Vec<String> = f.slots.iter().map(|(n, r)| format!("{n} {r}")).collect();
        let next = f
            .next
            .map_or_else(String::new, |n| format!(", slot {n} after the next reset"));
        format!(
            "firmware slot {} runs of {}{next}",
            f.active,
            slots.join(", ")
        )
    });
    let error = l.errors.first().map(|e| {
        format!(
            "newest error {} (status {:#x}, namespace {}, block {})",
            e.number, e.status, e.nsid, e.block
        )
    });
    let group = l.endurance_group.map(|g| {
        format!(
            "endurance group: {} % used, {} % spare, {} to its media",
            g.used_percent,
            g.spare_percent,
            Bytes(g.media_written_bytes)
        )
    });
    let events = l.events.as_ref().map(|e| {
        let first = e.first.first().map_or("none", |e| e.what);
        format!("{} persistent events (first {first})", e.total)
    });
    let all = [firmware, error, group, events];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What a whole disk says of itself, in a line; `None` where it says nothing.
fn health(d: &BlockDevice) -> Option<String> {
    if d.parent.is_some() {
        return None;
    }
    let h = fathom_host::health::read(&HostRoot::real(), &d.name);
    if h.sources.is_empty() {
        return None;
    }
    let bytes = |v: Option<u64>| v.map(|v| Bytes(v).to_string());
    let said = [
        h.celsius.map(|c| format!("{c:.0} °C")),
        h.used_percent
            .map(|p| format!("{p:.0} % of its rated life used")),
        bytes(h.host_written_bytes).map(|b| format!("{b} written by hosts")),
        bytes(h.media_written_bytes).map(|b| format!("{b} to its media")),
        h.power_on_hours.map(|n| format!("{n} h on")),
        h.media_errors
            .filter(|n| *n > 0)
            .map(|n| format!("{n} media errors")),
        h.throttled
            .filter(|n| *n > 0)
            .map(|n| format!("{n} times throttled by its temperature")),
        h.scsi
            .as_ref()
            .and_then(|s| s.corrected_errors)
            .map(|n| format!("{n} errors corrected")),
        h.latency.as_ref().and_then(slow),
        (!h.warnings.is_empty()).then(|| h.warnings.join(", ")),
    ];
    Some(said.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// The slowest commands that a drive counted since it was switched on.
fn slow(l: &Latency) -> Option<String> {
    l.buckets.iter().rev().find_map(|b| {
        let n: u64 = b.kinds().iter().map(|k| u64::from(k.1.count)).sum();
        let from = b.from_ms;
        (n > 0).then(|| format!("{n} commands of {from} ms or more since it was switched on"))
    })
}

fn access(a: &Access) -> String {
    match a {
        Access::Allowed => "yes".into(),
        Access::Confirm { destroy } => {
            format!("with --destroy {} (its data is lost)", shell_word(destroy))
        }
        Access::Refused { message, .. } => format!("no: {message}"),
    }
}
