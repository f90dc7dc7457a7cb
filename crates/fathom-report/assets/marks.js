// What stands inside the axes, by kind of chart. A renderer says which domain it needs, draws, and
// registers the points that can be read. A null is a gap, never 0.

/** x and y extents of the visible series, intervals and marks included. */
function plainDomains(chart) {
  const { spec } = chart;
  const visible = chart.visible;
  const usable = (axis, v) => v !== null && (!chart.log[axis] || v > 0);
  const xs = visible.flatMap(s => s.x.filter((v, i) => usable("x", v) && s.y[i] !== null));
  const ys = visible.flatMap(s => [...s.y, ...(s.low || []), ...(s.high || [])].filter(v => v != null && usable("y", v)));
  for (const m of chart.marks) {
    if (m.y != null && usable("y", m.y) && ys.length) ys.push(m.y);
    if (m.x != null && usable("x", m.x) && xs.length && !spec.categories.length) xs.push(m.x);
  }
  const result = { x: extent(xs), y: extent(ys) };
  if (spec.categories.length) {
    result.xBands = spec.categories;
    result.x = ys.length ? [0, spec.categories.length - 1] : undefined;
  } else if (result.x) {
    result.x = pad(result.x, chart.log.x, spec.kind === "scatter" ? 0.04 : 0.015, spec.x.unit);
  }
  if (result.x && chart.span) result.x = [0, chart.span];
  if (result.y) {
    const baseline = !chart.log.y && result.y[0] > 0;
    result.y = pad([baseline ? 0 : result.y[0], result.y[1]], chart.log.y, 0.06, spec.y.unit);
    if (!chart.log.y && result.y[0] < 0 && ys.every(v => v >= 0)) result.y[0] = 0;
    if (spec.y.unit === "%" && result.y[1] > 100 && ys.every(v => v <= 100)) result.y[1] = 100;
  }
  return result;
}

function pad([low, high], log, share, unit) {
  if (unit === "quantile") return [low, high * 1.3];
  if (log) {
    const d = Math.max(Math.log10(high / low), 0.3) * share;
    return [low * 10 ** -d, high * 10 ** d];
  }
  const d = (high - low || Math.abs(high) || 1) * share;
  return [low === 0 ? 0 : low - d, high + d];
}

/** Between the shapes along a dense curve of several runs, in pixels. */
const MARK_GAP = 80;

const plainValue = (chart, s, i) => formatExact(s.y[i], chart.spec.y.unit);
/** Where a bar begins: at zero, or at the bottom of a logarithmic axis. */
const baseOf = chart => chart.log.y ? chart.y.domain[0] : Math.max(chart.y.domain[0], Math.min(0, chart.y.domain[1]));

/** Calls `each` for every unbroken stretch of valid points. */
function stretches(chart, s, each) {
  let run = [];
  const end = () => { if (run.length) each(run); run = []; };
  s.x.forEach((v, i) => {
    if (chart.x.valid(v) && chart.y.valid(s.y[i])) run.push(i); else end();
    if (s.gap?.[i]) end();
  });
  end();
}

function whisker(chart, g, px, s, i, colour, cap = 3) {
  const [low, high] = [s.low?.[i], s.high?.[i]];
  if (low == null || high == null || !chart.y.valid(high)) return;
  const bottom = chart.y.valid(low) ? chart.y(low) : chart.box.bottom;
  const top = chart.y(high);
  g.append(svg("path", { d: `M${round(px - cap)} ${round(top)}h${2 * cap}M${round(px)} ${round(top)}V${round(bottom)}M${round(px - cap)} ${round(bottom)}h${2 * cap}`, class: "whisker", style: `stroke:${colour}` }));
}

