// Streamlit calls a component for each new data, and ends a call when the element goes. A call that was superseded while the
// module was fetched is made too, even after the later one, and ended at once: it never begins here. begin(given): returns what
// ends the call, if anything does. Put before the module that is called.

const unlessEnded = (begin) => (given) => {
  let end = null;
  const beginning = setTimeout(() => { end = begin(given); });
  return () => {
    clearTimeout(beginning);
    end?.();
  };
};
