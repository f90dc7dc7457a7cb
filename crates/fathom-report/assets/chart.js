// One chart: axes, legend, tooltip, zoom, keyboard. What is inside the axes is drawn by marks.js.
//
// Colours are CSS variables, so that dark mode and print need no redrawing. Text from the run is
// only ever set as text content, never as markup.

const SVG = "http://www.w3.org/2000/svg"; // a name, not an address: nothing is loaded

/** An SVG element with attributes and children. */
function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attributes)) {
    if (v !== undefined && v !== null) e.setAttribute(k, typeof v === "number" ? round(v) : v);
  }
  e.append(...children);
  return e;
}

/** An HTML element with properties and children. */
function html(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(properties)) {
    if (k in e && k !== "list") e[k] = v; else e.setAttribute(k, v);
  }
  e.append(...children);
  return e;
}

const round = v => Math.round(v * 100) / 100;
const PALETTE = 8;
// Eight of each, for as many runs: lines, points and bars are told apart without their colour.
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "16 5", "1.5 6", "9 3 2 3 2 3", "5 2 5 8"];
const SHAPES = [
  r => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  r => polygon([[-r, -r], [r, -r], [r, r], [-r, r]], 0.88),
  r => polygon([[0, -r], [r, r * 0.8], [-r, r * 0.8]], 1.2),
  r => polygon([[0, -r], [r, 0], [0, r], [-r, 0]], 1.25),
  r => polygon([[0, r], [r, -r * 0.8], [-r, -r * 0.8]], 1.2),
  r => polygon([[-3, -1], [-1, -1], [-1, -3], [1, -3], [1, -1], [3, -1], [3, 1], [1, 1], [1, 3], [-1, 3], [-1, 1], [-3, 1]], r / 2.6),
  r => polygon([[-3, -2], [-2, -3], [0, -1], [2, -3], [3, -2], [1, 0], [3, 2], [2, 3], [0, 1], [-2, 3], [-3, 2], [-1, 0]], r / 2.6),
  r => polygon([[-r, -r], [r, -r], [-r, r], [r, r]], 1),
];
const HATCHES = ["", "M-1 1L1 -1M0 7L7 0M6 8L8 6", "M-1 6L1 8M0 0L7 7M6 -1L8 1", "M0 3.5H7", "M3.5 0V7", "M0 3.5H7M3.5 0V7",
  "M-1 1L1 -1M0 7L7 0M6 8L8 6M-1 6L1 8M0 0L7 7M6 -1L8 1", "M2 3.5h3M3.5 2v3"];

/** A closed path through points. */
function polygon(points, scale) {
  return "M" + points.map(([x, y]) => `${round(x * scale)} ${round(y * scale)}`).join("L") + "Z";
}

/** A series whose points have an x each; at even distances they come as a step and a number. */
function expanded(s) {
  if (!Array.isArray(s.x)) s.x = Array.from({ length: s.x.n }, (_, i) => Number((i * s.x.step).toPrecision(12)));
  return s;
}

class Chart {
  constructor(figure, spec, stamp, width) {
    this.figure = figure;
    this.spec = spec;
    this.runStamp = stamp;
    this.plot = figure.querySelector(".plot");
    this.hidden = new Set();
    this.zoom = null;
    this.choose(spec.initial || 0);
    this.log = { x: spec.x.log, y: spec.y.log };
    this.renderer = RENDERERS[spec.kind];
    this.controls();
    this.stamp();
    this.draw(width);
    this.tables();
  }

  /** Makes one of several sets of series the one that is shown. */
  choose(variant) {
    this.variant = variant;
    this.series = (this.spec.variants ? this.spec.variants[variant].series : this.spec.series).map(expanded);
  }

  /** What stands against the data shown, beside the title. */
  stamp() {
    const title = this.figure.querySelector(".title");
    title.querySelector(".stamp")?.remove();
    const text = this.spec.variants?.[this.variant].stamp;
    if (text) title.append(" ", html("span", { className: "chip stamp" }, text));
  }

