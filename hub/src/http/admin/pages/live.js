// Keeps the numbers of the page fresh. Without it they are as of the last reload.
(() => {
  const live = document.getElementById("live");
  if (!live || !window.EventSource) return;
  const state = document.getElementById("live-state");
  const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };
  const events = new EventSource("/events");
  events.addEventListener("overview", (event) => {
    live.innerHTML = event.data;
    say("Live");
  });
  events.onerror = () => say("Not connected: reload to see the present numbers");
})();
