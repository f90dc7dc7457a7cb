// A chart as a file: a stand-alone SVG with its title and legend, the same as PNG, its values as CSV.

const EXPORTED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin",
  "stroke-linecap", "opacity", "font-size", "font-weight", "letter-spacing", "paint-order"];
const FONT = "system-ui, 'Segoe UI', 'Noto Sans', 'Liberation Sans', Arial, sans-serif";

/** Colours as every program reads them: mixed ones and those of other spaces become rgb(). */
const plainColour = (() => {
  const known = new Map();
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  return colour => {
    if (/^(none|rgb|#|url)/.test(colour) || !pixel) return colour;
    if (!known.has(colour)) {
      pixel.clearRect(0, 0, 1, 1);
      pixel.fillStyle = colour;
      pixel.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data;
      known.set(colour, a === 255 ? `rgb(${r}, ${g}, ${b})` : `rgba(${r}, ${g}, ${b}, ${round(a / 255)})`);
    }
    return known.get(colour);
  };
})();

const textWidth = (() => {
  const context = document.createElement("canvas").getContext("2d");
  if (context) context.font = `12px ${FONT}`;
  return text => context ? context.measureText(text).width : text.length * 7;
})();

/** The chart as it is shown (zoom, hidden series, theme), as a document of its own. */
function standalone(chart) {
  const copy = chart.root.cloneNode(true);
  const [from, to] = [chart.root.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((e, i) => {
    const style = getComputedStyle(e);
    for (const p of EXPORTED) {
      const v = style.getPropertyValue(p);
      if (v && v !== "normal") to[i].setAttribute(p, p === "fill" || p === "stroke" ? plainColour(v) : v);
    }
  });
  copy.querySelectorAll(".cursor, .brush").forEach(e => e.remove());
  for (const e of copy.querySelectorAll("*")) {
    e.removeAttribute("class");
    e.removeAttribute("style");
  }
  const theme = getComputedStyle(document.documentElement);
  const [paper, ink] = ["--paper", "--ink"].map(n => theme.getPropertyValue(n).trim());
  const [width, head] = [chart.width, 34];
  const out = svg("svg", { width, role: "img", "font-family": FONT, "font-size": 12 });
  out.append(svg("title", {}, chart.spec.title), svg("rect", { width: "100%", height: "100%", fill: paper }));
  const against = chart.spec.variants?.[chart.variant].stamp;
  out.append(svg("text", { x: 8, y: 22, "font-size": 15, "font-weight": 600, fill: ink }, chart.spec.title + (against ? ` (${against})` : "")));
  for (const a of ["tabindex", "role", "aria-label", "class"]) copy.removeAttribute(a);
  for (const [k, v] of Object.entries({ x: 0, y: head, width, height: chart.height })) copy.setAttribute(k, v);
  out.append(copy);
  let y = head + chart.height + 16, x = 8;
  if (chart.spec.kind === "heatmap") {
    if (chart.range) {
      const unit = chart.spec.z?.unit || "";
      const label = `${chart.spec.z?.label || ""}  ${formatValue(chart.range[0], unit)}`;
      out.append(svg("text", { x, y, fill: ink }, label));
      x += textWidth(label) + 8;
      for (let i = 0; i < 32; i++) out.append(svg("rect", { x: x + 4 * i, y: y - 9, width: 4.5, height: 10, fill: plainColour(resolved(heatColour(i / 31))) }));
      out.append(svg("text", { x: x + 136, y, fill: ink }, formatValue(chart.range[1], unit)));
      y += 20;
    }
  } else if (chart.series.length > 1 || chart.series[0]?.name) {
    chart.series.forEach((s, i) => {
      if (chart.hidden.has(i)) return;
      const w = textWidth(s.name) + 44;
      if (x > 8 && x + w > width) [x, y] = [8, y + 19];
      const colour = plainColour(resolved(chart.colour(i)));
      out.append(svg("g", { transform: `translate(${round(x)} ${round(y - 9)})` }, ...chart.key(i, colour)));
      out.append(svg("text", { x: x + 26, y, fill: ink }, s.name));
      x += w;
    });
    y += 20;
  }
  const height = Math.round(y);
  out.setAttribute("height", height);
  out.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return { text: new XMLSerializer().serializeToString(out), width, height };
}

/** A CSS colour with its variables replaced. */
function resolved(colour) {
  const probe = html("span");
  probe.style.color = colour;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function save(name, blob) {
  const a = html("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

function saveSvg(chart) {
  save(chart.figure.id + ".svg", new Blob([standalone(chart).text], { type: "image/svg+xml" }));
}

/** Twice as many pixels as on the page, for print. */
function savePng(chart) {
  const { text, width, height } = standalone(chart);
  const image = new Image();
  image.onload = () => {
    const canvas = html("canvas", { width: 2 * width, height: 2 * height });
    const context = canvas.getContext("2d");
    context.scale(2, 2);
    context.drawImage(image, 0, 0, width, height);
    canvas.toBlob(blob => { if (blob) save(chart.figure.id + ".png", blob); }, "image/png");
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
}

/** Every value in base units and full precision; an empty field is a hole. */
function saveCsv(chart) {
  const { spec } = chart;
  const unit = a => a?.unit ? `${a.label} (${a.unit})` : a?.label || "value";
  const keys = ["y", "z", "low", "high", "label"].filter(k => chart.series.some(s => s[k]?.some(v => v != null)));
  const names = { y: unit(spec.y), z: unit(spec.z), low: "95 % low", high: "95 % high", label: "note" };
  const field = v => v == null ? "" : /[",\r\n]/.test(v) ? `"${String(v).replaceAll("\"", "\"\"")}"` : String(v);
  const rows = [["series", unit(spec.x), ...keys.map(k => names[k])]];
  for (const s of chart.series) {
    s.x.forEach((v, i) => rows.push([s.name, spec.categories.length ? spec.categories[v] : v, ...keys.map(k => s[k]?.[i])]));
  }
  save(chart.figure.id + ".csv", new Blob([rows.map(r => r.map(field).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" }));
}
