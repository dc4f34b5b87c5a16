// A Plotly chart, drawn by the plotly.js that Streamlit includes. Streamlit's own chart draws every new figure twice,
// in a new element; this one draws it once, in the same element. Put after axis_names.js, plot_axes.js,
// plotly_internals.js and calls.js.
//
// data: see ui/page.py. Triggers: "pick" on a click, with the positions [row, column] of a cell, [position] of a bar,
// or the first two numbers of customdata; "zoom" with "first row-last row,first column-last column", "" for the whole.
// Tick labels without room are hidden, at regular distances, here: the chart's size is known only in the browser.

const ROOM = 1.1; // the room that a tick label needs, in multiples of its height
const HEIGHT = 450; // css pixels of a figure that has none of its own
const AGAIN = 250; // milliseconds until a chart that could not be drawn is tried again
const RESIZED = 100; // milliseconds until a chart whose size has changed is drawn again
const LONGEST = 2000; // milliseconds that other charts wait: Plotly never finishes a chart that is removed while it is drawn
const FULLSCREEN = {
  name: "fullscreen",
  title: "Fullscreen",
  icon: { width: 448, height: 512, path: "M32 32C14 32 0 46 0 64v96h64V96h64V32zM0 352v96c0 18 14 32 32 32h96v-64H64v-64zM320 32v64h64v64h64V64c0-18-14-32-32-32zM384 352v64h-64v64h96c18 0 32-14 32-32v-96z" },
  click: (chart) => (document.fullscreenElement ? document.exitFullscreen() : chart.requestFullscreen()),
};

// The index, among the visible tick labels of this axis, of the framed row, whose label is never hidden.
function framed(layout, axis) {
  const { tickvals = [], range = [] } = layout[axis];
  const row = Math.round((layout.shapes?.[0]?.y0 ?? -0.5) + 0.5);
  const inSight = Array.from(tickvals).filter((at) => Math.min(...range) <= at && at <= Math.max(...range));
  return Math.max(inSight.indexOf(row), 0);
}

function thin(chart) {
  for (const name of Object.keys(chart.layout).filter((key) => /^[xy]axis/.test(key))) {
    const { labels, length, size } = tickLabels(chart, name) ?? { labels: [] };
    if (labels.length < 2) continue;
    const every = Math.ceil((ROOM * size) / (length / labels.length));
    const shown = name[0] === "y" ? framed(chart.layout, name) : 0;
    labels.forEach((label, index) => { label.style.display = (index - shown) % every ? "none" : ""; });
  }
}

function span(axis) {
  const names = axis.names();
  const low = Math.floor(Math.min(...axis.range) + 0.5); // a cell reaches half a position to either side
  const high = Math.ceil(Math.max(...axis.range) - 0.5);
  const first = position(names[Math.max(low, 0)], false);
  const last = position(names[Math.min(high, names.length - 1)], true);
  return first === null || last === null ? null : `${first}-${last}`;
}

// Return the defaults for what a figure does not set, in the page's colours and sizes.
function template(chart) {
  const style = getComputedStyle(chart);
  const [ink, ground] = [style.color, style.getPropertyValue("--st-background-color")];
  const sized = (share) => ({ color: ink, family: style.fontFamily, size: share * parseFloat(style.getPropertyValue("--st-base-font-size")) });
  const [small, large, line] = [sized(0.75), sized(0.875), "rgba(128, 128, 128, 0.22)"];
  const axis = { tickfont: small, tickcolor: line, gridcolor: line, zerolinecolor: line, automargin: true };
  return {
    layout: {
      font: small,
      colorway: style.getPropertyValue("--st-chart-categorical-colors").split(","),
      paper_bgcolor: ground,
      plot_bgcolor: ground,
      margin: { l: 0, r: 0, pad: 0.5 * sized(1).size },
      hoverlabel: { bgcolor: ground, bordercolor: line, font: small },
      legend: { font: small, valign: "top" },
      xaxis: { ...axis, showgrid: false, zeroline: false, title: { font: large, standoff: 1.25 * sized(1).size } },
      yaxis: { ...axis, title: { font: large, standoff: 1.5 * sized(1).size } },
    },
  };
}

