//! Job files: sections, global options, includes, environment, comments.
//!
//! Line by line as fio's own reader does it: a comment may begin anywhere in a line, a
//! flag needs no value, an option before any section is an error.

use std::path::{Path, PathBuf};

use crate::FioError;
use crate::section::{Section, Setting};

/// Jobs in the order of the script.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// The jobs.
    pub sections: Vec<Section>,
    /// Options of `[global]`, and of the command line before the first job.
    pub(crate) globals: Vec<Setting>,
    /// Whether there was a `[global]` section.
    pub has_global: bool,
}

impl Script {
    /// A new job that begins with the global options.
    pub(crate) fn job(&self, name: &str) -> Section {
        Section {
            name: name.to_owned(),
            settings: self.globals.clone(),
            wall: false,
        }
    }
}

/// Includes may nest so deep.
const INCLUDES_MAX: usize = 16;

/// Reads a job file and adds its jobs to `script`. `only` are the sections to keep (all where empty).
pub fn parse_job_file(script: &mut Script, path: &Path, only: &[String]) -> Result<(), FioError> {
    let text = read(path)?;
    let first = script.sections.len();
    parse_text(script, &text, path, only)?;
    // Job files run one after another.
    if first > 0
        && let Some(section) = script.sections.get_mut(first)
    {
        section.wall = true;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, FioError> {
    let unreadable = |why: String| FioError::Unreadable {
        path: path.display().to_string(),
        why,
    };
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    bytes
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .map_err(|e| unreadable(e.to_string()))
}

/// The same for text already at hand; `path` names it in errors and anchors includes.
pub(crate) fn parse_text(
    script: &mut Script,
    text: &str,
    path: &Path,
    only: &[String],
) -> Result<(), FioError> {
    let mut current: Option<(String, Vec<(usize, String)>)> = None;
    let mut skipping = false;
    for (number, raw) in text.lines().enumerate() {
        let line = clean(raw);
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            if rest.is_empty() {
                return Err(syntax(
                    path,
                    number,
                    "a section needs a name, such as [job1]",
                ));
            }
            if let Some((name, lines)) = current.take() {
                close(script, &name, lines, path)?;
            }
            // fio takes the last character for the bracket, whatever it is.
            let name: String = rest.chars().take(rest.chars().count() - 1).collect();
            skipping = !name.starts_with("global") && !only.is_empty() && !only.contains(&name);
            if !skipping {
                current = Some((name, Vec::new()));
            }
            continue;
        }
        match &mut current {
            Some((_, lines)) => lines.push((number, line.to_owned())),
            None if skipping => {}
            None => {
                return Err(syntax(
                    path,
                    number,
                    &format!("'{line}' stands outside of a section: begin with [global] or [job1]"),
                ));
            }
        }
    }
    if let Some((name, lines)) = current.take() {
        close(script, &name, lines, path)?;
    }
    Ok(())
}

fn syntax(path: &Path, line: usize, message: &str) -> FioError {
    FioError::Syntax {
        place: format!("{}:{}", path.display(), line + 1),
        message: message.to_owned(),
    }
}

/// Without comment and surrounding space.
fn clean(line: &str) -> &str {
    let end = line.find([';', '#']).unwrap_or(line.len());
    line[..end].trim_matches(|c: char| c.is_ascii_whitespace() || c.is_ascii_control())
}

/// A section is complete: its options are judged.
fn close(
    script: &mut Script,
    name: &str,
    lines: Vec<(usize, String)>,
    path: &Path,
) -> Result<(), FioError> {
    let global = name.starts_with("global");
    let mut section = script.job(name);
    let mut all = Vec::new();
    include(&mut all, lines, path, 0)?;
    let mut strange = Vec::new();
    for line in &all {
        let (option, value) = split(&expand(line));
        match section.add(&option, value, global) {
            // Options of engines that fathom lacks are theirs to judge.
            Err(FioError::Unknown { name: n, hint, job }) => {
                strange.push(FioError::Unknown { name: n, hint, job });
            }
            other => other?,
        }
    }
    let foreign = section.foreign_engine();
    if let Some(e) = strange.into_iter().next()
        && !foreign
    {
        return Err(e);
    }
    if !foreign {
        section.check_engine_options(global)?;
    }
    if global {
        script.globals = section.settings;
        script.has_global = true;
    } else {
        script.sections.push(section);
    }
    Ok(())
}

/// Replaces `include FILE` by the file's lines.
fn include(
    out: &mut Vec<String>,
    lines: Vec<(usize, String)>,
    path: &Path,
    depth: usize,
) -> Result<(), FioError> {
    for (number, line) in lines {
        let Some(rest) = line.strip_prefix("include") else {
            out.push(line);
            continue;
        };
        if depth >= INCLUDES_MAX {
            return Err(syntax(path, number, "files include each other too deeply"));
        }
        let name = rest.get(1..).unwrap_or("").trim();
        let mut file = PathBuf::from(name);
        if !file.exists()
            && let Some(dir) = path.parent()
        {
            file = dir.join(name);
        }
        let text = read(&file)?;
        let mut inner = Vec::new();
        for (n, raw) in text.lines().enumerate() {
            let l = clean(raw);
            if l.starts_with('[') {
                return Err(syntax(&file, n, "an included file may not begin a section"));
            }
            if !l.is_empty() {
                inner.push((n, l.to_owned()));
            }
        }
        include(out, inner, &file, depth + 1)?;
    }
    Ok(())
}

/// `name=value`, or a name alone.
pub(crate) fn split(line: &str) -> (String, Option<String>) {
    match line.split_once('=') {
        Some((n, v)) => (n.trim_end().to_owned(), Some(v.to_owned())),
        None => (line.trim_end().to_owned(), None),
    }
}

/// Puts in `${ENV}` and fio's keywords.
pub(crate) fn expand(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 2..];
        match tail.find('}') {
            Some(end) => {
                out.push_str(&std::env::var(&tail[..end]).unwrap_or_default());
                rest = &tail[end + 1..];
            }
            None => {
                out.push_str("${");
                rest = tail;
            }
        }
    }
    out.push_str(rest);
    for (word, value) in [
        ("$pagesize", page_size as fn() -> u64),
        ("$mb_memory", memory_mib),
        ("$ncpus", processors),
    ] {
        if out.contains(word) {
            out = arithmetic(&out.replace(word, &value().to_string()));
        }
    }
    out
}

