//! What the checks show: a verdict for each, the time after which others see a change, and what to set.

use std::collections::BTreeMap;

use fathom_bench::parts::{axis, bars, headline_of, number, table, text};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Finding, Section};

use super::checks::{Check, Kind};
use super::{Checked, CoherenceResult, Observation};

/// What a check came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// No look that began after the change showed the old state.
    AtOnce,
    /// Some did; all saw the change within this, ns.
    Within(u64),
    /// So many never saw it while they looked.
    Never(usize),
    /// So often a lock was given that another host held.
    GivenTwice(usize),
    /// So many appended records are not there.
    Lost(u64),
    /// It could not be looked at.
    NotPossible(String),
    /// Nothing was looked at.
    Missing,
}

impl Observation {
    /// Whether the change was seen at all.
    pub(super) fn was_seen(&self) -> bool {
        self.seen || self.seen_ns.is_some()
    }

    /// Whether it shows the old state after the change for certain.
    fn is_old(&self) -> bool {
        self.old_ns > self.bound_ns
    }
}

impl Checked {
    fn usable(&self) -> impl Iterator<Item = &Observation> {
        self.observations.iter().filter(|o| o.error.is_none())
    }

    /// Records that nobody saw: in a round those that the host that saw most lacks, for hosts look at the same records.
    fn lost(&self) -> u64 {
        let mut rounds: BTreeMap<u32, u64> = BTreeMap::new();
        for o in self.usable() {
            let least = rounds.entry(o.round).or_insert(o.lost);
            *least = o.lost.min(*least);
        }
        rounds.values().sum()
    }

    /// Its verdict: the worst that was seen.
    pub(super) fn verdict(&self) -> Verdict {
        let lost = self.lost();
        let twice = self.usable().filter(|o| o.given_twice).count();
        let never = self.usable().filter(|o| !o.was_seen()).count();
        let old = self.usable().any(Observation::is_old);
        let latest = self.usable().filter_map(|o| o.seen_ns).max();
        let error = self.observations.iter().find_map(|o| o.error.clone());
        match (self.usable().next(), error) {
            (None, Some(why)) => Verdict::NotPossible(why),
            (None, None) => Verdict::Missing,
            _ if twice > 0 => Verdict::GivenTwice(twice),
            _ if lost > 0 => Verdict::Lost(lost),
            _ if never > 0 => Verdict::Never(never),
            _ if old => Verdict::Within(latest.unwrap_or(0)),
            _ => Verdict::AtOnce,
        }
    }

    fn words(&self, wait: Nanos) -> String {
        let all = self.usable().count();
        match self.verdict() {
            Verdict::AtOnce => "coherent at once".into(),
            Verdict::Within(t) => format!("coherent after up to {}", Nanos(t)),
            Verdict::Never(n) => format!("not within {wait} in {n} of {all}"),
            Verdict::GivenTwice(n) => format!("not locked across hosts in {n} of {all}"),
            Verdict::Lost(n) => format!("{n} records lost: no host saw them within {wait}"),
            Verdict::NotPossible(why) => format!("not possible here: {why}"),
            Verdict::Missing => "not looked at".into(),
        }
    }

