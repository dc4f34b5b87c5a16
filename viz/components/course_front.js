// The first page of a course: on to the reader's language.

const known = [...document.querySelectorAll("main a")];
const own = navigator.languages.map((name) => name.split("-")[0]);
const found = own.map((name) => known.find(({ lang }) => lang === name)).find(Boolean) ?? known[0];
location.replace(found.href);
