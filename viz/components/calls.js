// Streamlit calls a component whenever its data changes, and ends a call when the element is removed. It also makes and
// immediately ends calls that were superseded while the module was fetched: unlessEnded never begins these, which may
// come after later ones. begin(given) returns a function that ends the call, or nothing. Put before the called module.

const unlessEnded = (begin) => (given) => {
  let end = null;
  const beginning = setTimeout(() => { end = begin(given); });
  return () => {
    clearTimeout(beginning);
    end?.();
  };
};
