// The parts of plotly used here that are not in its documented interface; no other script may use one. Each is checked by
// tests/browser/test_internals.py, which `make upgrade-check` runs with the newest Streamlit, which brings plotly.js. Checked
// with Streamlit 1.67.0.

// The tick labels of an axis, "xaxis" or "yaxis2", the pixels that it is long, and the pixels of their font; null before the
// chart is drawn, and for an axis without any. Measuring them in the browser would force a layout. Relies on: the class names
// xtick and y2tick, and _fullLayout with the axes' _length and tickfont: if plotly chooses a chart's margins, nothing public
// has this length.
function tickLabels(chart, name) {
  const axis = chart._fullLayout?.[name];
  const labels = chart.querySelectorAll(`.${name.replace("axis", "")}tick`);
  return axis?.tickfont ? { labels: [...labels], length: axis._length, size: axis.tickfont.size } : null;
}

// Streamlit's plotly.js; address: of the script that brings it, relative to the page's. Relies on: plotly.js puts itself on the
// window.
async function streamlitsPlotly(address) {
  if (!window.Plotly) await import(new URL(address, document.baseURI));
  return window.Plotly;
}