  /** Where time ends in charts that stand under each other. */
  get span() {
    return this.log.x ? undefined : this.spec.variants?.[this.variant].span;
  }
  get marks() {
    return this.spec.marks || [];
  }
  get visible() {
    return this.series.filter((s, i) => !this.hidden.has(i));
  }

  /** Colour of a series: eight that colour-blind readers tell apart; a ramp where there are more. */
  colour(index) {
    // Runs beside each other: one colour for each series, one pattern for each run.
    const { hue } = this.series[index];
    const at = hue ?? index;
    const n = hue === undefined ? this.series.length : 1 + Math.max(...this.series.map(s => s.hue ?? 0));
    if (n <= PALETTE) return `var(--s${at % PALETTE + 1})`;
    const t = at / (n - 1);
    return t < 0.5
      ? `color-mix(in oklab, var(--ramp-1), var(--ramp-2) ${round(t * 200)}%)`
      : `color-mix(in oklab, var(--ramp-2), var(--ramp-3) ${round(t * 200 - 100)}%)`;
  }
  /** Text on a bar of this colour. */
  onBar(index) {
    const plain = this.colour(index).match(/^var\(--s(\d)\)$/);
    return plain ? { class: "bar-label", style: `fill:var(--on-${plain[1]})` } : { class: "bar-label on-ramp" };
  }
  dash(index) {
    const { dash } = this.series[index];
    if (dash !== undefined) return DASHES[dash % DASHES.length];
    // Dashes tell curves apart that lie on each other, and for who sees no colours. Over time, where they would be
    // lost in the noise, only as many as there are colours that look alike.
    return DASHES[(this.spec.group && this.series.length <= PALETTE ? Math.floor(index / 4) : index) % 4];
  }

