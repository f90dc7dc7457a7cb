//! Inside a room no circle of files: who reads one needs to know only those that it names, and what they name.
//!
//! A file may use what its own folder's file (`mod.rs`) offers to all of its children; other arrows between files must
//! not lead back. Names are followed through `use`, paths in code, and what a file offers again (`pub use`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by its path from the crate's root.
type Module = Vec<String>;
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

struct Room {
    files: BTreeMap<Module, String>,
    /// What a file offers again under a name of its own.
    offers: BTreeMap<Module, BTreeMap<String, Module>>,
}

fn walk(dir: &Path, at: &Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            walk(&path, &[at.clone(), vec![stem]].concat(), files);
        } else if path.extension().is_some_and(|e| e == "rs")
            && stem != "tests"
            && !stem.ends_with("_tests")
        {
            let here = match stem.as_str() {
                "mod" | "lib" | "main" => at.clone(),
                _ => [at.clone(), vec![stem]].concat(),
            };
            files.insert(here, code(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Without comments and tests.
fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|w| w[0] == "#[cfg(test)]" && w[1].contains("mod ") && w[1].ends_with('{'));
    lines[..tests.unwrap_or(lines.len())]
        .iter()
        .map(|l| l.split("//").next().unwrap_or(l))
        .collect::<Vec<_>>()
        .join("\n")
}

/// `a::{b, c::{d, e}}` as paths.
fn expanded(tree: &str) -> Vec<Module> {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return vec![
            path.split("::")
                .map(|s| s.trim().to_owned())
                .filter(|s| !s.is_empty())
                .collect(),
        ];
    };
    let body = rest.rsplit_once('}').map_or(rest, |(b, _)| b);
    let (mut depth, mut parts, mut last) = (0, Vec::new(), String::new());
    for c in body.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut last));
                continue;
            }
            _ => {}
        }
        last.push(c);
    }
    parts.push(last);
    let parts = parts.iter().filter(|p| !p.trim().is_empty());
    parts
        .flat_map(|p| expanded(&format!("{head}{}", p.trim())))
        .collect()
}

/// Every `use`, and whether it offers the name to others.
fn uses(text: &str) -> Vec<(bool, Vec<Module>)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("use ") {
        let before = rest[..at].trim_end_matches([' ', '\t']);
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        let after = &rest[at + 4..];
        let end = after.find(';').unwrap_or(after.len());
        if line.is_empty() || line.starts_with("pub") {
            all.push((line.starts_with("pub"), expanded(&after[..end])));
        }
        rest = &after[end..];
    }
    all
}

/// Paths in code that begin with one of these words.
fn paths(text: &str, first: impl Fn(&str) -> bool) -> Vec<Module> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = Vec::new();
    for word in text.split(|c: char| !is_name(c) && c != ':') {
        let parts: Module = word
            .split("::")
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect();
        if parts.len() > 1 && first(&parts[0]) {
            all.push(parts);
        }
    }
    all
}

impl Room {
    fn read(src: &Path) -> Self {
        let mut files = BTreeMap::new();
        walk(src, &Vec::new(), &mut files);
        Self::of(files)
    }

    fn of(files: BTreeMap<Module, String>) -> Self {
        let mut room = Self {
            files,
            offers: BTreeMap::new(),
        };
        for (at, text) in &room.files {
            let mut names = BTreeMap::new();
            for path in uses(text).into_iter().filter(|u| u.0).flat_map(|u| u.1) {
                let name = path.last().cloned().unwrap_or_default();
                names.insert(name, room.absolute(at, &path).unwrap_or(path));
            }
            room.offers.insert(at.clone(), names);
        }
        room
    }

