// Computes where a plotly chart's cells are from its public attributes alone: data and layout, in which plotly stores
// the size, the zoomed range, and the domain that is left by square cells.

// Return an axis, "x" or "y", in css pixels of its chart: its start, its length, and at(cell), measured from its start;
// null before the chart is drawn. names(): of its rows or columns, in their order.
function axisOf(chart, letter) {
  const { data, layout } = chart;
  const { domain = [0, 1], range } = layout?.[`${letter}axis`] ?? {};
  if (!range || !layout.margin) return null;
  const { l, r, t, b } = layout.margin;
  const upright = letter === "y";
  const room = upright ? layout.height - t - b : layout.width - l - r;
  const length = (domain[1] - domain[0]) * room;
  const share = (cell) => (cell - range[0]) / (range[1] - range[0]);
  return {
    range,
    length,
    start: upright ? t + (1 - domain[1]) * room : l + domain[0] * room,
    at: (cell) => (upright ? 1 - share(cell) : share(cell)) * length,
    names: () => [...new Set(data.filter((trace) => (trace[`${letter}axis`] ?? letter) === letter).flatMap((trace) => trace[letter] ?? []))],
  };
}