const sizeOf = ({ clientWidth: width, clientHeight: height }) => ({ width, height });
const after = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
let turn = Promise.resolve(); // charts are drawn one after another, in their order on the page

function inTurn(work) {
  turn = turn.then(work).catch(console.error);
}

async function draw(chart, own) {
  const plotly = await streamlitsPlotly(own.data.script);
  const size = sizeOf(chart);
  if (chart.own !== own || !own.stale || !size.width) return; // the component was run again, is drawn already, or is hidden
  own.stale = false;
  const figure = JSON.parse(own.data.figure);
  const config = { ...own.data.config, modeBarButtonsToAdd: [FULLSCREEN] };
  const look = template(chart);
  for (const note of figure.layout.annotations ?? []) if (note.bgcolor) note.bgcolor = look.layout.paper_bgcolor;
  await plotly.react(chart, figure.data, { ...figure.layout, ...size, template: look }, config);
  if (!own.listening && chart.on) addListeners(chart, own); // a chart removed meanwhile has no listeners
  chart.ariaBusy = String(own.stale);
}

// Hovering a mask's row rings the points of the figure `of`: layout.meta.rings.rows[row][point] are the rings' widths.
function ring(chart, row) {
  const { of, rows } = chart.layout.meta?.rings ?? {};
  const other = of && document.querySelector(`.st-key-${of} .js-plotly-plot`);
  if (other?.data) window.Plotly.restyle(other, { "marker.line.width": [rows.at(row)] }, [other.data.length - 1]);
}

function addListeners(chart, own) {
  own.listening = true;
  const zoomed = (event) => {
    const names = Object.keys(event);
    if (names.some((name) => name.endsWith("axis.autorange"))) own.send("zoom", "");
    if (!names.some((name) => name.includes("axis.range"))) return;
    const [rows, columns] = ["y", "x"].map((letter) => span(axisOf(chart, letter)));
    if (rows && columns) own.send("zoom", `${rows},${columns}`);
  };
  const picked = (event) => {
    const { x, y, customdata } = event.points?.[0] ?? {};
    const named = [y, x].map((name) => position(name, false)).filter((number) => number !== null);
    const positions = Array.isArray(customdata) ? customdata.slice(0, 2) : named;
    if (positions.length) own.send("pick", positions);
  };
  chart.on("plotly_afterplot", () => thin(chart));
  chart.on("plotly_click", (event) => own.data.picks && picked(event));
  // on clicks too, since a tap does not hover
  for (const pointed of ["plotly_hover", "plotly_click"]) chart.on(pointed, ({ points }) => ring(chart, points[0].pointNumber[0]));
  chart.on("plotly_unhover", () => ring(chart, -1));
  chart.on("plotly_relayout", (event) => own.data.zooms && zoomed(event));
  thin(chart);
}

function show({ data, parentElement, setTriggerValue }) {
  const chart = parentElement.querySelector(".chart");
  const own = (chart.own ||= {});
  Object.assign(own, { data, send: setTriggerValue, stale: true }); // called for new data and for new colours of the page
  chart.setAttribute("aria-label", data.alt);
  chart.ariaBusy = "true";
  chart.style.height = `${data.height ?? HEIGHT}px`;
  const drawn = () => {
    inTurn(() => Promise.race([draw(chart, own), after(LONGEST)]));
    inTurn(painted);
    setTimeout(() => chart.own === own && own.stale && chart.isConnected && sizeOf(chart).width && drawn(), AGAIN);
  };
  drawn();
  const fit = () => {
    const size = sizeOf(chart);
    if (chart.own !== own || !own.listening || own.stale || !size.width) return;
    if (size.width !== chart.layout.width || size.height !== chart.layout.height) window.Plotly.relayout(chart, size);
  };
  own.observer ||= new ResizeObserver(() => {
    if (own.stale) drawn();
    clearTimeout(own.resized);
    own.resized = setTimeout(() => inTurn(fit), RESIZED); // a new figure often follows a new size: draw both at once
  });
  own.observer.observe(chart);
  return () => {
    own.observer.disconnect();
    clearTimeout(own.resized);
    delete chart.own;
    inTurn(() => chart.own || window.Plotly?.purge(chart)); // Plotly fails on a chart that is purged while it is drawn
  };
}

export default unlessEnded(show);
