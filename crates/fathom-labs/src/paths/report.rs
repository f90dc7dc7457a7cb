//! What the passes say: tables and charts by load, which path is best and by how much, who else works, where it dips.

use fathom_bench::parts::{
    axis, bars, chart, estimate, headline_of, number, point, series, table, text,
};
use fathom_bench::results::Shown;
use fathom_stats::Estimate;
use fathom_stats::bootstrap::bootstrap_mean;
use fathom_stats::compare::{Difference, Good, Verdict, holm, paired};
use fathom_stats::dips::{DEEP, without_dips};
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Section, Table};
use fathom_telemetry::units::grouped;

use super::{Load, PathsResult, Seen, SiteKind, SiteSeen};
use fathom_system::kernel_threads::Family;

/// A path against the usual one of its device.
struct Compared {
    path: usize,
    difference: Difference,
    /// What follows where all paths of the device are looked at together.
    verdict: Verdict,
}

impl PathsResult {
    /// A path in words.
    pub(super) fn name(&self, path: usize) -> String {
        let p = self.paths[path];
        let how = if p.direct { "direct" } else { "buffered" };
        format!("{}, {how}", self.sites[p.site].name)
    }

    fn site(&self, path: usize) -> &SiteSeen {
        &self.sites[self.paths[path].site]
    }

    fn group(&self, path: usize) -> usize {
        self.sites[self.paths[path].site].group
    }

    fn groups(&self) -> usize {
        self.sites.iter().map(|s| s.group + 1).max().unwrap_or(0)
    }

    fn members(&self, group: usize) -> Vec<usize> {
        (0..self.paths.len())
            .filter(|p| self.group(*p) == group)
            .collect()
    }

    /// What an application gets that asks for nothing: through the page cache, of a file system where there is one.
    fn usual(&self, group: usize) -> Option<usize> {
        let all = self.members(group);
        let on_files = |p: &usize| self.site(*p).kind == SiteKind::Files;
        let buffered = |p: &usize| !self.paths[*p].direct;
        let first = |f: &dyn Fn(&usize) -> bool| all.iter().copied().find(|p| f(p));
        first(&|p| buffered(p) && on_files(p))
            .or_else(|| first(&buffered))
            .or(all.first().copied())
    }

    fn mean(&self, path: usize, load: usize, f: impl Fn(&Seen) -> Option<f64>) -> Option<Estimate> {
        let all = self.seen[path][load].iter().flatten();
        let values: Vec<f64> = all.filter_map(f).collect();
        bootstrap_mean(&values, self.options.seed)
    }

    fn rate(&self, path: usize, load: usize) -> Option<Estimate> {
        self.mean(path, load, |s| Some(s.iops))
    }

    /// How much faster `a` is than `b`, by the ratios of the repeats: they are pairs.
    fn faster(&self, a: usize, b: usize, load: usize) -> Option<Difference> {
        let pairs = self.seen[a][load].iter().zip(&self.seen[b][load]);
        let ratios: Vec<f64> = pairs
            .filter_map(|(a, b)| Some(a.as_ref()?.iops / b.as_ref()?.iops))
            .collect();
        paired(&ratios, Good::More)
    }

    /// Every other path of a device against its usual one. Which is best is known only afterwards: a difference is shown
    /// where it holds among all of them (Holm).
    fn compared(&self, group: usize, load: usize) -> Vec<Compared> {
        let Some(usual) = self.usual(group) else {
            return Vec::new();
        };
        let others = self.members(group).into_iter().filter(|p| *p != usual);
        let all: Vec<(usize, Difference)> = others
            .filter_map(|p| Some((p, self.faster(p, usual, load)?)))
            .collect();
        let p: Vec<f64> = all.iter().map(|a| a.1.p.unwrap_or(1.0)).collect();
        let holds = holm(&p);
        let judged = |((path, difference), holds): ((usize, Difference), bool)| Compared {
            path,
            verdict: match difference.verdict {
                Verdict::Better | Verdict::Worse if !holds => Verdict::NoDifferenceShown,
                v => v,
            },
            difference,
        };
        all.into_iter().zip(holds).map(judged).collect()
    }

