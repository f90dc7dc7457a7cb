//! The life of a bio in the block layer, from its events: queued, got a request, inserted, issued,
//! interrupted, complete. Keyed by device and first sector.

use std::collections::HashMap;

use crate::event::{Event, Kind, rwbs};

/// One bio's way through the block layer; times are ns, 0 where the event was not seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chain {
    /// Device.
    pub dev: u64,
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
    /// [`rwbs`].
    pub flags: u32,
    /// Thread that queued it.
    pub tid: u32,
    /// Q.
    pub queued: u64,
    /// G.
    pub got: u64,
    /// Accounting.
    pub started: u64,
    /// I.
    pub inserted: u64,
    /// The driver has built its command (NVMe), the last one where it was repeated.
    pub made: u64,
    /// D, the last one where it was requeued.
    pub issued: u64,
    /// The interrupt that brought the completion.
    pub irq: u64,
    /// Number of that interrupt.
    pub irq_number: u32,
    /// Processor of that interrupt.
    pub irq_cpu: u16,
    /// The driver has taken its command's completion (NVMe).
    pub done: u64,
    /// A command that no bio led to: `queued` and `issued` are `made`, `complete` is `done`.
    pub is_command: bool,
    /// C, or the bio's end on a device without requests.
    pub complete: u64,
    /// Processor of the completion.
    pub complete_cpu: u16,
    /// It was completed in an interrupt; otherwise a thread did it, and no interrupt is looked for.
    pub in_interrupt: bool,
    /// It joined another request, so its own events end there.
    pub merged: bool,
    /// How often the driver gave it back.
    pub requeues: u8,
    /// Another of the same sector was outstanding with it: told apart by order only.
    pub twin: bool,
}

/// What the devices did during the pass.
#[derive(Debug, Clone, Default)]
pub struct Chains {
    /// In the order of their queueing.
    pub all: Vec<Chain>,
    /// Indices of each thread's chains.
    pub by_tid: HashMap<u32, Vec<u32>>,
    /// Flushes (no sectors): kept out of the join.
    pub flushes: u64,
    /// Bios that were split.
    pub splits: u64,
    /// Interrupt numbers that bring completions, the most frequent first.
    pub irqs: Vec<u32>,
}

/// Builds chains from events in the order of time. `silent` devices have no interrupts of their own
/// (loop, zram): one of another device between issue and completion means nothing. `bio_based` ones end
/// with the bio; everywhere else the bio's own end only repeats the request's.
pub fn chains(events: &[Event], silent: &[u64], bio_based: &[u64]) -> Chains {
    let mut pass = Pass::default();
    for e in events {
        match e.kind {
            Kind::Queue if e.c == 0 => pass.out.flushes += 1,
            Kind::Queue => pass.queued(e),
            Kind::Split => pass.out.splits += 1,
            Kind::Merge => {
                if let Some(i) = pass.open.get(&(e.a, e.b)).and_then(|v| v.last().copied()) {
                    pass.out.all[i as usize].merged = true;
                }
            }
            Kind::GetRequest | Kind::IoStart | Kind::Insert | Kind::Issue | Kind::Requeue => {
                pass.went_on(e);
            }
            Kind::CommandMade => pass.command_made(e),
            Kind::CommandDone => pass.command_done(e),
            Kind::BioComplete if !bio_based.contains(&e.a) => {}
            Kind::Complete | Kind::BioComplete => pass.completed(e),
            _ => {}
        }
    }
    interrupts(&mut pass.out, events, silent);
    pass.out
}

/// Chains as far as events have come.
#[derive(Default)]
struct Pass {
    out: Chains,
    /// Open chains by device and sector, the newest last.
    open: HashMap<(u64, u64), Vec<u32>>,
    /// Commands under way, by device, queue and number.
    commands: HashMap<u64, u32>,
}

impl Pass {
    /// A chain begins.
    fn begin(&mut self, chain: Chain) -> u32 {
        let i = self.out.all.len() as u32;
        self.out.by_tid.entry(chain.tid).or_default().push(i);
        self.out.all.push(chain);
        i
    }