    /// From the crate's root; `None` for what is in other crates.
    fn absolute(&self, at: &Module, path: &[String]) -> Option<Module> {
        let ups = path.iter().take_while(|p| *p == "super").count();
        if ups > 0 {
            let base = &at[..at.len().checked_sub(ups)?];
            return Some([base, &path[ups..]].concat());
        }
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([at, &path[1..]].concat()),
            first => {
                let child = [at.clone(), vec![first.to_owned()]].concat();
                self.files.contains_key(&child).then(|| [at, path].concat())
            }
        }
    }

    /// The file in which a name is defined.
    fn file(&self, path: &[String], hops: usize) -> Option<Module> {
        let n = (0..=path.len())
            .rev()
            .find(|n| self.files.contains_key(&path[..*n]))?;
        let (here, rest) = (path[..n].to_vec(), &path[n..]);
        if let (Some(first), true) = (rest.first(), hops < 5)
            && let Some(other) = self.offers.get(&here).and_then(|o| o.get(first))
            && other != path
        {
            return self.file(&[&other[..], &rest[1..]].concat(), hops + 1);
        }
        Some(here)
    }

    fn arrows(&self) -> Arrows {
        let mut all = Arrows::new();
        for (at, text) in &self.files {
            let child = |name: &str| {
                self.files
                    .contains_key(&[at.clone(), vec![name.to_owned()]].concat())
            };
            let in_code = paths(text, |f| {
                matches!(f, "crate" | "super" | "self") || child(f)
            });
            let named = uses(text).into_iter().flat_map(|u| u.1).chain(in_code);
            let to = named
                .filter_map(|path| self.file(&self.absolute(at, &path)?, 0))
                .filter(|other| !at.starts_with(other))
                .collect();
            all.insert(at.clone(), to);
        }
        all
    }
}

fn reachable(arrows: &Arrows, from: &Module) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Module> = arrows[from].iter().collect();
    while let Some(m) = next.pop() {
        if seen.insert(m.clone()) {
            next.extend(&arrows[m]);
        }
    }
    seen
}

/// Files that reach each other.
fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        arrows.keys().map(|m| (m, reachable(arrows, m))).collect();
    let name = |m: &Module| {
        if m.is_empty() {
            "lib".to_owned()
        } else {
            m.join("/")
        }
    };
    let circle = |m: &Module| {
        let others = reach[m].iter().filter(|o| reach[o].contains(m));
        others.map(name).collect::<BTreeSet<_>>()
    };
    arrows.keys().map(circle).filter(|c| c.len() > 1).collect()
}

#[test]
fn no_files_of_a_room_use_each_other_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        let dir = entry.unwrap().path();
        let room = dir.file_name().unwrap().to_string_lossy().into_owned();
        if !dir.join("src").is_dir() {
            continue;
        }
        let circles = circles(&Room::read(&dir.join("src")).arrows());
        found.extend(circles.iter().map(|c| format!("{room}: {c:?}")));
    }
    assert!(
        found.is_empty(),
        "move what both need into a file below both:\n  {}",
        found.join("\n  ")
    );
}

#[test]
fn a_circle_is_found_through_every_way_of_naming() {
    let file = |at: &[&str], text: &str| {
        let at: Module = at.iter().map(|s| (*s).to_owned()).collect();
        (at, code(text))
    };
    let room =
        |texts: [(Module, String); 4]| circles(&Room::of(texts.into_iter().collect()).arrows());
    let a_to_b = "use crate::{c::{self, D}, b::B};";
    for b in [
        "use crate::a::A;",
        "fn f() { crate::a::go() }",
        "use super::a;",
        "use crate::A;",
    ] {
        let seen = room([
            file(&[], "pub mod a; mod b; mod c; pub use a::A;"),
            file(&["a"], a_to_b),
            file(&["b"], b),
            file(&["c"], "use std::fmt;"),
        ]);
        assert_eq!(seen.len(), 1, "{b}: {seen:?}");
    }
    for b in ["use crate::c::D;", "// use crate::a::A;", "use std::a::A;"] {
        let seen = room([
            file(&[], "pub mod a; mod b; mod c; pub use a::A;"),
            file(&["a"], a_to_b),
            file(&["b"], b),
            file(&["c"], ""),
        ]);
        assert!(seen.is_empty(), "{b}: {seen:?}");
    }
}