    fn delays(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self
            .usable()
            .filter_map(|o| Some(o.seen_ns? as f64))
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn median(&self) -> Option<f64> {
        let all = self.delays();
        all.get(all.len() / 2).copied()
    }

    /// How long after the change it was seen at the latest, on average; none where some never saw it.
    fn mean(&self) -> Option<Estimate> {
        let all_saw = self.usable().all(Observation::was_seen);
        Estimate::mean_of(&self.delays())
            .filter(|_| all_saw)
            .map(Estimate::from_nought)
    }

    fn longest_old(&self) -> Option<f64> {
        let old = self.usable().filter(|o| o.is_old());
        old.map(|o| (o.old_ns - o.bound_ns) as f64).reduce(f64::max)
    }

    fn is_good(&self) -> bool {
        self.verdict() == Verdict::AtOnce
    }

    fn is_bad(&self) -> bool {
        !matches!(
            self.verdict(),
            Verdict::AtOnce | Verdict::NotPossible(_) | Verdict::Missing
        )
    }
}

impl ExperimentResult for CoherenceResult {
    const EXPERIMENT: &'static str = "coherence";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let looked: Vec<&Checked> = self.checks.iter().filter(|c| c.job.is_some()).collect();
        let jobs: Vec<usize> = looked.iter().filter_map(|c| c.job).collect();
        let good = looked.iter().filter(|c| c.is_good()).count();
        let group = "Coherence";
        shown.headlines.push(headline_of(
            group,
            &format!("checks that are coherent at once, of {}", looked.len()),
            "coherence-checks",
            "",
            (!looked.is_empty()).then(|| Estimate::single(good as f64)),
            jobs.clone(),
        ));
        for (check, id, label) in [
            (
                Check::Reopened,
                "coherence-reopened",
                "a write is seen by a host that opens the file anew within",
            ),
            (
                Check::OpenBuffered,
                "coherence-open",
                "a write is seen by a host that keeps the file open within",
            ),
        ] {
            if let Some(c) = looked.iter().find(|c| c.check == check) {
                let jobs = c.job.into_iter().collect();
                let headline = headline_of(group, label, id, "ns", c.mean(), jobs);
                shown.headlines.push(headline);
            }
        }
        shown
            .findings
            .extend(self.findings(&file_system(evidence), &jobs));
        shown.sections.extend(self.sections(&looked));
    }
}

impl CoherenceResult {
    /// What is read and looked up, and what is appended and locked.
    fn sections(&self, looked: &[&Checked]) -> [Section; 2] {
        let of_files = |c: &Checked| !matches!(c.check.kind(), Kind::Appends | Kind::Locks);
        let timed: Vec<&&Checked> = looked.iter().filter(|c| of_files(c)).collect();
        let names: Vec<&str> = timed.iter().map(|c| c.check.name()).collect();
        let wait = self.options.wait;
        let (hosts, bound) = (self.hosts.len(), self.bound());
        let (files, others): (Vec<&Checked>, Vec<&Checked>) =
            self.checks.iter().partition(|c| of_files(c));
        let mut seen = bars(
            "coherence-seen",
            "Mean time after a change until others see it",
            axis("seen within", "ns", false),
            &names,
            timed.iter().map(|c| c.mean()),
        );
        seen.x = axis("check", "", false);
        [
            Section {
                id: "coherence".into(),
                title: format!("What {hosts} hosts see of each other's files"),
                text: format!(
                    "In each round one host changes something and syncs it, and others look again and again, for {wait} at most. A look is old only where it began after the change was synced, by clocks known to {bound}. \"Seen within\" ends with the look that showed the change, so that it holds the time of a look and the pause before it (0.1 ms, longer after long waits). A check without a bar has rounds in which the change was not seen."
                ),
                charts: vec![seen],
                tables: vec![
                    self.checks_table("coherence-table", &files),
                    self.directions(),
                ],
                ..Section::default()
            },
            Section {
                id: "coherence-locks".into(),
                title: "Appends and locks across hosts".into(),
                text: "All hosts append to one file at the same time; then its records are counted, after no time that is measured: those are lost that no host sees. A lock is asked for once while another host holds it, and from its release on until it is given: after the holder closed its file, or was killed.".into(),
                tables: vec![self.checks_table("coherence-locks-table", &others)],
                ..Section::default()
            },
        ]
    }

    fn checks_table(&self, id: &str, checks: &[&Checked]) -> fathom_telemetry::schema::Table {
        let wait = self.options.wait;
        let unless = |n: usize| number((n > 0).then_some(n as f64));
        table(
            id,
            "Checks",
            checks,
            &[
                ("check", "", &|c| text(c.check.words())),
                ("verdict", "", &|c| text(c.words(wait))),
                ("looked at", "", &|c| {
                    number(Some(c.usable().count() as f64))
                }),
                ("old", "", &|c| {
                    unless(c.usable().filter(|o| o.is_old()).count())
                }),
                ("never seen", "", &|c| {
                    unless(c.usable().filter(|o| !o.was_seen()).count())
                }),
                ("old for, at least", "ns", &|c| number(c.longest_old())),
                ("seen within, median", "ns", &|c| number(c.median())),
                ("longest", "ns", &|c| number(c.delays().last().copied())),
            ],
        )
    }