    /// The oldest open chain that lacks something, or the newest: two outstanding bios of one sector cannot be told apart.
    fn oldest(&self, key: (u64, u64), lacks: impl Fn(&Chain) -> bool) -> Option<u32> {
        let list = self.open.get(&key)?;
        let first = list.iter().find(|i| lacks(&self.out.all[**i as usize]));
        first.or(list.last()).copied()
    }

    fn queued(&mut self, e: &Event) {
        let i = self.begin(Chain {
            dev: e.a,
            sector: e.b,
            sectors: e.c,
            flags: e.flags,
            tid: e.tid,
            queued: e.ts,
            ..Chain::default()
        });
        let same = self.open.entry((e.a, e.b)).or_default();
        same.push(i);
        if same.len() > 1 {
            let all = &mut self.out.all;
            same.iter().for_each(|i| all[*i as usize].twin = true);
        }
    }

    /// On its way to the driver.
    fn went_on(&mut self, e: &Event) {
        let lacks: fn(&Chain) -> bool = match e.kind {
            Kind::GetRequest => |c| c.got == 0,
            Kind::IoStart => |c| c.started == 0,
            Kind::Insert => |c| c.inserted == 0,
            Kind::Issue => |c| c.issued == 0,
            _ => |c| c.issued > 0,
        };
        let Some(i) = self.oldest((e.a, e.b), lacks) else {
            return;
        };
        let c = &mut self.out.all[i as usize];
        match e.kind {
            Kind::GetRequest => c.got = e.ts,
            Kind::IoStart => c.started = e.ts,
            Kind::Insert if c.issued == 0 => c.inserted = e.ts,
            Kind::Issue => c.issued = e.ts,
            Kind::Requeue => c.requeues = c.requeues.saturating_add(1),
            _ => {}
        }
    }

    fn command_made(&mut self, e: &Event) {
        let dev = e.a & u64::from(u32::MAX);
        let bio = self.oldest((dev, e.b), |c| c.made == 0);
        let i = bio.unwrap_or_else(|| {
            self.begin(Chain {
                dev,
                sector: e.b,
                sectors: e.c,
                flags: e.flags,
                tid: e.tid,
                queued: e.ts,
                issued: e.ts,
                is_command: true,
                ..Chain::default()
            })
        });
        self.out.all[i as usize].made = e.ts;
        self.commands.insert(e.a, i);
    }

    fn command_done(&mut self, e: &Event) {
        if let Some(i) = self.commands.remove(&e.a) {
            let c = &mut self.out.all[i as usize];
            c.done = e.ts;
            if c.is_command {
                c.complete_at(e);
            }
        }
    }

    /// Takes a chain off the open ones of a sector.
    fn close(&mut self, key: (u64, u64), which: impl Fn(&Chain) -> bool) -> Option<&mut Chain> {
        let list = self.open.get_mut(&key)?;
        let all = &mut self.out.all;
        let at = list.iter().position(|i| which(&all[*i as usize]))?;
        let i = list.remove(at);
        if list.is_empty() {
            self.open.remove(&key);
        }
        all.get_mut(i as usize)
    }

    fn completed(&mut self, e: &Event) {
        let mut carrier = Chain {
            sectors: 1,
            ..Chain::default()
        };
        if let Some(c) = self.close((e.a, e.b), |_| true) {
            c.complete_at(e);
            carrier = *c;
        }
        if e.c <= carrier.sectors {
            return;
        }
        // A request longer than its bio carries others that joined it, before or behind.
        for sector in e.b + 1..e.b + u64::from(e.c) {
            if let Some(c) = self.close((e.a, sector), |c| c.issued == 0) {
                c.merged = true;
                c.issued = carrier.issued;
                c.in_interrupt = carrier.in_interrupt;
                (c.complete, c.complete_cpu) = (e.ts, e.cpu);
            }
        }
    }
}