    fn kernel(&self, path: usize, load: usize, family: usize) -> Option<Estimate> {
        self.mean(path, load, |s| Some(s.kernel?[family]))
    }

    /// Share of the windows that lie in dips.
    fn dipping(&self, path: usize, load: usize) -> Option<f64> {
        let all: Vec<&Seen> = self.seen[path][load].iter().flatten().collect();
        let windows: usize = all.iter().map(|s| s.windows).sum();
        let low: usize = all.iter().flat_map(|s| &s.dips).map(|d| d.windows).sum();
        (windows > 0).then(|| low as f64 / windows as f64)
    }

    /// Share of the repeats in which there was a dip.
    fn dipped(&self, path: usize, load: usize) -> f64 {
        let all: Vec<&Seen> = self.seen[path][load].iter().flatten().collect();
        let with = all.iter().filter(|s| !s.dips.is_empty()).count();
        with as f64 / all.len().max(1) as f64
    }

    fn jobs(&self, paths: &[usize], load: usize) -> Vec<usize> {
        let all = paths.iter().flat_map(|p| self.seen[*p][load].iter());
        all.flatten().map(|s| s.job).collect()
    }
}

/// Section, headlines and findings.
pub(super) fn present(r: &PathsResult, shown: &mut Shown) {
    let o = &r.options;
    let memory = match (&r.unlimited, o.memory > 0.0 && !r.simulated) {
        (Some(why), _) => format!(
            " Memory could not be limited ({why}): jobs through the page cache had all of it, and reads that it answers say nothing of the device."
        ),
        (None, true) => format!(
            " Jobs through the page cache had {} % of the range for it (and 64 MiB for this process).",
            o.memory
        ),
        (None, false) => String::new(),
    };
    let mut section = Section {
        id: "paths".into(),
        title: "Paths to the same bytes".into(),
        text: format!(
            "The same jobs through every path, in turns; intervals are by resampling, comparisons by the ratios of each turn, judged together for all paths of a device (Holm). Writes are made durable on every path alike (fdatasync after 256 random and 64 sequential ones of a thread). Kernel threads' CPU time is what they took beyond an idle moment of the same turn.{memory} A dip is a run of 20 ms windows below {:.0} % of the median that a change-point test tells from noise.",
            100.0 * DEEP
        ),
        ..Section::default()
    };
    for (l, load) in r.loads.iter().enumerate() {
        section.tables.push(passes(r, l, *load));
        section.charts.push(rates(r, l, *load));
        for group in 0..r.groups() {
            let Some(best) = best(r, group, l) else {
                continue;
            };
            let id = format!("paths-{}-{group}", load.id());
            let label = format!("{}: {}", load.id(), r.name(best));
            let jobs = r.jobs(&[best], l);
            shown.headlines.push(headline_of(
                "Best path",
                &label,
                &id,
                "IOPS",
                r.rate(best, l),
                jobs,
            ));
            match finding(r, group, l, *load) {
                Some(Ok(f)) => shown.findings.push(f),
                // Nothing to choose is worth knowing, too.
                Some(Err(text)) => shown.findings.push(Finding {
                    id: format!("paths-{}-{group}-usual", load.id()),
                    text,
                    confidence: "moderate".into(),
                    jobs: r.jobs(&r.members(group), l),
                    evidence: vec![
                        format!("paths-{}-chart", load.id()),
                        format!("paths-{}", load.id()),
                    ],
                    refuted_by: "More turns that show a difference: --profile standard.".into(),
                    ..Finding::default()
                }),
                None => {}
            }
        }
        shown.findings.extend(dips(r, l, *load));
    }
    if !r.simulated {
        section.charts.push(cpu(r, 0));
    }
    shown.sections.push(section);
}

fn best(r: &PathsResult, group: usize, load: usize) -> Option<usize> {
    let rate = |p: &usize| r.rate(*p, load).map(|e| e.value);
    r.members(group)
        .into_iter()
        .filter(|p| rate(p).is_some())
        .max_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)))
}

