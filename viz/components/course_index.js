// The list of a course's lessons: the HTML that shows one in a frame of another page.

for (const place of document.querySelectorAll("[data-frame]")) {
  const frame = document.createElement("iframe");
  const address = `${new URL(place.dataset.frame, location)}?frame`;
  for (const [name, value] of Object.entries({ src: address, title: place.title, width: "100%", height: 800 })) frame.setAttribute(name, value);
  place.textContent = frame.outerHTML;
}
