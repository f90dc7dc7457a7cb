// Numbers and units for people. The same rules as src/format.rs; a test compares both.

const HOLE = "—";

const PREFIXES = {
  "ns": [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]],
  "s": [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]],
  "1/s": [[1, "/s"], [1e3, "k/s"], [1e6, "M/s"], [1e9, "G/s"]],
  "IOPS": [[1, "IOPS"], [1e3, "k IOPS"], [1e6, "M IOPS"], [1e9, "G IOPS"]],
  "bytes/s": [[1, "B/s"], [1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"], [1e12, "TB/s"]],
  "bytes": [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"], [2 ** 50, "PiB"]],
  "ratio": [[1, ""]],
  "quantile": [[1, ""]],
};

/** Factor and printed unit that suit a value: shown = value / factor. */
function scaleFor(value, unit) {
  const steps = Object.hasOwn(PREFIXES, unit) ? PREFIXES[unit] : [[1, unit]];
  let at = steps.findLastIndex(([f]) => Math.abs(value) >= f * 0.9995);
  if (value === 0) at = steps.findIndex(([f]) => f === 1);
  const [factor, name] = steps[Math.max(at, 0)];
  return { factor, unit: name };
}

/** Decimals that leave three significant digits. */
function decimalsOf(v) {
  v = Math.abs(v);
  if (v === 0 || v >= 99.95) return 0;
  if (v >= 9.995) return 1;
  if (v >= 0.9995) return 2;
  return Math.min(8, -Math.floor(Math.log10(v)) + 2);
}

function fixed(v, digits) {
  if (Math.abs(v) >= 1e15) return v.toExponential(2);
  const [whole, fraction] = v.toFixed(digits).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? grouped : grouped + "." + fraction;
}

/** A value with its unit: 84.2 µs, 6.92 GB/s, 4 KiB, 512 k/s; a hole for null. */
function formatValue(v, unit) {
  if (v === null || v === undefined || !Number.isFinite(v)) return HOLE;
  if (unit === "quantile") return formatQuantile(v);
  const s = scaleFor(v, unit);
  const shown = v / s.factor;
  const exact = Number.isInteger(shown) && (s.factor === 1 || unit === "bytes");
  const text = fixed(shown, exact ? 0 : decimalsOf(shown));
  return s.unit ? text + " " + s.unit : text;
}

/** A value in full for tooltips and tables: six digits, and the plain number where prefixes hide it. */
function formatExact(v, unit) {
  if (v === null || v === undefined || !Number.isFinite(v)) return HOLE;
  if (unit === "quantile") return formatQuantile(v);
  const s = scaleFor(v, unit);
  const text = String(Number((v / s.factor).toPrecision(6)));
  const [whole, fraction] = text.split(".");
  const grouped = whole.includes("e") ? whole : whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return (fraction === undefined ? grouped : grouped + "." + fraction) + (s.unit ? " " + s.unit : "");
}

/** The quantile axis holds 1/(1-q): 1 is the minimum, 2 the median, 1000 the 99.9th percentile. */
function formatQuantile(odds) {
  const q = 1 - 1 / odds;
  const nines = Math.max(0, Math.ceil(Math.log10(odds)) - 1);
  const text = (q * 100).toFixed(Math.max(0, nines));
  return (text.includes(".") ? text.replace(/\.?0+$/, "") : text) + " %";
}

/** One prefix for all values of an axis, chosen by the largest; sizes keep their own each. */
function axisFormat(values, unit, log) {
  if (unit === "bytes" || unit === "quantile") return { suffix: "", format: v => formatValue(v, unit) };
  const finite = values.filter(Number.isFinite);
  const largest = Math.max(...finite.map(Math.abs), 0);
  const smallest = Math.min(...finite.filter(v => v > 0), largest);
  // An axis over many decades reads better with a prefix on each label (10 µs, 1 ms).
  if (largest / (smallest || 1) >= (log ? 30 : 2e3)) return { suffix: "", format: v => tickValue(v, unit) };
  const s = scaleFor(largest, unit);
  return { suffix: s.unit, format: v => trimNumber(v / s.factor) };
}

/** A tick with its own prefix: 1 ms, 50 µs. */
function tickValue(v, unit) {
  const s = scaleFor(v, unit);
  return trimNumber(v / s.factor) + (s.unit ? " " + s.unit : "");
}

/** A tick's number without superfluous digits. */
function trimNumber(v) {
  const text = String(Number(v.toPrecision(6)));
  const [whole, fraction] = text.split(".");
  if (whole.includes("e")) return text;
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? grouped : grouped + "." + fraction;
}
