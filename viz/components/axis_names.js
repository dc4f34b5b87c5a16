// The names of a plotly picture's rows, columns and bars: "position: token", or "first–last: tokens" for several
// (viz/heatmap.py).

// The position that a name begins with, or its last one; null for another name.
function position(name, last) {
  const found = /^(\d+)(?:–(\d+))?: /.exec(name ?? "");
  return found ? Number((last && found[2]) || found[1]) : null;
}
