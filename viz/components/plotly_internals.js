// The parts of plotly used here that are not in its documented interface; no other script may use one. Each is checked
// by tests/browser/test_internals.py, which `make upgrade-check` runs with the newest Streamlit, which includes
// plotly.js. Checked with Streamlit 1.67.0.

// Return the tick labels of an axis, "xaxis" or "yaxis2", its length and the labels' font size in pixels; null before
// the chart is drawn, and for an axis without labels. Measuring them in the browser would force a layout. Relies on:
// the class names xtick and y2tick, and _fullLayout with the axes' _length and tickfont: if plotly chooses a chart's
// margins, nothing public has this length.
function tickLabels(chart, name) {
  const axis = chart._fullLayout?.[name];
  const labels = chart.querySelectorAll(`.${name.replace("axis", "")}tick`);
  return axis?.tickfont ? { labels: [...labels], length: axis._length, size: axis.tickfont.size } : null;
}

// Return Streamlit's plotly.js. address: of the script that includes it, relative to the page's. Relies on: plotly.js
// stores itself on the window.
async function streamlitsPlotly(address) {
  if (!window.Plotly) await import(new URL(address, document.baseURI));
  return window.Plotly;
}
