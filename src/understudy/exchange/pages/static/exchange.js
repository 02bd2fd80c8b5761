"use strict";
// Everything works without this; it only saves a few steps.

function addCopyButtons() {
  if (!navigator.clipboard) return; // only where the browser allows it: https, or this machine
  for (const line of document.querySelectorAll(".command")) {
    const button = document.createElement("button");
    button.className = "plain";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(line.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    line.append(button);
  }
}

function sayLocalTimes() {
  for (const time of document.querySelectorAll("time")) {
    time.title = `${new Date(time.dateTime).toLocaleString([], { dateStyle: "full", timeStyle: "short" })}, here`;
  }
}

function sendOnce() {
  for (const form of document.querySelectorAll("form[method=post]")) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "yes";
    });
  }
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });
}

function reloadWhileBusy() {
  const busy = document.querySelector("[data-reload]");
  if (busy) setTimeout(() => { if (!document.hidden) location.reload(); }, 1000 * busy.dataset.reload);
}

addCopyButtons();
sayLocalTimes();
sendOnce();
reloadWhileBusy();