fn page_size() -> u64 {
    4096
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn memory_mib() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|t| {
            t.lines()
                .next()?
                .split_whitespace()
                .nth(1)?
                .parse::<u64>()
                .ok()
        })
        .map_or(0, |kib| kib >> 10)
}

/// A product or quotient after `=`, as in `size=8*4096`.
fn arithmetic(text: &str) -> String {
    let Some((name, value)) = text.split_once('=') else {
        return text.to_owned();
    };
    for (sign, f) in [
        ('*', u64::checked_mul as fn(u64, u64) -> Option<u64>),
        ('/', u64::checked_div),
        ('+', u64::checked_add),
        ('-', u64::checked_sub),
    ] {
        if let Some((a, b)) = value.split_once(sign)
            && let (Ok(a), Ok(b)) = (a.trim().parse(), b.trim().parse())
            && let Some(n) = f(a, b)
        {
            return format!("{name}={n}");
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script, FioError> {
        let mut script = Script::default();
        parse_text(&mut script, text, Path::new("test.fio"), &[]).map(|()| script)
    }

    #[test]
    fn global_options_hold_for_the_jobs_after_them() {
        let s = parse("[global]\nbs=8k ; comment\n[a]\nrw=read\n[global]\nbs=4k\n[b]\ntime_based\nruntime=5\n").unwrap();
        assert_eq!(s.sections[0].get("bs"), Some("8k"));
        assert_eq!(s.sections[1].get("bs"), Some("4k"));
        assert!(s.sections[1].flag("time_based", false));
        assert_eq!(s.sections[1].nanos("runtime"), Some(5_000_000_000));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, part) in [
            ("bs=4k\n", "outside of a section"),
            ("[a]\nbsize=4k\n", "no option 'bsize'"),
            ("[a]\nbs=\n", "bs: "),
            ("[a]\ndirect\n", "a value is needed"),
            ("[a]\nrw=sideways\n", "not one of read"),
            ("[a]\niodepth=0\n", "iodepth: 0"),
            (
                "[a]\nioengine=libaio\nsqthread_poll=1\n",
                "for the engine libaio",
            ),
        ] {
            let e = parse(text).unwrap_err().to_string();
            assert!(e.contains(part), "{text:?} -> {e}");
        }
    }

    #[test]
    fn environment_and_sections_are_respected() {
        let mut s = Script::default();
        let text = "[a]\nbs=4k\n[b]\nbs=8k\nthis is skipped?\n";
        parse_text(&mut s, text, Path::new("x"), &["a".into()]).unwrap();
        assert_eq!(s.sections.len(), 1);
        assert_eq!(expand("a${NO_SUCH_VARIABLE_HERE}b"), "ab");
        assert_eq!(expand("size=8*$pagesize"), "size=32768");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn no_text_makes_the_reader_panic(text in "(\\PC{0,40}\n|\\[[a-z]{0,4}\\]?\n|(bs|rw|size|direct|bssplit|random_distribution|cpus_allowed|percentile_list|bsrange|runtime)=[-0-9a-z:,./%]{0,12}\n){0,12}") {
            if let Ok(script) = parse(&text) {
                let _ = crate::plan(&script);
            }
        }
    }
}
