// Scales: from values to pixels and back, and the ticks between.

/** A linear or logarithmic scale from a domain [low, high] to pixels [from, to]. */
function continuousScale(domain, range, log, unit, values) {
  // What an edited run may hold: no number beyond that has a neighbour that could be drawn.
  const FAR = 1e300;
  let [low, high] = domain.map(v => Math.max(-FAR, Math.min(FAR, v)));
  if (log) {
    if (!(low >= 1 / FAR)) low = high > 0 ? high / 1000 : 1;
    if (!(high > low)) high = low * 10;
  } else if (!(high > low)) {
    high = low + (Math.abs(low) || 1);
  }
  const t = log ? Math.log10 : v => v;
  const back = log ? v => 10 ** v : v => v;
  const [a, b] = [t(low), t(high)];
  const scale = v => range[0] + (t(v) - a) / (b - a) * (range[1] - range[0]);
  scale.valid = v => v !== null && Number.isFinite(v) && (!log || v > 0);
  scale.invert = px => back(a + (px - range[0]) / (range[1] - range[0]) * (b - a));
  scale.domain = [low, high];
  scale.log = log;
  scale.ticks = count => log ? logTicks(low, high, count, unit, values) : linearTicks(low, high, count, unit, values);
  return scale;
}

/** Bands for categories 0 … n-1. */
function bandScale(n, range) {
  const step = (range[1] - range[0]) / Math.max(n, 1);
  const scale = v => range[0] + (v + 0.5) * step;
  scale.valid = v => v !== null && v >= 0 && v < n;
  scale.invert = px => Math.max(0, Math.min(n - 1, Math.floor((px - range[0]) / step)));
  scale.domain = [0, n - 1];
  scale.band = Math.abs(step);
  scale.ticks = () => Array.from({ length: n }, (_, i) => i);
  return scale;
}

/** Multiples of 1, 2, 2.5 or 5 × 10ⁿ, in the unit that is printed. */
function linearTicks(low, high, count, unit, values = []) {
  // Between two whole numbers of things there is nothing to mark.
  const whole = unit === "" && values.length > 0 && values.every(Number.isInteger);
  const factor = scaleFor(Math.max(Math.abs(low), Math.abs(high)), unit).factor;
  const [l, h] = [low / factor, high / factor];
  const raw = Math.max((h - l) / Math.max(count, 1), whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw * 0.999 && (!whole || Number.isInteger(s))) || raw;
  const ticks = [];
  for (let i = Math.ceil(l / step - 1e-9); i * step <= h + step * 1e-9 && ticks.length < 50; i++) {
    ticks.push(Number((i * step).toPrecision(12)) * factor);
  }
  return ticks;
}

function logTicks(low, high, count, unit, values) {
  if (unit === "quantile") {
    return [1, 2, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].filter(v => v >= low * 0.999 && v <= high * 1.001);
  }
  // Depths and sizes are powers of two: their ticks are the values themselves.
  const distinct = [...new Set(values)].filter(v => v > 0);
  const powersOfTwo = distinct.length > 1 && distinct.every(v => Number.isInteger(Math.log2(v)));
  if (unit === "bytes" || (powersOfTwo && unit === "")) {
    const [from, to] = [Math.ceil(Math.log2(low) - 1e-9), Math.floor(Math.log2(high) + 1e-9)];
    const step = Math.max(1, Math.ceil((to - from + 1) / Math.max(count, 2)));
    return Array.from({ length: Math.max(0, Math.floor((to - from) / step) + 1) }, (_, i) => 2 ** (from + i * step));
  }
  const decades = Math.log10(high / low);
  if (decades < 0.7) return linearTicks(low, high, count, unit).filter(v => v > 0);
  const multiples = digits => {
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const d of digits) {
        const v = Number((d * 10 ** e).toPrecision(3));
        if (v >= low * 0.999 && v <= high * 1.001) ticks.push(v);
      }
    }
    return ticks;
  };
  // As dense as there is room for; beyond that, every second or third decade.
  for (const digits of [[1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const ticks = multiples(digits);
    if (ticks.length <= count + 1) return ticks;
  }
  const skip = Math.ceil(decades / Math.max(count, 1));
  return multiples([1]).filter(v => Math.round(Math.log10(v)) % skip === 0);
}

/** Extent of numbers, null and NaN left out; undefined when there are none. */
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) {
    if (v === null || v === undefined || !Number.isFinite(v)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : undefined;
}