    /// How well times are known at worst.
    fn bound(&self) -> Nanos {
        let all = self.checks.iter().flat_map(|c| &c.observations);
        Nanos(all.map(|o| o.bound_ns).max().unwrap_or(0))
    }

    /// By who changes and who looks, those that saw worst first.
    fn directions(&self) -> fathom_telemetry::schema::Table {
        const ROWS: usize = 40;
        #[derive(Default)]
        struct Row {
            looked: usize,
            old: usize,
            never: usize,
            twice: usize,
            longest: Option<u64>,
        }
        let mut rows: BTreeMap<(usize, usize), Row> = BTreeMap::new();
        for o in self.checks.iter().flat_map(Checked::usable) {
            let row = rows.entry((o.writer, o.reader)).or_default();
            row.looked += 1;
            row.old += usize::from(o.is_old());
            row.never += usize::from(!o.was_seen());
            row.twice += usize::from(o.given_twice);
            row.longest = row.longest.max(o.seen_ns);
        }
        let mut rows: Vec<((usize, usize), Row)> = rows.into_iter().collect();
        rows.sort_by_key(|(who, r)| (std::cmp::Reverse((r.never, r.twice, r.old)), *who));
        rows.truncate(ROWS);
        let name = |h: usize| text(self.hosts.get(h).map_or("", String::as_str));
        let unless = |n: usize| number((n > 0).then_some(n as f64));
        table(
            "coherence-directions",
            "By hosts, all checks together",
            &rows,
            &[
                ("changes", "", &|r| name(r.0.0)),
                ("looks", "", &|r| name(r.0.1)),
                ("looked at", "", &|r| number(Some(r.1.looked as f64))),
                ("old", "", &|r| unless(r.1.old)),
                ("never seen", "", &|r| unless(r.1.never)),
                ("locks given twice", "", &|r| unless(r.1.twice)),
                ("longest until seen", "ns", &|r| {
                    number(r.1.longest.map(|t| t as f64))
                }),
            ],
        )
    }

    /// One for each kind of check that is not coherent at once, and one for those that are.
    fn findings(&self, file_system: &str, jobs: &[usize]) -> Vec<Finding> {
        let kinds = [
            Kind::Data,
            Kind::Attributes,
            Kind::Names,
            Kind::Appends,
            Kind::Locks,
        ];
        let bad = kinds.into_iter().filter_map(|kind| {
            let of: Vec<&Checked> = self
                .checks
                .iter()
                .filter(|c| c.check.kind() == kind && c.is_bad() && c.job.is_some())
                .collect();
            let first = of.first()?;
            let lost = of.iter().any(|c| matches!(c.verdict(), Verdict::Lost(_)));
            // Those with the same verdict share a sentence.
            let mut same: Vec<(String, Vec<&str>)> = Vec::new();
            for c in &of {
                let words = c.words(self.options.wait);
                match same.iter_mut().find(|s| s.0 == words) {
                    Some((_, checks)) => checks.push(c.check.words()),
                    None => same.push((words, vec![c.check.words()])),
                }
            }
            let each = same
                .iter()
                .map(|(words, checks)| format!("{words} ({})", checks.join("; ")));
            let many = of.iter().map(|c| c.usable().count()).min().unwrap_or(0) >= 10;
            Some(Finding {
                id: format!("coherence-{}", first.check.name()),
                text: format!(
                    "{} {}.",
                    says(kind, lost),
                    each.collect::<Vec<_>>().join("; ")
                ),
                advice: advice(to_set(kind, lost), file_system).into(),
                confidence: if many { "strong" } else { "moderate" }.into(),
                jobs: of.iter().filter_map(|c| c.job).collect(),
                evidence: vec![
                    match kind {
                        Kind::Appends | Kind::Locks => "coherence-locks-table".into(),
                        _ => "coherence-table".into(),
                    },
                    "coherence-directions".into(),
                ],
                refuted_by: "The same rounds with other mount options, in which no look is old and no lock is given twice.".into(),
                ..Finding::default()
            })
        });
        let mut found: Vec<Finding> = bad.collect();
        let good: Vec<&Checked> = self.checks.iter().filter(|c| c.is_good()).collect();
        if let Some(least) = good.iter().map(|c| c.usable().count()).min() {
            let words: Vec<&str> = good.iter().map(|c| c.check.name()).collect();
            // None of n: 95 % of such series come of a share below this.
            let share = 100.0 * (1.0 - 0.05f64.powf(1.0 / least.max(1) as f64));
            found.push(Finding {
                id: "coherence-good".into(),
                text: format!(
                    "Coherent at once in every round: {}. {least} looks without an exception say that fewer than {share:.0} % are old (95 % confidence).",
                    words.join(", ")
                ),
                confidence: if least >= 10 { "strong" } else { "moderate" }.into(),
                jobs: jobs.to_vec(),
                evidence: vec!["coherence-table".into(), "coherence-locks-table".into()],
                refuted_by: "One look that shows the old state: more --rounds, or more hosts.".into(),
                ..Finding::default()
            });
        }
        found
    }
}

