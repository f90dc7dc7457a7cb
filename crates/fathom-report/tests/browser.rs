//! The page in a real browser: no error, every chart drawn, readable by hand and keyboard.
//!
//! Without Chromium these tests say SKIP and pass; what can be checked without it, is.

#[path = "../examples/sample_report/sample/mod.rs"]
mod sample;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fathom_report::{MemoryOutput, MemorySeries, ReportData, compare_page, exporter, format};
use fathom_telemetry::schema::{ChartKind, Mark, Run};

/// The issue's limit for a report.
const BYTES_MAX: usize = 6_000_000;

fn page((run, series): (Run, MemorySeries)) -> String {
    let data = ReportData {
        run,
        series: Box::new(series),
        dir: Some("/runs/sample".into()),
    };
    let mut out = MemoryOutput::default();
    exporter("html").unwrap().export(&data, &mut out).unwrap();
    out.text("report.html")
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .find_map(|name| {
            std::env::split_paths(&path)
                .map(|dir| dir.join(name))
                .find(|p| p.is_file())
        });
    if found.is_none() {
        // Straight to standard error: the test harness swallows what its macros print.
        let _ = writeln!(
            std::io::stderr(),
            "SKIP: no chromium in PATH; 'apt-get install chromium' enables the browser tests"
        );
    }
    found
}

/// The document as the browser has it after loading and running the page.
fn dom(browser: &Path, html: &str, name: &str) -> String {
    let dir = std::env::temp_dir().join(format!("fathom-browser-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("report.html");
    fs::write(&file, html).unwrap();
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1280,4000",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A browser that hangs must not hang the tests.
    let id = child.id();
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if waiting.recv_timeout(Duration::from_secs(90)).is_err() {
            let _ = Command::new("kill").arg(id.to_string()).status();
        }
    });
    let mut text = Vec::new();
    std::io::Read::read_to_end(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    child.wait().unwrap();
    let _ = done.send(());
    watchdog.join().unwrap();
    let _ = fs::remove_dir_all(&dir);
    String::from_utf8(text).unwrap()
}

/// Value of an attribute of the root element.
fn root_attribute<'a>(dom: &'a str, name: &str) -> Option<&'a str> {
    let root = &dom[dom.find("<html")?..];
    let root = &root[..root.find('>')?];
    let at = root.find(&format!("{name}=\""))? + name.len() + 2;
    root[at..].split('"').next()
}

/// The page with a script that runs after its own.
fn with_script(html: &str, script: &str) -> String {
    html.replace("</body>", &format!("<script>{script}</script></body>"))
}

#[test]
fn the_page_loads_nothing_from_anywhere_and_is_small() {
    let html = page(sample::survey(false));
    assert!(html.len() < BYTES_MAX, "{} bytes", html.len());
    for scheme in ["http://", "https://", "//cdn", "@import"] {
        for (at, _) in html.match_indices(scheme) {
            let text = &html[at..(at + 40).min(html.len())];
            assert!(text.starts_with("http://www.w3.org/2000/svg"), "{text}");
        }
    }
    for attribute in [" src=", " href=\"", "url("] {
        for (at, _) in html.match_indices(attribute) {
            let value = &html[at + attribute.len()..];
            assert!(value.starts_with('#'), "{}", &value[..40]);
        }
    }
}

#[test]
fn names_with_markup_stay_text() {
    let html = page(sample::survey(false));
    assert!(!html.contains("<script>document.title"));
    assert!(html.contains("&lt;script&gt;document.title="));
    // Only the page's own elements: guard, data, charts.
    assert_eq!(html.matches("<script").count(), 3);
    assert_eq!(html.matches("</script").count(), 3);
}