/// Finds the interrupt of each completion: the last one in [issue, completion] on the completion's
/// processor; only numbers that usually bring completions count, so that a network card's does not.
fn interrupts(out: &mut Chains, events: &[Event], silent: &[u64]) {
    let mut by_cpu: HashMap<u16, Vec<(u64, u32)>> = HashMap::new();
    for e in events.iter().filter(|e| e.kind == Kind::Irq) {
        by_cpu.entry(e.cpu).or_default().push((e.ts, e.a as u32));
    }
    let last = |cpu: u16, from: u64, to: u64, wanted: Option<&[u32]>| -> Option<(u64, u32)> {
        let list = by_cpu.get(&cpu)?;
        let end = list.partition_point(|x| x.0 <= to);
        list[..end]
            .iter()
            .rev()
            .take_while(|x| x.0 >= from)
            .find(|x| wanted.is_none_or(|w| w.contains(&x.1)))
            .copied()
    };
    let done = |c: &&mut Chain| {
        c.in_interrupt && c.issued > 0 && c.issued < c.complete && !silent.contains(&c.dev)
    };
    let mut votes: HashMap<u32, u64> = HashMap::new();
    for c in out.all.iter_mut().filter(done) {
        if let Some((_, irq)) = last(c.complete_cpu, c.issued, c.complete, None) {
            *votes.entry(irq).or_default() += 1;
        }
    }
    let total: u64 = votes.values().sum();
    // A device with many queues has many numbers; each must bring its share.
    let mut irqs: Vec<(u64, u32)> = votes
        .into_iter()
        .filter(|v| v.1 * 50 >= total)
        .map(|(irq, n)| (n, irq))
        .collect();
    irqs.sort_unstable_by(|a, b| b.cmp(a));
    out.irqs = irqs.into_iter().map(|x| x.1).collect();
    let cpus: Vec<u16> = by_cpu.keys().copied().collect();
    for c in out.all.iter_mut().filter(done) {
        let here = last(c.complete_cpu, c.issued, c.complete, Some(&out.irqs));
        // Where the completion was sent to another processor, the interrupt is elsewhere.
        let found = here.map(|x| (x, c.complete_cpu)).or_else(|| {
            cpus.iter()
                .filter_map(|cpu| Some((last(*cpu, c.issued, c.complete, Some(&out.irqs))?, *cpu)))
                .max()
        });
        if let Some(((ts, irq), cpu)) = found {
            (c.irq, c.irq_number, c.irq_cpu) = (ts, irq, cpu);
        }
    }
}

impl Chain {
    fn complete_at(&mut self, e: &Event) {
        (self.complete, self.complete_cpu) = (e.ts, e.cpu);
        self.in_interrupt = e.flags & rwbs::INTERRUPT != 0;
    }

    /// Whether it carries data of a file, not the file system's own.
    pub fn is_data(&self) -> bool {
        self.flags & (rwbs::META | rwbs::FLUSH | rwbs::DISCARD) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ts: u64, kind: Kind, sector: u64, sectors: u32) -> Event {
        Event {
            ts,
            a: 1,
            b: sector,
            c: sectors,
            flags: rwbs::READ | rwbs::INTERRUPT,
            tid: 7,
            cpu: 0,
            kind,
        }
    }

    #[test]
    fn a_bio_is_followed_from_queue_to_completion_with_its_own_interrupt() {
        let mut irq = event(50, Kind::Irq, 0, 0);
        irq.a = 36;
        let c = chains(
            &[
                event(10, Kind::Queue, 8, 8),
                event(11, Kind::GetRequest, 8, 8),
                event(20, Kind::Insert, 8, 8),
                event(30, Kind::Issue, 8, 8),
                irq,
                event(60, Kind::Complete, 8, 8),
                event(70, Kind::Queue, 8, 8),
                event(80, Kind::Complete, 8, 8),
            ],
            &[],
            &[],
        );
        let first = c.all[0];
        assert_eq!((first.queued, first.got, first.inserted), (10, 11, 20));
        assert_eq!((first.issued, first.irq, first.complete), (30, 50, 60));
        assert_eq!(
            (c.all[1].queued, c.all[1].complete, c.all[1].irq),
            (70, 80, 0)
        );
        assert_eq!(c.irqs, [36]);
    }