const line = {
  domains: plainDomains,
  value: plainValue,
  draw(chart, g) {
    chart.series.forEach((s, n) => {
      if (chart.hidden.has(n)) return;
      const colour = chart.colour(n);
      const few = s.x.length <= 40;
      const labels = few && s.label?.some(Boolean) && chart.visible.length <= 3;
      let marked = -Infinity;
      stretches(chart, s, run => {
        const banded = run.filter(i => s.low?.[i] != null && s.high?.[i] != null && chart.y.valid(s.high[i]));
        if (banded.length > 1) {
          const up = banded.map(i => `${round(chart.x(s.x[i]))} ${round(chart.y(s.high[i]))}`);
          const down = banded.map(i => `${round(chart.x(s.x[i]))} ${round(chart.y.valid(s.low[i]) ? chart.y(s.low[i]) : chart.box.bottom)}`).reverse();
          g.append(svg("path", { d: `M${up.join("L")}L${down.join("L")}Z`, class: "band", style: `fill:${colour}` }));
        }
        const path = run.map(i => `${round(chart.x(s.x[i]))} ${round(chart.y(s.y[i]))}`).join("L");
        if (run.length > 1) g.append(svg("path", { d: `M${path}`, class: few ? "line" : "line thin", style: `stroke:${colour}`, "stroke-dasharray": chart.dash(n) }));
        for (const i of run) {
          const [px, py] = [chart.x(s.x[i]), chart.y(s.y[i])];
          if (few || run.length === 1) {
            g.append(chart.point(n, px, py, 2.8, { class: "dot", style: `fill:${colour}` }));
            whisker(chart, g, px, s, i, colour);
          } else if (s.dash !== undefined && px - marked > MARK_GAP) {
            // Runs over each other: shapes along dense curves, each run's at other places.
            if (marked > -Infinity || px - chart.box.left >= MARK_GAP * (0.2 + s.dash % SHAPES.length / SHAPES.length)) {
              g.append(chart.point(n, px, py, 3.2, { class: "dot", style: `fill:${colour}` }));
              marked = px;
            }
          }
          if (labels && s.label[i]) chart.pointLabel(g, px, py, s.label[i]);
          chart.points.push({ px, py, series: n, index: i });
        }
      });
    });
  },
};

const scatter = {
  domains: plainDomains,
  value: plainValue,
  draw(chart, g) {
    chart.series.forEach((s, n) => {
      if (chart.hidden.has(n)) return;
      const labels = s.label?.some(Boolean) && s.x.length <= 24;
      s.x.forEach((v, i) => {
        if (!chart.x.valid(v) || !chart.y.valid(s.y[i])) return;
        const [px, py] = [chart.x(v), chart.y(s.y[i])];
        whisker(chart, g, px, s, i, chart.colour(n));
        g.append(chart.point(n, px, py, s.x.length > 200 ? 2 : 4, { class: "blob", style: `fill:${chart.colour(n)}` }));
        if (labels && s.label[i]) chart.pointLabel(g, px, py, s.label[i]);
        chart.points.push({ px, py, series: n, index: i });
      });
    });
  },
};

