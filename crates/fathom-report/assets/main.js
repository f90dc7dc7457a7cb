// The page: reads the embedded data, draws every chart, wires theme, selectors and redraw.

/** One tooltip for all charts; also what screen readers hear. */
const tooltip = (() => {
  const box = html("div", { className: "tooltip", role: "status" });
  document.body.append(box);
  return {
    show(x, y, title, rows) {
      box.replaceChildren(html("div", { className: "tip-title", textContent: title }));
      for (const r of rows) {
        const key = html("span", { className: "tip-key" });
        if (r.colour) key.style.background = r.colour;
        box.append(html("div", { className: r.strong && rows.length > 1 ? "tip-row strong" : "tip-row" },
          key, html("span", { className: "tip-name", textContent: r.name }), html("span", { className: "tip-value", textContent: r.value })));
        if (r.interval) box.append(html("div", { className: "tip-interval", textContent: r.interval }));
      }
      box.classList.add("on");
      const { width, height } = box.getBoundingClientRect();
      const left = x + 16 + width > innerWidth ? Math.max(6, x - width - 16) : x + 16;
      box.style.transform = `translate(${left}px, ${Math.max(6, Math.min(y - height / 2, innerHeight - height - 6))}px)`;
    },
    hide() {
      box.classList.remove("on");
    },
  };
})();

const data = JSON.parse(document.getElementById("fathom-data").textContent);
const figures = [...document.querySelectorAll("figure.chart")];
// All widths before the first drawing: read after it, each would lay out the whole page again.
// What is folded has none yet, and gets its own when it is unfolded.
const FOLDED = 560;
const widthOf = plot => plot.clientWidth || FOLDED;
const widths = figures.map(f => widthOf(f.querySelector(".plot")));
const charts = figures.map((figure, i) => new Chart(figure, data.charts[Number(figure.dataset.chart)], data.stamp, widths[i]));
function redraw() {
  const widths = charts.map(c => widthOf(c.plot));
  charts.forEach((c, i) => c.draw(widths[i]));
  reach(document);
}

// A job chosen in one place is chosen for all charts over time.
for (const select of document.querySelectorAll("select[data-variants]")) {
  select.addEventListener("change", () => {
    for (const c of charts) if (c.spec.group === select.dataset.variants) c.setVariant(select.selectedIndex);
  });
}
for (const button of document.querySelectorAll("button[data-step]")) {
  button.addEventListener("click", () => {
    const select = document.getElementById(button.dataset.for);
    const n = select.options.length;
    select.selectedIndex = (select.selectedIndex + Number(button.dataset.step) + n) % n;
    select.dispatchEvent(new Event("change"));
  });
}

let width = innerWidth;
let waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 120);
});

// Paper is narrower than most screens: drawn for it, so that letters keep their size.
addEventListener("beforeprint", () => charts.forEach(c => c.draw(c.figure.matches(".stack > *, :only-child, .full") ? 680 : 335)));
addEventListener("afterprint", redraw);

// Theme: the system's, until the reader says otherwise (remembered where the browser allows).
const root = document.documentElement;
const themeButton = document.getElementById("theme");
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const nameTheme = () => { themeButton.textContent = dark() ? "Light" : "Dark"; };
function remember(theme) {
  try { localStorage.setItem("fathom-theme", theme); } catch { /* a file:// page may have no storage */ }
}
try { root.dataset.theme = localStorage.getItem("fathom-theme") || ""; } catch { /* as above */ }
if (location.hash === "#dark" || location.hash === "#light") root.dataset.theme = location.hash.slice(1);
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  remember(root.dataset.theme);
  nameTheme();
});
nameTheme();

// A link to a job opens its row.
function openTarget() {
  let e = null;
  try { e = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { return; }
  for (let p = e; p; p = p.parentElement) if (p.tagName === "DETAILS") p.open = true;
  if (e?.tagName === "TR" || e?.tagName === "DETAILS") e.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();

// Tables that are wider than the page can be scrolled by keyboard, too. Those in folded details are asked when they are
// unfolded: asking lays them out, and a page of many jobs has hundreds.
function reach(within) {
  for (const wide of within.querySelectorAll(".wide")) {
    if (wide.closest("details:not([open])")) continue;
    const scrolls = wide.scrollWidth > wide.clientWidth;
    const label = wide.querySelector("caption")?.textContent || "Table";
    for (const [name, value] of Object.entries({ tabindex: "0", role: "group", "aria-label": label })) {
      if (scrolls) wide.setAttribute(name, value); else wide.removeAttribute(name);
    }
  }
}
addEventListener("toggle", e => {
  for (const c of charts) if (e.target.open && !e.target.matches(".data") && e.target.contains(c.figure)) c.draw(widthOf(c.plot));
  reach(e.target);
}, true);
reach(document);

// Ready is what can be seen: laid out, too.
document.body.getBoundingClientRect();
root.dataset.charts = String(charts.length);
root.dataset.readyMs = String(Math.round(performance.now()));
root.dataset.ready = "yes";
