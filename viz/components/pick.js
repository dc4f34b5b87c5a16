// A click on a cell of a plotly heatmap chooses its row. Streamlit hands no clicks on heatmaps to the server, so this
// part, which draws nothing, listens to the chart that stands in the container of class data.chart.
// Rows are named "position: token" (viz/heatmap.py); the position goes to the trigger "pick".

export default function ({ data, setTriggerValue }) {
  const place = document.querySelector(`.${data.chart}`);
  if (!place) return undefined;
  const chosen = (event) => {
    const position = parseInt(event.points?.[0]?.y, 10);
    if (Number.isInteger(position)) setTriggerValue("pick", position);
  };
  let heard = null; // the chart that is listened to; Streamlit may put another in its place
  const listen = () => {
    const chart = place.querySelector(".js-plotly-plot");
    if (!chart || chart === heard || !chart.on) return;
    heard = chart;
    chart.on("plotly_click", chosen);
  };
  listen();
  const observer = new MutationObserver(listen);
  observer.observe(place, { childList: true, subtree: true });
  return () => {
    observer.disconnect();
    heard?.removeListener?.("plotly_click", chosen);
  };
}