#[test]
fn every_chart_is_drawn_without_an_error() {
    let Some(browser) = chromium() else { return };
    for (name, simulated) in [("real", false), ("simulated", true)] {
        let html = page(sample::survey(simulated));
        let dom = dom(&browser, &html, name);
        assert_eq!(root_attribute(&dom, "data-error"), None);
        assert_eq!(root_attribute(&dom, "data-ready"), Some("yes"));
        let figures = html.matches("<figure class=\"chart").count();
        let drawn = dom.matches("class=\"drawn\"").count();
        assert!(figures >= 15, "{figures}");
        assert_eq!(drawn, figures);
        assert_eq!(
            root_attribute(&dom, "data-charts"),
            Some(figures.to_string().as_str())
        );
        let stamped = dom.matches("class=\"stamp\"").count();
        assert_eq!(stamped, if simulated { figures } else { 0 });
        let drawn = dom.split("id=\"fathom-data\"").next().unwrap();
        assert!(!drawn.contains("NaN"), "a coordinate is not a number");
        assert!(
            dom.contains("<title>fathom survey:"),
            "a name of the run became a script"
        );
    }
}

/// The page must be small, and open without an error and with every chart drawn; says how long that took.
fn opens(html: &str, name: &str) {
    assert!(html.len() < BYTES_MAX, "{} bytes", html.len());
    let Some(browser) = chromium() else { return };
    let dom = dom(&browser, html, name);
    assert_eq!(root_attribute(&dom, "data-error"), None);
    let figures = html.matches("<figure class=\"chart").count();
    assert_eq!(dom.matches("class=\"drawn\"").count(), figures);
    let took: f64 = root_attribute(&dom, "data-ready-ms")
        .unwrap()
        .parse()
        .unwrap();
    // Printed, not judged: a shared machine would make a limit here fail by chance.
    println!("{name}: {} bytes, ready after {took} ms", html.len());
}

#[test]
fn a_run_of_400_long_jobs_stays_under_the_limit_and_opens() {
    opens(&page(sample::large()), "large");
}

#[test]
fn a_run_of_100_million_ios_stays_under_the_limit_and_opens() {
    opens(&page(sample::hundred_million()), "100-million");
}

