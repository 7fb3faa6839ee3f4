// What shaver.wasm needs from JavaScript. A page loads this file before it runs shaver.wasm.
globalThis.shaver = {
  // throwing turns a function that returns an Error into one that throws it, because Go cannot.
  throwing: f => (...a) => { const r = f(...a); if (r instanceof Error) throw r; return r },
};
