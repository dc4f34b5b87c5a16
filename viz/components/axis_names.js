// The names of a plotly figure's rows, columns and bars: "position: token", or "first–last: tokens" for several
// (viz/heatmap.py).

// Return the position that a name begins with or, if `last`, the last of several; null for a name without a position.
function position(name, last) {
  const found = /^(\d+)(?:–(\d+))?: /.exec(name ?? "");
  return found ? Number((last && found[2]) || found[1]) : null;
}