/// Of the first host's target: the word before its options.
fn file_system(evidence: &Evidence<'_>) -> String {
    let hosts = &evidence.run().environment["hosts"];
    let place = hosts[0]["place"].as_str().unwrap_or_default();
    place.split(' ').next().unwrap_or_default().to_owned()
}

/// What the advice is about: records that another host sees are there, and their size is late.
fn to_set(kind: Kind, lost: bool) -> Kind {
    match kind {
        Kind::Appends if !lost => Kind::Attributes,
        kind => kind,
    }
}

fn says(kind: Kind, lost: bool) -> &'static str {
    match kind {
        Kind::Data => "Another host reads old data after a write was synced:",
        Kind::Attributes => "Another host sees old attributes:",
        Kind::Names => "Another host sees an old directory:",
        Kind::Appends if !lost => "Not all appended records were seen by another host:",
        Kind::Appends => "Hosts that append to one file overwrite each other:",
        Kind::Locks => "Locks do not hold between hosts as on one host:",
    }
}

/// What to set, by the kind of file system.
pub(super) fn advice(kind: Kind, file_system: &str) -> &'static str {
    let nfs = file_system.starts_with("nfs");
    match (kind, file_system) {
        (Kind::Data, _) if nfs => {
            "open the file anew before reading (NFS promises close-to-open), or lock it, or mount with noac"
        }
        (Kind::Data, "fuse.glusterfs") => {
            "gluster volume set VOLUME performance.open-behind off, also quick-read, io-cache, read-ahead and stat-prefetch; or open the file anew before reading"
        }
        (Kind::Attributes, _) if nfs => "mount with actimeo=0 or noac, or a smaller acregmax",
        (Kind::Attributes | Kind::Names, "fuse.glusterfs") => {
            "mount with attribute-timeout=0,entry-timeout=0,negative-timeout=0, and gluster volume set VOLUME performance.stat-prefetch off"
        }
        (Kind::Names, _) if nfs => "mount with lookupcache=none, or a smaller acdirmax",
        (Kind::Attributes | Kind::Names | Kind::Data, "fuse.sshfs") => {
            "sshfs -o dir_cache=no,attr_timeout=0,entry_timeout=0,direct_io"
        }
        (Kind::Appends, _) => {
            "give each host a file of its own, or hold a lock while appending: O_APPEND is not atomic across clients here"
        }
        (Kind::Locks, _) if nfs => {
            "mount without nolock and with local_lock=none, and see that the server's lock manager is reached (rpcinfo -p)"
        }
        (Kind::Locks, "lustre") => "mount with flock, not with localflock or noflock",
        (Kind::Locks, "fuse.sshfs") => {
            "do not rely on locks: sshfs passes none on; use a file system that does, or a lock service"
        }
        (Kind::Locks, _) => {
            "do not rely on these locks between hosts: mount so that locks are passed on to the server, or use a lock service"
        }
        (Kind::Data, _) => {
            "open files anew before reading what other hosts write, or mount without client caches (FUSE: direct_io)"
        }
        (Kind::Attributes | Kind::Names, _) => {
            "mount with shorter times for attributes and names (FUSE: attr_timeout=0,entry_timeout=0,negative_timeout=0)"
        }
    }
}

#[cfg(test)]
mod tests;
