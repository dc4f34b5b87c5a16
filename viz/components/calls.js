// Streamlit calls a component whenever its data changes, and ends a call when the element is removed. It also makes calls that
// were superseded while the module was fetched, even after later ones, and ends them at once: these never begin here.
// begin(given) returns a function that ends the call, or nothing. Put before the module that is called.

const unlessEnded = (begin) => (given) => {
  let end = null;
  const beginning = setTimeout(() => { end = begin(given); });
  return () => {
    clearTimeout(beginning);
    end?.();
  };
};