    #[test]
    fn merged_bios_end_with_the_request_that_took_them() {
        // In front: the request's start moves, and the older bio goes along.
        let c = chains(
            &[
                event(10, Kind::Queue, 16, 8),
                event(12, Kind::Queue, 8, 8),
                event(13, Kind::Merge, 8, 8),
                event(30, Kind::Issue, 8, 16),
                event(60, Kind::Complete, 8, 16),
            ],
            &[],
            &[],
        );
        assert!(
            c.all
                .iter()
                .all(|c| c.complete == 60 && c.issued == 30 && c.merged)
        );
        let c = chains(
            &[
                event(10, Kind::Queue, 8, 8),
                event(12, Kind::Queue, 16, 8),
                event(13, Kind::Merge, 16, 8),
                event(30, Kind::Issue, 8, 16),
                event(60, Kind::Complete, 8, 16),
                event(70, Kind::Queue, 16, 8),
                event(90, Kind::Complete, 16, 8),
            ],
            &[],
            &[],
        );
        assert!(c.all[1].merged && c.all[1].complete == 60);
        assert_eq!(c.all[2].complete, 90);
        assert_eq!(c.all[0].complete, 60);
    }

    #[test]
    fn two_of_one_sector_are_told_apart_by_order_and_marked() {
        let c = chains(
            &[
                event(10, Kind::Queue, 8, 8),
                event(12, Kind::Queue, 8, 8),
                event(13, Kind::Queue, 16, 8),
                event(20, Kind::Complete, 8, 8),
                event(30, Kind::Complete, 8, 8),
                event(40, Kind::Queue, 8, 8),
            ],
            &[],
            &[],
        );
        let seen: Vec<(u64, bool)> = c.all.iter().map(|c| (c.complete, c.twin)).collect();
        assert_eq!(seen, [(20, true), (30, true), (0, false), (0, false)]);
    }

    #[test]
    fn a_command_belongs_to_its_request_or_is_an_io_of_its_own() {
        let command = |ts, kind, tag: u64, sector| Event {
            a: 1 | tag << 32,
            ..event(ts, kind, sector, 8)
        };
        let c = chains(
            &[
                event(10, Kind::Queue, 8, 8),
                command(20, Kind::CommandMade, 5, 8),
                event(21, Kind::Issue, 8, 8),
                // Past the block layer, of the same sector, while the request is under way.
                command(30, Kind::CommandMade, 6, 16),
                command(50, Kind::CommandDone, 6, 0),
                command(60, Kind::CommandDone, 5, 0),
                event(61, Kind::Complete, 8, 8),
            ],
            &[],
            &[],
        );
        let of = |i: usize| {
            let c = c.all[i];
            (c.is_command, c.made, c.issued, c.done, c.complete)
        };
        assert_eq!(c.all.len(), 2);
        assert_eq!(of(0), (false, 20, 21, 60, 61));
        assert_eq!(of(1), (true, 30, 30, 50, 50));
        assert_eq!(c.by_tid[&7], [0, 1]);
    }

    #[test]
    fn flushes_are_counted_and_never_joined() {
        let c = chains(
            &[
                event(10, Kind::Queue, 0, 0),
                event(20, Kind::Complete, 0, 0),
            ],
            &[],
            &[],
        );
        assert_eq!((c.flushes, c.all.len()), (1, 0));
    }

    #[test]
    fn a_thread_that_completes_has_no_interrupt_and_neither_has_a_silent_device() {
        let mut irq = event(50, Kind::Irq, 0, 0);
        irq.a = 36;
        let mut events = vec![
            event(10, Kind::Queue, 8, 8),
            event(30, Kind::Issue, 8, 8),
            irq,
            event(60, Kind::Complete, 8, 8),
        ];
        assert_eq!(chains(&events, &[], &[]).all[0].irq, 50);
        assert_eq!(chains(&events, &[1], &[]).all[0].irq, 0);
        events[3].flags = rwbs::READ;
        assert_eq!(chains(&events, &[], &[]).all[0].irq, 0);
    }
}