#[test]
fn several_runs_share_their_charts_on_one_page() {
    let runs: Vec<ReportData> = [sample::survey(false), sample::survey(true)]
        .into_iter()
        .map(|(run, series)| ReportData {
            run,
            series: Box::new(series),
            dir: Some("/runs/sample".into()),
        })
        .collect();
    let html = compare_page(&runs, &[], None).unwrap();
    assert!(html.len() < BYTES_MAX, "{} bytes", html.len());
    // Both runs in the charts that both have: one curve solid, the other of the same colour dashed.
    assert!(html.contains(r#""name":"A: read""#) && html.contains(r#""name":"B: read""#));
    let Some(browser) = chromium() else { return };
    let dom = dom(&browser, &html, "several");
    assert_eq!(root_attribute(&dom, "data-error"), None);
    let figures = html.matches("<figure class=\"chart").count();
    assert!(figures >= 8, "{figures}");
    assert_eq!(dom.matches("class=\"drawn\"").count(), figures);
    assert!(dom.contains("stroke-dasharray=\"7 4\""));
}

#[test]
fn eight_runs_are_told_apart_without_their_colours() {
    let runs: Vec<ReportData> = (0..fathom_report::RUNS_MAX)
        .map(|_| ReportData::from_run(sample::survey(false).0))
        .collect();
    let html = compare_page(&runs, &[], None).unwrap();
    let Some(browser) = chromium() else { return };
    // What the eyes have beside the colour, of each of the first eight series that share one.
    let script = r#"
        const out = document.createElement("pre");
        out.id = "seen";
        const kinds = { line: e => e.querySelector("line").getAttribute("stroke-dasharray"), scatter: e => e.querySelector("path").getAttribute("d"),
                        bar: e => e.querySelectorAll("rect")[1]?.getAttribute("fill") ?? null };
        const seen = {};
        for (const f of document.querySelectorAll("figure.chart")) {
          const spec = JSON.parse(document.getElementById("fathom-data").textContent).charts[f.dataset.chart];
          const keys = [...f.querySelectorAll(".legend button svg")];
          if (keys.length < 8 || !kinds[spec.kind]) continue;
          const told = new Set(keys.map(kinds[spec.kind]));
          seen[spec.kind] = Math.min(seen[spec.kind] ?? 99, told.size);
          for (const e of f.querySelectorAll("[fill^='url(#hatch']")) {
            if (!document.querySelector(e.getAttribute("fill").slice(4, -1))) throw new Error("a hatch is missing");
          }
        }
        out.textContent = JSON.stringify(seen);
        document.body.append(out);
    "#;
    let dom = dom(&browser, &with_script(&html, script), "eight");
    assert_eq!(root_attribute(&dom, "data-error"), None);
    let seen = dom.split("<pre id=\"seen\">").nth(1).unwrap();
    let seen: serde_json::Value =
        serde_json::from_str(seen.split("</pre>").next().unwrap()).unwrap();
    for kind in ["line", "scatter", "bar"] {
        assert_eq!(seen[kind], 8, "{seen}");
    }
}

#[test]
fn names_of_marks_cover_neither_points_nor_other_names() {
    let Some(browser) = chromium() else { return };
    let mut run = sample::survey(false).0;
    for chart in run.sections.iter_mut().flat_map(|s| &mut s.charts) {
        if let Some(points) = chart.series.first().map(|s| s.points.clone())
            && chart.kind == ChartKind::Line
            && chart.categories.is_empty()
        {
            // Marks at every point, where names of points are.
            chart.marks = points
                .iter()
                .rev()
                .take(3)
                .map(|p| Mark {
                    x: Some(p.x),
                    y: None,
                    label: "90 % at QD 64".to_owned(),
                })
                .collect();
        }
    }
    let html = page((run, MemorySeries::default()));
    let script = r#"
        const out = document.createElement("pre");
        out.id = "seen";
        let names = 0, covered = 0;
        for (const f of document.querySelectorAll("figure.chart")) {
          const all = [...f.querySelectorAll(".mark-label, .point-label")].map(e => e.getBBox());
          names += f.querySelectorAll(".mark-label").length;
          all.forEach((a, i) => all.slice(i + 1).forEach(b => {
            if (a.x < b.x + b.width && a.x + a.width > b.x && a.y + 2 < b.y + b.height && a.y + a.height > b.y + 2) covered++;
          }));
        }
        out.textContent = `${names > 5} ${covered}`;
        document.body.append(out);
    "#;
    let dom = dom(&browser, &with_script(&html, script), "names");
    assert_eq!(root_attribute(&dom, "data-error"), None);
    let seen = dom.split("<pre id=\"seen\">").nth(1).unwrap();
    assert_eq!(seen.split("</pre>").next(), Some("true 0"));
}

#[test]
fn every_chart_is_saved_as_a_picture_of_its_own() {
    let Some(browser) = chromium() else { return };
    // Downloads have no place in a test: what would be saved is looked at instead.
    let script = r#"
        const seen = document.createElement("pre");
        seen.id = "seen";
        document.body.append(seen);
        const blobs = new Map();
        const made = URL.createObjectURL;
        URL.createObjectURL = b => { const u = made(b); blobs.set(u, b); return u; };
        HTMLAnchorElement.prototype.click = async function () {
          const blob = blobs.get(this.href);
          const bytes = new Uint8Array(await blob.arrayBuffer());
          if (this.download.endsWith(".png")) {
            seen.textContent += `png:${bytes[0] === 0x89 && bytes.length > 2000}\n`;
            return;
          }
          const text = new TextDecoder().decode(bytes);
          if (this.download.endsWith(".csv")) { seen.textContent += `csv:${text.split("\r\n").length > 5}\n`; return; }
          const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
          const whole = !parsed.querySelector("parsererror") && parsed.querySelectorAll("text").length > 3;
          const plain = !/var\(|color-mix|oklab|NaN|class=/.test(text);
          seen.textContent += `svg:${whole && plain}${whole && plain ? "" : " " + this.download}\n`;
        };
        for (const f of document.querySelectorAll("figure.chart")) f.querySelector("button.save").click();
        document.querySelectorAll("figure.chart button.save")[1].click();
        const details = document.querySelector("details.data");
        details.open = true;
        details.dispatchEvent(new Event("toggle"));
        details.querySelector("button").click();
    "#;
    let html = page(sample::survey(false));
    let figures = html.matches("<figure class=\"chart").count();
    // The browser's own time may be over before a busy machine has made the PNG.
    let tries = (0..3).map(|_| dom(&browser, &with_script(&html, script), "saved"));
    // The script is in the page, too, and names what it looks for.
    let seen = |dom: &str| {
        let seen = dom.split("<pre id=\"seen\">").nth(1).unwrap();
        seen.split("</pre>").next().unwrap().to_owned()
    };
    let mut tries = tries.skip_while(|dom| !seen(dom).contains("png:"));
    let dom = tries.next().expect("no PNG was made");
    assert_eq!(root_attribute(&dom, "data-error"), None);
    let seen = seen(&dom);
    assert_eq!(seen.matches("svg:true").count(), figures, "{seen}");
    assert!(
        seen.contains("png:true") && seen.contains("csv:true"),
        "{seen}"
    );
}

#[test]
fn charts_answer_to_pointer_and_keyboard() {
    let Some(browser) = chromium() else { return };
    let script = r#"
        const seen = [];
        const figure = document.getElementById("depth-sweep-iops");
        const plot = () => figure.querySelector("svg.drawn");
        const tip = () => document.querySelector(".tooltip");
        const at = (x, y) => { const r = plot().getBoundingClientRect(); return { clientX: r.left + x * r.width, clientY: r.top + y * r.height, bubbles: true, pointerType: "mouse", button: 0, pointerId: 1 }; };
        plot().setPointerCapture = () => {};
        plot().dispatchEvent(new PointerEvent("pointermove", at(0.55, 0.5)));
        seen.push("hover:" + tip().classList.contains("on") + ":" + tip().textContent);
        plot().dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        seen.push("key:" + tip().textContent);
        plot().dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
        seen.push("escape:" + tip().classList.contains("on"));
        const labels = () => [...plot().querySelectorAll(".axis text")].map(t => t.textContent).join(" ");
        const before = labels();
        plot().setPointerCapture = () => {};
        plot().dispatchEvent(new PointerEvent("pointerdown", at(0.3, 0.3)));
        plot().dispatchEvent(new PointerEvent("pointermove", at(0.6, 0.6)));
        plot().dispatchEvent(new PointerEvent("pointerup", at(0.6, 0.6)));
        seen.push("zoomed:" + (labels() !== before));
        plot().dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
        seen.push("reset:" + (labels() === before));
        const lines = () => plot().querySelectorAll("path.line").length;
        const all = lines();
        figure.querySelector(".legend button").click();
        seen.push("hidden:" + (lines() < all));
        figure.querySelector(".legend button").click();
        seen.push("shown:" + (lines() === all));
        const toggle = figure.querySelector(".controls button");
        toggle.click();
        seen.push("log:" + toggle.textContent + ":" + (labels() !== before));
        const details = figure.querySelector("details.data");
        details.open = true;
        details.dispatchEvent(new Event("toggle"));
        seen.push("rows:" + details.querySelectorAll("tbody tr").length);
        seen.push("gap:" + [...plot().querySelectorAll("path.line")].length);
        const select = document.getElementById("job-select");
        const over = document.getElementById("latency-percentiles-per-window");
        const previous = over.querySelector("svg.drawn").innerHTML;
        select.selectedIndex = 0;
        select.dispatchEvent(new Event("change"));
        seen.push("job:" + (over.querySelector("svg.drawn").innerHTML !== previous));
        document.getElementById("theme").click();
        seen.push("theme:" + document.documentElement.dataset.theme);
        const out = document.createElement("pre");
        out.id = "seen";
        out.textContent = seen.join("\n");
        document.body.append(out);
    "#;
    let html = with_script(&page(sample::survey(false)), script);
    let dom = dom(&browser, &html, "hands");
    assert_eq!(root_attribute(&dom, "data-error"), None);
    let seen = dom.split("<pre id=\"seen\">").nth(1).unwrap();
    let seen = seen.split("</pre>").next().unwrap();
    for expected in [
        "hover:true:queue depth: 16read",
        "key:queue depth: 1read14.7",
        "escape:false",
        "zoomed:true",
        "reset:true",
        "hidden:true",
        "shown:true",
        "log:y: log:true",
        "rows:18",
        // One line for reads, two for writes: the hole at depth 16 is a gap.
        "gap:3",
        "job:true",
        "theme:dark",
    ] {
        assert!(seen.contains(expected), "{expected} not in\n{seen}");
    }
}

#[test]
fn tables_wider_than_the_page_scroll_by_keyboard_also_when_unfolded_later() {
    let Some(browser) = chromium() else { return };
    let script = r#"
        document.querySelector("main").style.width = "300px";
        const [first, second] = document.querySelectorAll("details.job");
        const reached = details => details.querySelector(".wide").matches("[tabindex='0'][role=group][aria-label]");
        for (let e = first; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
        setTimeout(() => {
          const out = document.createElement("pre");
          out.id = "seen";
          out.textContent = `narrow:${reached(first)} folded:${reached(second)}`;
          document.body.append(out);
          document.querySelector("main").style.width = "1200px";
          window.innerWidth += 1;
          dispatchEvent(new Event("resize"));
          setTimeout(() => out.textContent += ` broad:${reached(first)}`, 500);
        }, 500);
    "#;
    let html = with_script(&page(sample::survey(false)), script);
    let dom = dom(&browser, &html, "wide");
    assert_eq!(root_attribute(&dom, "data-error"), None);
    let seen = dom.split("<pre id=\"seen\">").nth(1).unwrap();
    assert_eq!(
        seen.split("</pre>").next(),
        Some("narrow:true folded:false broad:false")
    );
}

#[test]
fn the_page_and_the_terminal_write_numbers_alike() {
    let Some(browser) = chromium() else { return };
    let units = [
        "ns", "s", "1/s", "IOPS", "bytes/s", "bytes", "%", "ratio", "", "°C", "toString",
    ];
    let values = [
        0.0,
        1.0,
        0.0123,
        0.5,
        9.996,
        42.0,
        99.96,
        850.0,
        999.6,
        1000.0,
        1024.0,
        4096.0,
        12_345.0,
        84_210.0,
        999_600.0,
        1_048_576.0,
        1.5e9,
        6.923e9,
        3.7e12,
        -84_210.0,
    ];
    let pairs: Vec<(f64, &str)> = units
        .iter()
        .flat_map(|u| values.iter().map(move |v| (*v, *u)))
        .collect();
    let script = include_str!("../assets/units.js");
    let json = serde_json::to_string(&pairs).unwrap();
    let html = format!(
        "<!DOCTYPE html><html><meta charset=utf-8><body><pre id=out></pre><script>{script}
         document.getElementById('out').textContent = {json}.map(([v, u]) => formatValue(v, u)).join('\\n');</script></body></html>"
    );
    let dom = dom(&browser, &html, "units");
    let ours = dom
        .split("<pre id=\"out\">")
        .nth(1)
        .unwrap()
        .split("</pre>")
        .next()
        .unwrap();
    let theirs: Vec<String> = pairs.iter().map(|(v, u)| format::value(*v, u)).collect();
    assert_eq!(ours.lines().collect::<Vec<_>>(), theirs);
}

#[test]
fn the_page_and_its_pictures_have_the_same_ticks() {
    let Some(browser) = chromium() else { return };
    // A test of the pictures' scales holds them to the same file.
    let golden = include_str!("golden/ticks.json");
    let scripts = [
        include_str!("../assets/units.js"),
        include_str!("../assets/scale.js"),
    ]
    .join("\n");
    let html = format!(
        "<!DOCTYPE html><html><meta charset=utf-8><body><pre id=out></pre><script>{scripts}
         document.getElementById('out').textContent = JSON.stringify({golden}.map(a => {{
           const scale = continuousScale([a.low, a.high], [50, 450], a.log, a.unit, a.values);
           const ticks = scale.ticks(a.count);
           const f = axisFormat(ticks, a.unit, a.log);
           return {{ ...a, ticks: ticks.map(f.format), suffix: f.suffix }};
         }}));</script></body></html>"
    );
    let dom = dom(&browser, &html, "ticks");
    let ours = dom.split("<pre id=\"out\">").nth(1).unwrap();
    let ours: serde_json::Value =
        serde_json::from_str(ours.split("</pre>").next().unwrap()).unwrap();
    let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
    let (ours, golden) = (ours.as_array().unwrap(), golden.as_array().unwrap());
    assert_eq!(ours.len(), golden.len());
    for (ours, golden) in ours.iter().zip(golden) {
        let text = |v: &serde_json::Value| v["ticks"].to_string() + &v["suffix"].to_string();
        assert_eq!(text(ours), text(golden), "{golden}");
    }
}