  /** A point: a circle, or the shape of its run where several are beside each other. */
  point(index, px, py, r, attributes) {
    const { dash } = this.series[index];
    if (dash === undefined) return svg("circle", { cx: px, cy: py, r, ...attributes });
    return svg("path", { d: SHAPES[dash % SHAPES.length](r * 1.15), transform: `translate(${round(px)} ${round(py)})`, ...attributes });
  }
  /** What is laid over a bar to tell its run; nothing for the first one. */
  hatch(index) {
    const { dash } = this.series[index];
    return dash !== undefined && HATCHES[dash % HATCHES.length] ? `url(#hatch-${this.figure.id}-${dash % HATCHES.length})` : null;
  }
  hatches() {
    const used = new Set(this.series.map(s => s.dash).filter(d => d !== undefined && HATCHES[d % HATCHES.length]));
    return [...used].map(d => svg("pattern", { id: `hatch-${this.figure.id}-${d % HATCHES.length}`, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
      svg("path", { d: HATCHES[d % HATCHES.length], class: "hatch" })));
  }
  /** What stands for a series in a legend, 22 by 10 pixels, in this colour. */
  key(index, colour) {
    const { kind } = this.spec;
    const told = this.series[index].dash !== undefined;
    if (kind === "line") {
      const parts = [svg("line", { x1: 1, x2: 21, y1: 5, y2: 5, style: `stroke:${colour}`, "stroke-width": 2, "stroke-dasharray": this.dash(index) || undefined })];
      if (told) parts.push(this.point(index, 11, 5, 3.2, { style: `fill:${colour}` }));
      return parts;
    }
    if (kind === "scatter" && told) return [this.point(index, 11, 5, 4, { style: `fill:${colour}` })];
    const square = { x: 6, y: 0, width: 10, height: 10, rx: 2 };
    const hatch = this.hatch(index);
    return [svg("rect", { ...square, style: `fill:${colour}` }), ...(hatch ? [svg("rect", { ...square, fill: hatch })] : [])];
  }

  setVariant(index) {
    this.choose(index);
    this.zoom = null;
    this.hidden.clear();
    this.stamp();
    this.draw();
    this.tables();
  }

  // ---- controls -------------------------------------------------------------------------------

  controls() {
    const bar = html("div", { className: "controls" });
    for (const axis of ["y", "x"]) {
      if (!this.canToggle(axis)) continue;
      const button = html("button", { type: "button", className: "toggle" });
      const label = () => {
        button.textContent = `${axis}: ${this.log[axis] ? "log" : "linear"}`;
        button.setAttribute("aria-pressed", String(this.log[axis]));
        button.title = `Switch the ${axis} axis to ${this.log[axis] ? "linear" : "logarithmic"}`;
      };
      button.addEventListener("click", () => {
        this.log[axis] = !this.log[axis];
        this.zoom = null;
        label();
        this.draw();
      });
      label();
      bar.append(button);
    }
    this.resetButton = html("button", { type: "button", className: "toggle", textContent: "reset zoom", hidden: true });
    this.resetButton.addEventListener("click", () => this.reset());
    bar.append(this.resetButton);
    this.figure.querySelector("figcaption").append(bar);
    const saves = html("div", { className: "saves" });
    for (const [name, what] of [["svg", saveSvg], ["png", savePng]]) {
      const button = html("button", { type: "button", className: "toggle save", textContent: name, title: `Save this chart as ${name.toUpperCase()}` });
      button.addEventListener("click", () => what(this));
      saves.append(button);
    }
    this.figure.insertBefore(saves, this.figure.querySelector("details.data"));
  }

  canToggle(axis) {
    const { kind } = this.spec;
    if (kind === "heatmap" || kind === "stacked-bar") return false;
    if (axis === "x" && (this.spec.categories.length || this.spec.x.unit === "quantile")) return false;
    const all = this.spec.variants ? this.spec.variants.flatMap(v => v.series) : this.spec.series;
    return all.some(s => expanded(s)[axis].some(v => v > 0));
  }

  reset() {
    this.zoom = null;
    this.draw();
  }

  // ---- drawing --------------------------------------------------------------------------------

  /** Draws at the width that the page gives, or at `wanted` pixels. */
  draw(wanted) {
    const width = Math.max(260, Math.round(wanted || this.plot.clientWidth || 640));
    const height = this.spec.height || Math.round(Math.min(380, Math.max(250, width * 0.5)));
    this.width = width;
    this.height = height;
    const root = svg("svg", {
      viewBox: `0 0 ${width} ${height}`, width: "100%", class: "drawn", role: "img", tabindex: "0",
      "aria-label": this.describe(),
    });
    const box = this.layout(root);
    this.box = box;
    const clip = `clip-${this.figure.id}`;
    if (this.spec.kind === "bar") root.append(...this.hatches());
    root.append(svg("clipPath", { id: clip }, svg("rect", {
      x: box.left, y: box.top - 4, width: Math.max(0, box.right - box.left), height: box.bottom - box.top + 8,
    })));
    const inside = svg("g", { "clip-path": `url(#${clip})` });
    this.points = []; // what can be hovered: {px, py, series, index}
    this.texts = []; // where text stands: [left, top, right, bottom]
    if (this.empty) {
      root.append(svg("text", { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, class: "empty", "text-anchor": "middle" },
        this.visible.length ? "nothing could be measured here" : "every series is hidden"));
    } else {
      this.drawMarks(inside, box);
      this.renderer.draw(this, inside, box);
    }
    root.append(inside);
    if (!this.empty) this.nameMarks(root, box);
    if (this.runStamp) {
      root.append(svg("text", {
        x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, class: "stamp", "text-anchor": "middle",
        transform: `rotate(-14 ${(box.left + box.right) / 2} ${(box.top + box.bottom) / 2})`,
      }, this.runStamp.toUpperCase()));
    }
    this.cursor = svg("g", { class: "cursor" });
    root.append(this.cursor);
    this.root = root;
    this.interact(root, box);
    const focused = this.plot.contains(document.activeElement);
    this.plot.replaceChildren(root, this.legend());
    if (focused) root.focus({ preventScroll: true });
    this.resetButton.hidden = !this.zoom;
  }

  /** Scales and axes; margins follow the widest label. */
  layout(root) {
    const { spec, width, height } = this;
    const domains = this.renderer.domains(this);
    this.empty = !domains.x || !domains.y;
    const dx = this.zoom?.x || domains.x || [0, 1];
    const dy = this.zoom?.y || domains.y || [0, 1];
    const bands = { x: domains.xBands, y: domains.yBands };
    const box = { left: 56, right: width - 14, top: 26, bottom: height - 44 };
    const xValues = this.visible.flatMap(s => s.x);
    const yScale = () => bands.y
      ? bandScale(bands.y.length, [box.bottom, box.top])
      : continuousScale(dy, [box.bottom, box.top], this.log.y, spec.y.unit, this.visible.flatMap(s => s.y));
    let y = yScale();
    const yTicks = y.ticks(Math.max(3, Math.floor((box.bottom - box.top) / 36)));
    const yFormat = bands.y ? { suffix: "", format: i => bands.y[i] } : axisFormat(yTicks, spec.y.unit, y.log);
    const yLabels = yTicks.map(yFormat.format);
    // Charts that stand under each other share their left edge.
    box.left = spec.group ? 66 : Math.max(36, 14 + 6.6 * Math.max(...yLabels.map(l => l.length), 2));
    const x = bands.x
      ? bandScale(bands.x.length, [box.left, box.right])
      : continuousScale(dx, [box.left, box.right], this.log.x, spec.x.unit, xValues);
    const xTicks = x.ticks(Math.max(2, Math.floor((box.right - box.left) / 70)));
    const xFormat = bands.x ? { suffix: "", format: i => bands.x[i] } : axisFormat(xTicks, spec.x.unit, x.log);
    // Names of categories: on one line, on several where their words fit, else slanted.
    const fits = x.band ? Math.max(3, Math.floor((x.band - 4) / 6.1)) : 0;
    const lines = bands.x?.map(c => wrapLabel(c, fits));
    const longest = bands.x ? Math.max(...bands.x.map(c => Math.min(c.length, 20))) : 0;
    const slant = bands.x && lines.some(l => l.length > 3 || l.some(t => t.length > fits));
    if (bands.x) box.bottom -= slant ? Math.max(0, 3.4 * longest - 8) : 13 * (Math.max(...lines.map(l => l.length)) - 1);
    if (bands.x) y = yScale();
    this.x = x;
    this.y = y;
    this.bands = bands;
    const axis = svg("g", { class: "axis" });
    yTicks.forEach((v, i) => {
      const py = y(v);
      if (!bands.y) axis.append(svg("line", { x1: box.left, x2: box.right, y1: py, y2: py, class: v === 0 ? "zero" : "grid" }));
      axis.append(svg("text", { x: box.left - 8, y: py + 4, "text-anchor": "end" }, yLabels[i]));
    });
    let lastEnd = -Infinity;
    for (const v of xTicks) {
      const px = x(v);
      // A slanted name leans to the left, where the chart ends.
      const label = cut(String(xFormat.format(v)), slant ? Math.max(6, Math.min(20, Math.floor((px + 4) / 5.4))) : 40);
      if (slant) {
        axis.append(svg("text", { x: px + 4, y: box.bottom + 14, "text-anchor": "end", transform: `rotate(-32 ${round(px + 4)} ${round(box.bottom + 14)})` }, label));
        continue;
      }
      if (bands.x) {
        lines[v].forEach((t, i) => axis.append(svg("text", { x: px, y: box.bottom + 16 + 13 * i, "text-anchor": "middle" }, t)));
        continue;
      }
      const half = label.length * 3.3 + 3;
      axis.append(svg("line", { x1: px, x2: px, y1: box.bottom, y2: box.bottom + 4, class: "tick" }));
      if (px - half < lastEnd) continue;
      lastEnd = px + half;
      axis.append(svg("text", { x: Math.min(px, width - half + 3), y: box.bottom + 17, "text-anchor": "middle" }, label));
    }
    axis.append(svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "base" }));
    // "k IOPS" names itself.
    const named = (a, f) => !f.suffix ? a.label : f.suffix.endsWith(a.label) ? f.suffix : `${a.label} (${f.suffix})`;
    axis.append(svg("text", { x: box.right, y: height - 6, class: "name", "text-anchor": "end" }, named(spec.x, xFormat)));
    axis.append(svg("text", { x: 2, y: 13, class: "name" }, named(spec.y, yFormat)));
    root.append(axis);
    return box;
  }

  /** Marks that lie inside the axes, with their pixels. */
  shownMarks(box) {
    const at = (scale, v, from, to) => {
      if (v === null || v === undefined || !scale.valid(v)) return null;
      const p = scale(v);
      return p >= from - 1 && p <= to + 1 ? p : null;
    };
    return this.marks.map(m => ({ label: m.label, px: at(this.x, m.x, box.left, box.right), py: at(this.y, m.y, box.top, box.bottom) }));
  }

  drawMarks(inside, box) {
    for (const { px, py } of this.shownMarks(box)) {
      if (px !== null) inside.append(svg("line", { x1: px, x2: px, y1: box.top, y2: box.bottom, class: "mark" }));
      if (py !== null) inside.append(svg("line", { x1: box.left, x2: box.right, y1: py, y2: py, class: "mark" }));
    }
  }

  /** Names of marks, where they cover neither points nor other text: the first best of several places. */
  nameMarks(root, box) {
    for (const { label, px, py } of this.shownMarks(box)) {
      const width = textWidth(label) * 11 / 12;
      const places = [];
      const add = (x, y, end) => places.push({ x, y, end, area: [end ? x - width : x, y - 10, end ? x : x + width, y + 3] });
      if (px !== null) {
        const sides = px > (box.left + box.right) / 2 ? [true, false] : [false, true];
        for (let row = 0; row < 6; row++) for (const end of sides) add(px + (end ? -5 : 5), box.top + 10 + 13 * row, end);
        for (let row = 0; row < 3; row++) for (const end of sides) add(px + (end ? -5 : 5), box.bottom - 6 - 13 * row, end);
      }
      if (py !== null) for (const [x, end] of [[box.right - 4, true], [box.left + 4, false]]) for (const y of [py - 5, py + 13]) add(x, y, end);
      let best = null, least = Infinity;
      for (const place of places) {
        const covered = this.covered(place.area, box);
        if (covered < least) [best, least] = [place, covered];
      }
      if (!best) continue;
      this.texts.push(best.area);
      root.append(svg("text", { x: best.x, y: best.y, class: "mark-label", "text-anchor": best.end ? "end" : "start" }, label));
    }
  }

  /** How bad it is to write there: leaving the chart, covering text, covering points. */
  covered([left, top, right, bottom], box) {
    const outside = left < box.left || right > this.width || top < 0 || bottom > box.bottom ? 1000 : 0;
    const texts = this.texts.filter(t => t[0] < right && t[2] > left && t[1] < bottom && t[3] > top).length;
    const points = this.points.filter(p => p.px > left - 4 && p.px < right + 4 && p.py > top - 4 && p.py < bottom + 4).length;
    return outside + 100 * texts + Math.min(points, 50);
  }

  /** Text beside a point, unless it would cover other text. */
  pointLabel(g, px, py, text) {
    const width = textWidth(text) * 10.5 / 12;
    const end = px + 8 + width > this.box.right;
    const [x, y] = end ? [px - 7, py - 3] : [px + 6, py - 7];
    const area = [end ? x - width : x, y - 9, end ? x : x + width, y + 2];
    if (this.texts.some(t => t[0] < area[2] + 3 && t[2] > area[0] - 3 && t[1] < area[3] && t[3] > area[1])) return;
    this.texts.push(area);
    g.append(svg("text", { x, y, class: "point-label", "text-anchor": end ? "end" : "start" }, text));
  }

  legend() {
    const list = html("div", { className: "legend" });
    if (this.renderer.legend) {
      list.append(...this.renderer.legend(this));
      return list;
    }
    if (this.series.length < 2) {
      const only = this.series[0]?.name;
      if (!only || only === this.spec.title) return list;
    }
    this.series.forEach((s, i) => {
      const key = svg("svg", { width: 22, height: 10, "aria-hidden": "true" }, ...this.key(i, this.colour(i)));
      const button = html("button", { type: "button", title: "Show or hide" }, key, s.name || "(unnamed)");
      button.setAttribute("aria-pressed", String(!this.hidden.has(i)));
      button.addEventListener("click", () => {
        if (!this.hidden.delete(i)) this.hidden.add(i);
        this.draw();
        this.plot.querySelectorAll(".legend button")[i]?.focus({ preventScroll: true });
      });
      list.append(button);
    });
    return list;
  }

  // ---- reading: tooltip, keyboard, zoom -------------------------------------------------------

  interact(root, box) {
    let start = null, brush = null, at = -1;
    const local = e => {
      const r = root.getBoundingClientRect();
      const k = this.width / r.width;
      return [(e.clientX - r.left) * k, (e.clientY - r.top) * k];
    };
    const clamp = ([px, py]) => [Math.max(box.left, Math.min(box.right, px)), Math.max(box.top, Math.min(box.bottom, py))];
    root.addEventListener("pointermove", e => {
      const p = local(e);
      if (!start) return this.show(this.nearest(p));
      const [a, b] = [start, clamp(p)];
      const whole = this.brushAxes(a, b);
      brush ??= root.appendChild(svg("rect", { class: "brush" }));
      const [x1, x2] = whole.x ? [Math.min(a[0], b[0]), Math.max(a[0], b[0])] : [box.left, box.right];
      const [y1, y2] = whole.y ? [Math.min(a[1], b[1]), Math.max(a[1], b[1])] : [box.top, box.bottom];
      for (const [k, v] of Object.entries({ x: x1, y: y1, width: x2 - x1, height: y2 - y1 })) brush.setAttribute(k, v);
    });
    root.addEventListener("pointerdown", e => {
      if (e.pointerType !== "mouse" || e.button !== 0 || this.renderer.zoom === false) return;
      start = clamp(local(e));
      root.setPointerCapture(e.pointerId);
      this.show(null);
    });
    root.addEventListener("pointerup", e => {
      if (!start) return;
      const [a, b] = [start, clamp(local(e))];
      start = null;
      brush?.remove();
      brush = null;
      const axes = this.brushAxes(a, b);
      if (!axes.x && !axes.y) return;
      const order = (s, u, v) => [s.invert(u), s.invert(v)].sort((m, n) => m - n);
      this.zoom = {
        x: axes.x ? order(this.x, a[0], b[0]) : this.zoom?.x,
        y: axes.y ? order(this.y, a[1], b[1]) : this.zoom?.y,
      };
      this.draw();
    });
    root.addEventListener("pointerleave", () => this.show(null));
    root.addEventListener("dblclick", () => this.reset());
    root.addEventListener("keydown", e => {
      if (!this.points.length && e.key !== "Escape") return;
      const order = this.readingOrder();
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (step) {
        at = at < 0 ? (step > 0 ? 0 : order.length - 1) : Math.max(0, Math.min(order.length - 1, at + step));
        this.show(order[at]);
      } else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
        const shown = this.visible.map(s => this.series.indexOf(s));
        const here = shown.indexOf(order[Math.max(at, 0)].series);
        const next = shown[(here + (e.key === "ArrowDown" ? 1 : shown.length - 1)) % shown.length];
        const found = order.findIndex(p => p.series === next);
        if (found >= 0) this.show(order[at = found]);
      } else if ((e.key === "+" || e.key === "-") && this.renderer.zoom !== false) {
        this.zoomBy(e.key === "+" ? 0.5 : 2, order[at]);
      } else if (e.key === "Escape" || e.key === "0") {
        at = -1;
        this.show(null);
        if (this.zoom) this.reset();
      } else {
        return;
      }
      e.preventDefault();
    });
    root.addEventListener("blur", () => this.show(null));
  }

  /** Which axes a drag zooms: a flat one x only, a steep one y only, a click none. */
  brushAxes(a, b) {
    const [dx, dy] = [Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])];
    if (dx < 6 && dy < 6) return { x: false, y: false };
    const continuous = !this.bands.x;
    return { x: continuous && dx >= 8 && dx > dy * 0.15, y: !this.bands.y && dy >= 8 && (dy > dx * 0.15 || !continuous) };
  }

  zoomBy(factor, point) {
    if (this.bands.x) return;
    const { left, right } = this.box;
    const centre = point ? point.px : (left + right) / 2;
    const half = (right - left) / 2 * factor;
    this.zoom = { ...this.zoom, x: [this.x.invert(centre - half), this.x.invert(centre + half)] };
    this.draw();
  }

  readingOrder() {
    return this.points.slice().sort((a, b) => a.series - b.series || a.index - b.index);
  }

  nearest([px, py]) {
    const { left, right, top, bottom } = this.box;
    if (px < left - 8 || px > right + 8 || py < top - 8 || py > bottom + 8) return null;
    let best = null, bestDistance = Infinity;
    const columns = this.spec.kind === "line" && this.sharesX();
    for (const p of this.points) {
      if (p.inside) {
        if (px >= p.inside[0] && px <= p.inside[2] && py >= p.inside[1] && py <= p.inside[3]) return p;
        continue;
      }
      if (p.px < left - 2 || p.px > right + 2) continue;
      // Where series share their x people point at a column, else at a curve.
      const d = columns ? Math.abs(p.px - px) + Math.abs(p.py - py) / 1e3 : Math.hypot(p.px - px, p.py - py);
      if (d < bestDistance) [best, bestDistance] = [p, d];
    }
    return best && bestDistance < 160 ? best : null;
  }

  /** Whether the visible series stand at (mostly) the same x. */
  sharesX() {
    const visible = this.visible;
    const distinct = new Set(visible.flatMap(s => s.x)).size;
    return distinct <= 1.5 * Math.max(...visible.map(s => s.x.length), 1);
  }

  /** Shows a point's values, and those of other series at exactly the same x. */
  show(point) {
    this.cursor.replaceChildren();
    if (!point) return tooltip.hide();
    const { spec } = this;
    const s = this.series[point.series];
    const xLabel = this.bands.x ? this.bands.x[s.x[point.index]] ?? "" : formatExact(s.x[point.index], spec.x.unit);
    const rows = [];
    const add = (q, strong) => {
      const t = this.series[q.series];
      rows.push({
        colour: spec.kind === "heatmap" ? null : this.colour(q.series), strong,
        name: [t.name, t.label?.[q.index]].filter(Boolean).join(" · "),
        value: this.renderer.value(this, t, q.index),
        interval: t.low?.[q.index] != null && t.high?.[q.index] != null
          ? `95 %: ${formatExact(t.low[q.index], spec.y.unit)} … ${formatExact(t.high[q.index], spec.y.unit)}` : "",
      });
    };
    const same = spec.kind === "heatmap" || spec.kind === "scatter" ? [point]
      : this.points.filter(q => this.series[q.series].x[q.index] === s.x[point.index]);
    same.sort((a, b) => a.series - b.series);
    for (const q of same.slice(0, 14)) add(q, q === point);
    if (!point.inside) {
      this.cursor.append(svg("line", { x1: point.px, x2: point.px, y1: this.box.top, y2: this.box.bottom, class: "hair" }));
      for (const q of same) this.cursor.append(svg("circle", { cx: q.px, cy: q.py, r: q === point ? 4.5 : 3, style: `fill:${this.colour(q.series)}` }));
    } else {
      const [x1, y1, x2, y2] = point.inside;
      this.cursor.append(svg("rect", { x: x1, y: y1, width: x2 - x1, height: y2 - y1, class: "hover-cell" }));
    }
    const r = this.root.getBoundingClientRect();
    const k = r.width / this.width;
    tooltip.show(r.left + point.px * k, r.top + point.py * k, `${spec.x.label}: ${xLabel}`, rows);
  }

  // ---- text alternatives ----------------------------------------------------------------------

  describe() {
    const { spec } = this;
    const kind = { "line": "Line chart", "bar": "Bar chart", "stacked-bar": "Stacked bar chart", "scatter": "Scatter chart", "heatmap": "Heat map" }[spec.kind];
    const parts = this.series.slice(0, 12).map(s => {
      const e = extent(spec.kind === "heatmap" ? s.z || [] : s.y);
      const unit = spec.kind === "heatmap" ? spec.z?.unit || "" : spec.y.unit;
      return e ? `${s.name || "values"} from ${formatValue(e[0], unit)} to ${formatValue(e[1], unit)}` : `${s.name}: nothing measured`;
    });
    return `${kind}${this.runStamp ? `, ${this.runStamp}` : ""}: ${spec.title}${spec.variants?.[this.variant].stamp ? ", " + spec.variants[this.variant].stamp : ""}. Horizontal: ${spec.x.label}; vertical: ${spec.y.label}. ` +
      parts.join("; ") + ". Arrow keys read the points, plus and minus zoom, Escape resets. The data table below has every value.";
  }

  /** The data table is built when it is opened for the first time. */
  tables() {
    const details = this.figure.querySelector("details.data");
    details.querySelectorAll("div").forEach(d => d.remove());
    const fill = () => { if (details.open && !details.querySelector("div")) details.append(dataTable(this)); };
    if (!this.listening) details.addEventListener("toggle", () => this.fill());
    this.listening = true;
    this.fill = fill;
    fill();
  }
}

