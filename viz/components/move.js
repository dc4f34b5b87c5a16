// Lets keys move the query on a part of the page that Streamlit draws: the container of class data.place becomes
// focusable, has a role and a label, and announces the query while focused. The position is sent to the trigger
// "query". Put after calls.js, query.js, axis_names.js and plot_axes.js. data: see ui/heads/query.py.

// Return the box of a position's row on a heatmap, in css pixels of its chart; null if it is not visible.
function rowBox([columns, rows], query) {
  const row = rows.names().findIndex((name) => position(name, false) <= query && query <= position(name, true));
  const ends = [rows.at(row - 0.5), rows.at(row + 0.5)];
  const [top, below] = [Math.max(Math.min(...ends), 0), Math.min(Math.max(...ends), rows.length)];
  return row < 0 || top >= below ? null : { left: columns.start, top: rows.start + top, width: columns.length, height: below - top };
}

// Frame the row that keys have moved to, instead of the row framed in the chart itself.
function frameRow(chart, own, drawn, colour) {
  const axes = chart ? ["x", "y"].map((letter) => axisOf(chart, letter)) : [null];
  if (!axes.every(Boolean)) return;
  chart.framed?.remove();
  chart.toggleAttribute("data-framed", own.query !== drawn);
  const box = own.query === drawn ? null : rowBox(axes, own.query);
  if (!box) return;
  chart.framed = chart.appendChild(document.createElement("div"));
  const pixels = Object.entries(box).map(([side, length]) => `${side}:${length}px`);
  chart.framed.style.cssText = [...pixels, "position:absolute", "pointer-events:none", `box-shadow:0 0 0 1.5px ${colour}`].join(";");
}

function letKeysMove({ data, setTriggerValue }) {
  const container = document.querySelector(`.${data.place}`);
  if (!container) return;
  const own = (container.reading ||= { element: container, held: false, waiting: null, sent: {}, hint: document.createElement("div") });
  takeChoice(own, "query", data.query);
  const show = () => {
    const label = data.labels[own.query - data.first];
    const name = label === undefined ? String(own.query) : `${own.query}: ${label}`;
    own.hint.textContent = data.words.replace("{query}", () => name);
    container.setAttribute("aria-label", own.hint.textContent);
    if (data.mark) frameRow(container.querySelector(".js-plotly-plot"), own, data.query, data.mark);
  };
  container.tabIndex = 0;
  container.setAttribute("role", data.role);
  container.dataset.moves = "";
  own.hint.className = "moves";
  own.hint.setAttribute("aria-live", "polite");
  container.append(own.hint);
  const call = (own.call = {});
  moveByKeys(container, own, (key) => steppedQuery(key, own.query, data.among), show, setTriggerValue);
  show();
  return () => {
    if (own.call !== call) return; // a later call has taken over
    clearTimeout(own.waiting);
    container.onkeydown = container.onkeyup = container.onblur = null;
    for (const name of ["tabindex", "role", "aria-label", "data-moves"]) container.removeAttribute(name);
    own.hint.remove();
    const chart = container.querySelector(".js-plotly-plot");
    chart?.framed?.remove();
    chart?.removeAttribute("data-framed");
    delete container.reading;
  };
}

export default unlessEnded(letKeysMove);