function bars(stacked) {
  return {
    domains(chart) {
      const bandsNeeded = () => {
        if (chart.spec.categories.length) return chart.spec.categories;
        // Bars without named categories: the values themselves are the categories.
        return [...new Set(chart.series.flatMap(s => s.x))].sort((a, b) => a - b).map(v => formatValue(v, chart.spec.x.unit));
      };
      const d = plainDomains(chart);
      d.xBands = bandsNeeded();
      chart.bandOf = chart.spec.categories.length ? v => v
        : (order => v => order.indexOf(v))([...new Set(chart.series.flatMap(s => s.x))].sort((a, b) => a - b));
      if (stacked && d.y) {
        const sums = d.xBands.map((_, c) => chart.visible.reduce((sum, s) => {
          const i = s.x.findIndex(v => chart.bandOf(v) === c);
          return sum + (i >= 0 ? Math.max(0, s.y[i] ?? 0) : 0);
        }, 0));
        const top = Math.max(...sums, ...chart.marks.map(m => m.y ?? 0));
        d.y = [0, top * (chart.spec.y.unit === "%" && top <= 100.5 ? 1.03 : 1.08) || 1];
        chart.log.y = false;
      }
      return d;
    },
    value: plainValue,
    zoom: true,
    draw(chart, g, box) {
      const shown = chart.series.map((s, n) => n).filter(n => !chart.hidden.has(n));
      const step = chart.x.band;
      const inner = Math.min(step * 0.78, stacked ? 64 : 44 * shown.length);
      const width = stacked ? inner : inner / Math.max(1, shown.length);
      const base = baseOf(chart);
      const tops = new Map();
      for (const [slot, n] of shown.entries()) {
        const s = chart.series[n];
        s.x.forEach((v, i) => {
          const band = chart.bandOf(v);
          if (!chart.x.valid(band)) return;
          const left = chart.x(band) - inner / 2 + (stacked ? 0 : slot * width);
          if (s.y[i] === null) {
            // A hole stays visible: a dash where the bar would stand.
            if (!stacked) g.append(svg("text", { x: left + width / 2, y: box.bottom - 6, class: "hole", "text-anchor": "middle" }, HOLE));
            return;
          }
          const from = stacked ? tops.get(band) ?? 0 : base;
          const to = stacked ? from + s.y[i] : s.y[i];
          tops.set(band, to);
          if (!chart.y.valid(to)) return;
          const [y1, y2] = [chart.y(from), chart.y(to)].sort((a, b) => a - b);
          const gap = stacked ? 0 : Math.min(2, width * 0.12);
          const bar = { x: left + gap / 2, y: y1, width: Math.max(1, width - gap), height: Math.max(0.5, y2 - y1) };
          g.append(svg("rect", { ...bar, class: "bar", style: `fill:${chart.colour(n)}` }));
          const hatch = chart.hatch(n);
          if (hatch) g.append(svg("rect", { ...bar, fill: hatch }));
          if (stacked && y2 - y1 > 15 && width > 44) {
            g.append(svg("text", { x: left + width / 2, y: (y1 + y2) / 2 + 4, ...chart.onBar(n), "text-anchor": "middle" }, formatValue(s.y[i], chart.spec.y.unit)));
          }
          if (!stacked) whisker(chart, g, left + width / 2, s, i, "var(--ink)", Math.min(4, width / 4));
          chart.points.push({ px: left + width / 2, py: y1, series: n, index: i, inside: [left, Math.min(y1, box.bottom - 6), left + width, y2] });
        });
      }
      // Totals that would run into each other say nothing: hover and table have them.
      if (!stacked || shown.length < 2 || step < 52) return;
      for (const [band, top] of tops) {
        if (chart.x.valid(band) && chart.y.valid(top)) g.append(svg("text", { x: chart.x(band), y: chart.y(top) - 5, class: "bar-total", "text-anchor": "middle" }, formatValue(top, chart.spec.y.unit)));
      }
    },
  };
}

/** Cells over a regular grid keep their scale; irregular values become bands. */
function gridOf(values, log, even) {
  const distinct = [...new Set(values.filter(v => v !== null && (!log || v > 0)))].sort((a, b) => a - b);
  const t = log ? Math.log : v => v;
  const gaps = distinct.slice(1).map((v, i) => t(v) - t(distinct[i]));
  const step = Math.min(...gaps);
  // A grid with a few empty rows keeps its scale; a handful of scattered values does not.
  const cells = gaps.length ? Math.round((t(distinct.at(-1)) - t(distinct[0])) / step) + 1 : 1;
  const regular = gaps.length > 0 && (even || distinct.length > 24 || distinct.length >= cells * 0.9) &&
    gaps.every(g => Math.abs(g / step - Math.round(g / step)) < 0.06);
  return { distinct, step, regular, back: log ? Math.exp : v => v, t };
}