fn passes(r: &PathsResult, l: usize, load: Load) -> Table {
    let compared: Vec<Compared> = (0..r.groups()).flat_map(|g| r.compared(g, l)).collect();
    let compared = |p: usize| compared.iter().find(|c| c.path == p);
    let verdict = |p: usize| match compared(p) {
        Some(c) => c.verdict.words(),
        None if r.usual(r.group(p)) == Some(p) => "the usual path",
        None => "–",
    };
    let whole = |p: usize| -> Option<f64> {
        let each = (0..5).map(|f| r.kernel(p, l, f).map(|e| e.value));
        each.sum()
    };
    table(
        &format!("paths-{}", load.id()),
        &capital(&load.about(&r.options)),
        0..r.paths.len(),
        &[
            ("path", "", &|p| text(r.name(*p))),
            ("I/Os", "IOPS", &|p| estimate(r.rate(*p, l))),
            ("bandwidth", "bytes/s", &|p| {
                estimate(r.mean(*p, l, |s| Some(s.bytes)))
            }),
            ("p99", "ns", &|p| estimate(r.mean(*p, l, |s| s.p99))),
            ("CPU of the process, each I/O", "ns", &|p| {
                estimate(r.mean(*p, l, |s| Some(s.cpu)))
            }),
            ("CPU of kernel threads, each I/O", "ns", &|p| {
                number(whole(*p))
            }),
            ("of that kworker", "ns", &|p| estimate(r.kernel(*p, l, 0))),
            ("of that kswapd", "ns", &|p| estimate(r.kernel(*p, l, 1))),
            ("in dips", "%", &|p| {
                number(r.dipping(*p, l).map(|s| (1000.0 * s).round() / 10.0))
            }),
            ("against the usual path of its device", "%", &|p| {
                let more = compared(*p).map(|c| c.difference.relative);
                estimate(more.map(|e| e.scale(100.0)))
            }),
            ("verdict", "", &|p| text(verdict(*p))),
        ],
    )
}

fn capital(text: &str) -> String {
    let mut all = text.chars();
    all.next()
        .map_or(String::new(), |c| c.to_uppercase().chain(all).collect())
}

fn rates(r: &PathsResult, l: usize, load: Load) -> Chart {
    let names: Vec<String> = (0..r.paths.len()).map(|p| r.name(p)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bars(
        &format!("paths-{}-chart", load.id()),
        &capital(&load.about(&r.options)),
        axis("I/Os", "IOPS", false),
        &names,
        (0..r.paths.len()).map(|p| r.rate(p, l)),
    )
}

/// Who works for an I/O of the first load: the process, and the kernel's threads.
fn cpu(r: &PathsResult, l: usize) -> Chart {
    let of = |f: &dyn Fn(usize) -> Option<Estimate>| {
        (0..r.paths.len())
            .map(|p| point(p as f64, f(p).map(|e| Estimate::single(e.value))))
            .collect()
    };
    let mut all = vec![series("process", of(&|p| r.mean(p, l, |s| Some(s.cpu))))];
    for (i, family) in Family::ALL.iter().enumerate() {
        all.push(series(family.name(), of(&|p| r.kernel(p, l, i))));
    }
    let mut drawn = chart(
        "paths-cpu-chart",
        "CPU time of each random I/O",
        ChartKind::StackedBar,
        axis("path", "", false),
        axis("CPU time", "ns", false),
        all,
    );
    drawn.categories = (0..r.paths.len()).map(|p| r.name(p)).collect();
    drawn
}

fn threads(r: &PathsResult, path: usize, load: usize) -> Option<String> {
    let of = |f| r.kernel(path, load, f).map(|e| e.value);
    let whole: f64 = (0..5).filter_map(of).sum();
    of(0).map(|kworker| {
        format!(
            "{} of kernel threads' CPU time ({} kworker, {} kswapd)",
            Nanos(whole as u64),
            Nanos(kworker as u64),
            Nanos(of(1).unwrap_or(0.0) as u64)
        )
    })
}

/// Who works for the I/Os of two paths; empty where it is not known.
fn whose(r: &PathsResult, [usual, best]: [usize; 2], l: usize) -> String {
    let parts: Vec<String> = [(usual, "each I/O takes"), (best, "there")]
        .iter()
        .filter_map(|(p, word)| Some(format!("{} {word} {}", r.name(*p), threads(r, *p, l)?)))
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("; {}", parts.join(", ")),
    }
}