/** Words in lines of at most `max` letters. */
function wrapLabel(text, max) {
  const lines = [""];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const line = lines.at(-1);
    if (!line || line.length + 1 + word.length <= max) lines[lines.length - 1] = line ? line + " " + word : word;
    else lines.push(word);
  }
  return lines;
}

function cut(text, max) {
  return text.length > max ? text.slice(0, max - 1) + "…" : text;
}

/** Every value of a chart as a table, in its series' order. */
function dataTable(chart) {
  const LIMIT = 3000;
  const { spec } = chart;
  const heat = spec.kind === "heatmap";
  const some = key => chart.series.some(s => s[key]?.some(v => v !== null && v !== undefined));
  const columns = [
    ["series", (s, i) => s.name, chart.series.length > 1],
    [spec.x.label, (s, i) => spec.categories.length ? spec.categories[s.x[i]] ?? "" : formatExact(s.x[i], spec.x.unit), true],
    [spec.y.label, (s, i) => formatExact(s.y[i], spec.y.unit), true],
    [spec.z?.label || "value", (s, i) => formatExact(s.z?.[i], spec.z?.unit || ""), heat],
    ["95 % low", (s, i) => formatExact(s.low?.[i], spec.y.unit), some("low")],
    ["95 % high", (s, i) => formatExact(s.high?.[i], spec.y.unit), some("high")],
    ["note", (s, i) => s.label?.[i] || "", some("label")],
  ].filter(c => c[2]);
  const body = html("tbody");
  let rows = 0;
  for (const s of chart.series) {
    for (let i = 0; i < s.x.length && rows < LIMIT; i++, rows++) {
      body.append(html("tr", {}, ...columns.map(c => html("td", { textContent: c[1](s, i) ?? "", className: c[0] === "series" || c[0] === "note" ? "" : "number" }))));
    }
  }
  const total = chart.series.reduce((n, s) => n + s.x.length, 0);
  const holder = html("div", { className: "scroll", tabIndex: 0 },
    html("table", {}, html("thead", {}, html("tr", {}, ...columns.map(c => html("th", { textContent: c[0], scope: "col", className: c[0] === "series" || c[0] === "note" ? "" : "number" })))), body));
  const button = html("button", { type: "button", className: "toggle", textContent: "save as CSV" });
  button.addEventListener("click", () => saveCsv(chart));
  holder.prepend(button);
  if (total > LIMIT) holder.append(html("p", { textContent: `The first ${LIMIT} of ${total} values; "save as CSV" has all.` }));
  return holder;
}
