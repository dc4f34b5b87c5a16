// A view as an anywidget: put last, after the module whose `draw(element, data, onPick)` it calls. It lives in its
// own shadow root, so that its styles and the notebook's do not affect each other.

function render({ model, el }) {
  const host = document.createElement("div");
  const shadow = host.attachShadow({ mode: "open" });
  const style = document.createElement("style");
  const view = document.createElement("div");
  style.textContent = model.get("css");
  view.className = `view ${model.get("view")}`;
  shadow.append(style, view);
  el.append(host);
  const pick = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  let leave = () => {};
  const paint = () => {
    leave();
    const { buffer, byteOffset, byteLength } = model.get("packet"); // a DataView
    leave = draw(view, new Uint8Array(buffer, byteOffset, byteLength), pick);
  };
  model.on("change:packet", paint);
  paint();
  return () => {
    model.off("change:packet", paint);
    leave();
  };
}

export default { render };