/// Which path of a device, and how much it gives over the usual one; in words alone where there is nothing to gain.
fn finding(r: &PathsResult, group: usize, l: usize, load: Load) -> Option<Result<Finding, String>> {
    let (best, usual) = (best(r, group, l)?, r.usual(group)?);
    let all = r.members(group);
    if all.len() < 2 {
        return None;
    }
    let about = load.about(&r.options);
    let rate = |p| r.rate(p, l).map_or(0.0, |e| e.value);
    let compared = r.compared(group, l);
    if best == usual {
        let nearest = compared
            .iter()
            .max_by(|a, b| rate(a.path).total_cmp(&rate(b.path)))?;
        let (next, less) = (nearest.path, nearest.difference.relative);
        let told = if nearest.verdict == Verdict::Worse {
            format!("{} has {:+.0} %", r.name(next), 100.0 * less.value)
        } else {
            format!("no difference is shown to {}", r.name(next))
        };
        return Some(Err(format!(
            "{}: the usual path, {}, is the fastest with {} I/Os per second; {told}.",
            capital(&about),
            r.name(best),
            grouped(rate(best))
        )));
    }
    let judged = compared.iter().find(|c| c.path == best)?;
    let (more, shown) = (
        judged.difference.relative,
        judged.verdict == Verdict::Better,
    );
    let range = more.low.zip(more.high).map_or(String::new(), |(a, b)| {
        format!(" ({:+.0} to {:+.0} %)", 100.0 * a, 100.0 * b)
    });
    let whose = whose(r, [usual, best], l);
    if !shown {
        let chance = if more.low.is_some_and(|l| l > 0.0) {
            format!(
                ": the best of {} paths may differ as much by chance",
                all.len()
            )
        } else {
            String::new()
        };
        return Some(Err(format!(
            "{}: no difference shown between {} and {}{range}{chance}{whose}.",
            capital(&about),
            r.name(best),
            r.name(usual)
        )));
    }
    Some(Ok(Finding {
        id: format!("paths-{}-{group}", load.id()),
        text: format!(
            "{}: {} gives {} I/Os per second, {:+.0} %{range} against {}{whose}.",
            capital(&about),
            r.name(best),
            grouped(rate(best)),
            100.0 * more.value,
            r.name(usual)
        ),
        advice: advice(r, best, usual),
        confidence: "moderate".into(),
        jobs: r.jobs(&all, l),
        evidence: vec![
            format!("paths-{}-chart", load.id()),
            format!("paths-{}", load.id()),
        ],
        gain: Some(more),
        refuted_by: "More turns that show no difference: --profile standard; or the application's own load on both paths.".into(),
        ..Finding::default()
    }))
}

fn advice(r: &PathsResult, best: usize, usual: usize) -> String {
    let mut all = Vec::new();
    if r.paths[best].site != r.paths[usual].site {
        all.push(match r.site(best).kind {
            SiteKind::Device => {
                "give the store the block device itself, without a file system".to_owned()
            }
            SiteKind::Files => format!("put its files on {}", r.site(best).place),
        });
    }
    match (r.paths[best].direct, r.paths[usual].direct) {
        (true, false) => all.push(
            "open with O_DIRECT and give the store a cache of its own (InnoDB: innodb_flush_method=O_DIRECT)".into(),
        ),
        (false, true) => all.push("leave the page cache on".into()),
        _ => {}
    }
    capital(&all.join("; ")) + "."
}

