//! `fathom report --svg DIR [--png]`: every chart as a picture.
//!
//! SVG is drawn here. PNG needs letters drawn to pixels: a rasteriser costs a third of fathom's build and
//! still takes its fonts from the system, so an installed Chromium does it (docs/decisions/011).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::anyhow;
use fathom_files::{Existing, create, output};
use fathom_report::{DirOutput, percent_encoded};
use fathom_system::programs;

use super::saved::{data, make};
use crate::exit::{DONE, Failure, Outcome, failed, refused};
use crate::screen;

/// A browser that takes longer for one chart hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pixels for each unit of the drawing: sharp on paper.
const SHARPNESS: u32 = 2;

/// Writes the pictures of a run.
pub(super) fn write(run: &Path, dir: &Path, png: bool) -> Outcome {
    let browser = if png {
        Some(browser().map_err(|e| refused(anyhow!(e)))?)
    } else {
        None
    };
    let exporter = fathom_report::exporter("svg")?;
    let data = data(run)?;
    make(dir)?;
    let mut out = DirOutput::new(dir);
    exporter.export(&data, &mut out)?;
    let svg: Vec<PathBuf> = out.written;
    if let Some(browser) = browser {
        let dir = dir
            .canonicalize()
            .map_err(|e| refused(anyhow!("{}: {e}", dir.display())))?;
        let profile = create::temporary_dir("fathom-chromium-").map_err(failed)?;
        let drawn = svg
            .iter()
            .try_for_each(|file| draw(&browser, &profile, &dir, file));
        // What is left of a profile harms nobody.
        let _ = std::fs::remove_dir_all(&profile);
        drawn?;
    }
    let formats = if png { "svg and png" } else { "svg" };
    screen::print(&format!(
        "{formats}: {} charts in {}\n",
        svg.len(),
        dir.display()
    ));
    Ok(DONE)
}

/// What brings a browser, as Debian calls it.
pub(super) const PACKAGE: &str = "chromium";

/// Where it is, or what is missing.
pub(super) fn browser() -> Result<PathBuf, String> {
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .find_map(|name| programs::find(name))
        .ok_or_else(|| {
            "--png needs chromium and there is none; install it, or use the png button of each chart in report.html".to_owned()
        })
}

fn draw(browser: &Path, profile: &Path, dir: &Path, svg: &Path) -> Result<(), Failure> {
    let name = svg.file_name().unwrap_or_default();
    let (file, png) = (dir.join(name), dir.join(name).with_extension("png"));
    // It would follow a link, and overwrite whatever it finds: it draws where nothing else is.
    let drawn = profile.join("drawn.png");
    let text = std::fs::read_to_string(&file)
        .map_err(|e| failed(anyhow!("{}: cannot be read again: {e}", file.display())))?;
    let size = |attribute: &str| -> Option<u32> {
        let at = text.find(&format!(" {attribute}=\""))? + attribute.len() + 3;
        text[at..].split('"').next()?.parse().ok()
    };
    let (width, height) = (size("width").unwrap_or(860), size("height").unwrap_or(480));
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--disable-dev-shm-usage"])
        .arg(format!("--force-device-scale-factor={SHARPNESS}"))
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--screenshot={}", drawn.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if rustix::process::geteuid().is_root() {
        // It refuses to start as root otherwise; it is shown nothing but our own picture.
        command.arg("--no-sandbox");
    }
    command.arg(format!("file://{}", percent_encoded(&file)));
    let child = command
        .spawn()
        .map_err(|e| failed(anyhow!("{}: cannot be started: {e}", browser.display())))?;
    if !ended(child) || !drawn.exists() {
        return Err(failed(anyhow!(
            "{}: drew no {}; the SVG beside it is whole",
            browser.display(),
            png.display()
        )));
    }
    let unwritten = |e| failed(anyhow!("{}: cannot be written: {e}", png.display()));
    let picture = std::fs::read(&drawn).map_err(unwritten)?;
    std::fs::remove_file(&drawn).map_err(unwritten)?;
    output::write(&png, Existing::OWN, &picture).map_err(unwritten)
}

/// Waits, but not for ever.
fn ended(mut child: Child) -> bool {
    let step = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / step.as_millis() {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(step),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}