const heatmap = {
  zoom: false,
  domains(chart) {
    const { spec } = chart;
    const points = chart.visible;
    const grid = (axis, log) => gridOf(points.flatMap(s => s[axis]), log, spec.even);
    const [gx, gy] = [grid("x", spec.x.log), grid("y", spec.y.log)];
    chart.grid = { x: gx, y: gy };
    const d = {};
    for (const [axis, g] of [["x", gx], ["y", gy]]) {
      if (!g.distinct.length) continue;
      const named = axis === "x" && spec.categories.length ? spec.categories : null;
      if (named || !g.regular) {
        d[axis + "Bands"] = named || g.distinct.map(v => formatValue(v, spec[axis].unit));
        g.place = named ? v => v : v => g.distinct.indexOf(v);
        d[axis] = [0, 1];
      } else {
        d[axis] = [g.back(g.t(g.distinct[0]) - g.step / 2), g.back(g.t(g.distinct.at(-1)) + g.step / 2)];
      }
    }
    if (d.x && chart.span && !d.xBands) d.x = [0, chart.span];
    chart.range = extent(points.flatMap(s => s.z || []));
    return d;
  },
  value: (chart, s, i) => `${formatExact(s.y[i], chart.spec.y.unit)}: ${formatExact(s.z?.[i], chart.spec.z?.unit || "")}`,
  draw(chart, g, box) {
    const span = (axis, scale, v) => {
      const grid = chart.grid[axis];
      if (grid.place) return [scale(grid.place(v)) - scale.band / 2, scale(grid.place(v)) + scale.band / 2];
      return [scale(grid.back(grid.t(v) - grid.step / 2)), scale(grid.back(grid.t(v) + grid.step / 2))];
    };
    const [low, high] = chart.range || [0, 1];
    const logColour = chart.spec.z?.log && low > 0;
    const t = v => high <= low ? 1 : logColour ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low);
    chart.series.forEach((s, n) => {
      if (chart.hidden.has(n)) return;
      s.x.forEach((v, i) => {
        if (s.y[i] === null) return;
        const [a, b] = span("x", chart.x, v).sort((p, q) => p - q);
        const [c, d] = span("y", chart.y, s.y[i]).sort((p, q) => p - q);
        const z = s.z?.[i];
        const text = formatValue(z, chart.spec.z?.unit || "");
        const big = b - a > textWidth(text) + 4 && d - c > 14;
        const gap = b - a > 8 ? 1 : 0;
        g.append(svg("rect", {
          x: a, y: c, width: Math.max(0.6, b - a - gap + (gap ? 0 : 0.3)), height: Math.max(0.6, d - c - (gap ? 1 : -0.3)),
          style: `fill:${z == null ? "var(--hole)" : heatColour(t(z))}`,
        }));
        if (big) {
          g.append(svg("text", { x: (a + b) / 2, y: (c + d) / 2 + 4, "text-anchor": "middle", class: z == null ? "cell-hole" : t(z) > 0.5 ? "cell-high" : "cell-low" },
            text));
        }
        chart.points.push({ px: (a + b) / 2, py: c, series: n, index: i, inside: [a, c, b, d] });
      });
    });
  },
  legend(chart) {
    if (!chart.range) return [];
    const unit = chart.spec.z?.unit || "";
    const stops = Array.from({ length: 9 }, (_, i) => heatColour(i / 8));
    const bar = html("span", { className: "ramp" });
    bar.style.background = `linear-gradient(90deg, ${stops.join(",")})`;
    return [html("span", { className: "ramp-label", textContent: chart.spec.z?.label || "" }),
      html("span", { textContent: formatValue(chart.range[0], unit) }), bar, html("span", { textContent: formatValue(chart.range[1], unit) })];
  },
};

/** One hue from pale to deep (in the dark: from dim to bright): the same for colour-blind readers. */
function heatColour(t) {
  const u = Math.max(0, Math.min(1, t)) * 200;
  return u < 100
    ? `color-mix(in oklab, var(--heat-0), var(--heat-1) ${Math.round(u)}%)`
    : `color-mix(in oklab, var(--heat-1), var(--heat-2) ${Math.round(u - 100)}%)`;
}

const RENDERERS = { line, scatter, bar: bars(false), "stacked-bar": bars(true), heatmap };
