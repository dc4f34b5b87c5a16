// A click on a cell of a plotly heatmap, or on a bar, chooses it, and zooming in chooses the part that is drawn. Streamlit
// hands neither to the server, so this part, which draws nothing, listens to the chart in the container of class
// data.chart. The positions [row, column], or [position] of what has but one, go to the trigger "pick"; "first row-last
// row,first column-last column" to "zoom", "" for the whole. Put after axis_names.js, plot_axes.js and plotly_internals.js. Only
// the browser knows how large the picture is: labels that have no room beside the next one are left out, every second or third
// alike.

const ROOM = 1.1; // of its own height that a label needs

const framed = (chart) => Math.round((chart.layout.shapes?.[0]?.y0 ?? -0.5) + 0.5); // the row in a frame keeps its label

function thin(chart) {
  for (const letter of "xy") {
    const { labels, length, size } = tickLabels(chart, letter) ?? { labels: [] };
    if (labels.length < 2) continue;
    const every = Math.ceil((ROOM * size) / (length / labels.length));
    const kept = letter === "y" ? framed(chart) : 0;
    labels.forEach((label, place) => { label.style.display = (place - kept) % every ? "none" : ""; });
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

export default function ({ data, setTriggerValue }) {
  const place = document.querySelector(`.${data.chart}`);
  if (!place) return undefined;
  let heard = null; // the chart that is listened to; Streamlit may put another in its place
  const chosen = (event) => {
    const { x, y } = event.points?.[0] ?? {};
    const picked = [y, x].map((name) => position(name, false)).filter((place) => place !== null);
    if (picked.length) setTriggerValue("pick", picked);
  };
  const zoomed = (event) => {
    if (Object.keys(event).some((name) => name.endsWith("axis.autorange"))) setTriggerValue("zoom", "");
    if (!Object.keys(event).some((name) => name.includes("axis.range"))) return;
    const [rows, columns] = ["y", "x"].map((letter) => span(axisOf(heard, letter)));
    if (rows && columns) setTriggerValue("zoom", `${rows},${columns}`);
  };
  const drawn = () => thin(heard);
  const listen = () => {
    const chart = place.querySelector(".js-plotly-plot");
    if (!chart || chart === heard || !chart.on) return;
    heard = chart;
    chart.on("plotly_afterplot", drawn);
    drawn();
    if (data.picks) chart.on("plotly_click", chosen);
    if (data.zooms) chart.on("plotly_relayout", zoomed);
  };
  listen();
  const observer = new MutationObserver(listen);
  observer.observe(place, { childList: true, subtree: true });
  return () => {
    observer.disconnect();
    heard?.removeListener?.("plotly_afterplot", drawn);
    heard?.removeListener?.("plotly_click", chosen);
    heard?.removeListener?.("plotly_relayout", zoomed);
  };
}