/// Dips that come again in at least half of the turns, and on whose side they are.
fn dips(r: &PathsResult, l: usize, load: Load) -> Option<Finding> {
    let again: Vec<usize> = (0..r.paths.len())
        .filter(|p| r.dipped(*p, l) >= 0.5 && r.seen[*p][l].iter().flatten().count() >= 3)
        .collect();
    let worst = *again.iter().max_by(|a, b| {
        let share = |p: &usize| r.dipping(*p, l).unwrap_or(0.0);
        share(a).total_cmp(&share(b))
    })?;
    let direct = again.iter().any(|p| r.paths[*p].direct);
    let buffered = again.iter().any(|p| !r.paths[*p].direct);
    let (whose, advice) = match (direct, buffered) {
        (true, true) => (
            "paths past the page cache and through it have them: the device, or its heat",
            "watch the temperature (fathom devices), and measure again with more air and after idle time",
        ),
        (true, false) => (
            "only paths past the page cache have them: it hides what the device does",
            "run longer to see whether the device keeps the rate: fathom condition --until-steady",
        ),
        _ => (
            "only paths through the page cache have them: the kernel's write-back, not the device",
            "lower vm.dirty_bytes, so that it writes less at a time, or open with O_DIRECT",
        ),
    };
    let deepest = r.seen[worst][l]
        .iter()
        .flatten()
        .flat_map(|s| &s.dips)
        .map(|d| d.level)
        .fold(1.0, f64::min);
    Some(Finding {
        id: format!("paths-dips-{}", load.id()),
        text: format!(
            "{}: {} spends {:.0} % of the time in dips, down to {:.0} % of its usual rate; {whose}.",
            capital(&load.about(&r.options)),
            r.name(worst),
            100.0 * r.dipping(worst, l).unwrap_or(0.0),
            100.0 * deepest
        ),
        advice: capital(advice) + ".",
        confidence: "weak".into(),
        jobs: r.jobs(&again, l),
        evidence: vec![format!("paths-{}", load.id())],
        gain: r.mean(worst, l, |s| {
            let all = s.dips.iter().map(|d| (d.windows, d.level));
            Some(without_dips(all, s.windows))
        }),
        refuted_by: "Longer runs without them: --profile standard.".into(),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use fathom_bench::measurement::defaults;
    use fathom_stats::rng::SplitMix64;

    use super::super::{Path, PathsOptions};
    use super::*;

    /// Five turns of eight paths of one device, all alike but the last, which is faster by `change`; passes scatter by 3 %.
    fn finding_of(change: f64, seed: u64) -> Result<Finding, String> {
        let options = PathsOptions {
            threads: 1,
            ..defaults()
        };
        let mut random = SplitMix64::new(seed);
        let turns: Vec<f64> = (0..5).map(|_| 1.0 + 0.1 * random.normal()).collect();
        let paths: Vec<Path> = (0..4)
            .flat_map(|site| [true, false].map(|direct| Path { site, direct }))
            .collect();
        let seen = |path: usize| {
            let more = if path == 7 { 1.0 + change } else { 1.0 };
            let one = |turn: &f64| {
                Some(Seen {
                    job: 0,
                    iops: 1e4 * turn * more * (1.0 + 0.03 * random.normal()),
                    bytes: 0.0,
                    p99: None,
                    cpu: 0.0,
                    kernel: None,
                    dips: Vec::new(),
                    windows: 0,
                })
            };
            vec![turns.iter().map(one).collect()]
        };
        let seen = (0..paths.len()).map(seen).collect();
        let site = |i: usize| SiteSeen {
            name: format!("file system {i}"),
            place: format!("file system {i}"),
            kind: SiteKind::Files,
            group: 0,
        };
        let results = PathsResult {
            options,
            sites: (0..4).map(site).collect(),
            paths,
            loads: vec![Load::Random],
            seen,
            unlimited: None,
            simulated: false,
            skipped: Vec::new(),
        };
        finding(&results, 0, 0, Load::Random).unwrap()
    }

    #[test]
    fn the_best_of_eight_equal_paths_is_no_finding_and_a_better_one_is() {
        let findings = |change: f64| {
            let all = (0..300).map(|seed| finding_of(change, seed));
            all.filter(Result::is_ok).count()
        };
        // Without the correction it would be one in five.
        let alarms = findings(0.0);
        assert!(alarms <= 18, "{alarms} of 300");
        let found = findings(0.3);
        assert!(found >= 285, "{found} of 300");
        let f = finding_of(0.3, 1).unwrap();
        assert!(f.gain.unwrap().low.unwrap() > 0.1 && !f.refuted_by.is_empty());
        assert!(f.text.contains("file system 3, buffered"), "{}", f.text);
        // Where the usual path is the fastest, there is nothing to change.
        let said: Vec<String> = (0..40).filter_map(|s| finding_of(-0.3, s).err()).collect();
        assert!(said.len() >= 38, "{said:?}");
        assert!(
            said.iter().any(|s| s.contains("the usual path, ")),
            "{said:?}"
        );
    }
}
