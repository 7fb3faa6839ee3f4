"use strict";
{
  const link = document.getElementById("link");
  let source, lost = false, late = new Map();
  const say = text => { if (link.textContent !== text) link.textContent = text; };
  const clock = at => at.toLocaleString([], Math.abs(at - Date.now()) > 72e6 ? {day: "numeric", month: "short", hour: "2-digit", minute: "2-digit"} : {hour: "2-digit", minute: "2-digit"});
  const times = part => { for (const t of part.querySelectorAll("time")) t.textContent = clock(new Date(t.dateTime)); };
  // A part in which somebody has marked text stays until the mark is gone.
  const marked = part => { const s = getSelection(); return !s.isCollapsed && (part.contains(s.anchorNode) || part.contains(s.focusNode)); };
  const put = html => {
    const t = document.createElement("template");
    t.innerHTML = html;
    const part = t.content.firstElementChild, old = part && document.getElementById(part.id);
    if (!old) return;
    if (marked(old)) { late.set(part.id, html); return; }
    late.delete(part.id);
    const wide = [...old.querySelectorAll(".wide")].map(w => w.scrollLeft), focus = [...old.querySelectorAll("[tabindex], a")].indexOf(document.activeElement);
    times(part);
    old.replaceWith(part);
    part.querySelectorAll(".wide").forEach((w, i) => { if (wide[i]) w.scrollLeft = wide[i]; });
    if (focus >= 0) part.querySelectorAll("[tabindex], a")[focus]?.focus({preventScroll: true});
    if (part.dataset.title) document.title = part.dataset.title;
  };
  const open = () => {
    if (source) return;
    source = new EventSource(document.body.dataset.events);
    source.onopen = () => { lost = false; say("live"); };
    source.onmessage = e => put(e.data);
    source.addEventListener("end", () => { close(); source = 0; say("The program has ended, and these are its last figures."); });
    source.onerror = () => {
      if (!lost) say("No connection since " + clock(new Date()) + "; trying again");
      lost = true;
      if (source?.readyState === EventSource.CLOSED) { close(); setTimeout(() => { if (!document.hidden && source !== 0) open(); }, 1e4); }
    };
  };
  const close = () => { if (source) { source.close(); source = undefined; } };
  document.addEventListener("selectionchange", () => { if (getSelection().isCollapsed) for (const html of [...late.values()]) put(html); });
  // A tab that nobody sees costs nothing.
  document.addEventListener("visibilitychange", () => { if (source === 0) return; document.hidden ? close() : open(); });
  times(document);
  if (!document.hidden) open();
}
