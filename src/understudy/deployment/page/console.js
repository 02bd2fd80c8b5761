"use strict";

const PHASES = {
  waiting: ["waiting for sites", "The run begins when all sites have joined."],
  training: ["training", "Sites train on their own rows; only protected updates travel."],
  paused: ["paused", "Nothing is lost and nothing more is spent while the run is paused."],
  finishing: ["finishing", "All rounds are done; the release is being made and signed."],
  done: ["done", "The release is ready."],
};
const STATES = {
  absent: "not here yet", joined: "joined", lost: "no answer", refused: "refused", left: "left", done: "done",
};
const at = (id) => document.getElementById(id);

function set(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  const hours = Math.floor(whole / 3600);
  return hours < 48 ? `${hours} h ${Math.floor((whole % 3600) / 60)} min` : `${Math.floor(hours / 24)} days`;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function ceil(value, digits) {  // never below the truth
  if (!(value > 0)) return String(value);
  const scale = 10 ** (digits - 1 - Math.floor(Math.log10(value)));
  const up = Math.ceil(value * scale * (1 - 1e-12)) / scale;
  return up < 1e-3 ? up.toExponential(digits - 1).replace(/\.?0+e/, "e") : String(Number(up.toPrecision(digits)));
}

function showRounds(status, now) {
  const { round, rounds, phase } = status;
  set("round", String(round));
  set("rounds", String(rounds));
  at("fill").style.width = `${rounds ? (100 * round) / rounds : 0}%`;
  at("bar").setAttribute("aria-valuenow", round);
  at("bar").setAttribute("aria-valuemax", Math.max(rounds, 1));
  at("bar").classList.toggle("full", round === rounds && rounds > 0);
  set("started", status.started ? `started ${clock(status.started)}` : "");
  const passed = (phase === "done" ? status.updated : now) - status.started;
  const rest = phase === "training" && round > 0 ? (passed / round) * (rounds - round) : null;
  set("left", rest === null ? (phase === "done" ? `took ${duration(passed)}` : "") : `about ${duration(rest)} left`);
  at("next-box").hidden = !status.next;
  set("next", status.next);
}

function showSites(sites, now) {
  const rows = sites.map((site) => {
    const row = element("tr");
    const name = element("th", site.name);
    name.scope = "row";
    const state = element("td");
    state.append(element("span", STATES[site.state] || site.state, `state ${site.state}`));
    if (site.note) state.append(element("span", site.note, "note"));
    const seen = site.state === "joined" ? "connected" : site.seen === null ? "never" : now - site.seen < 5 ? "just now" : `${duration(now - site.seen)} ago`;
    row.append(name, state, element("td", seen));
    return row;
  });
  at("site-rows").replaceChildren(...rows);
  const here = sites.filter((site) => site.state === "joined" || site.state === "done").length;
  set("present", `${here} of ${sites.length} here`);
}

function showClaims(status) {
  const made = status.claims.map((claim) => {
    const item = element("li", undefined, claim.epsilon === null ? "none" : "");
    item.append(element("p", `against ${claim.adversary}`, "who"));
    const price = element("p", claim.epsilon === null ? "nothing promised" : `ε = ${ceil(claim.epsilon, 3)}`, "price");
    if (claim.epsilon !== null) price.append(element("small", `δ = ${ceil(claim.delta, 2)}, for each ${claim.unit}`));
    if (claim.spent !== null) price.append(element("small", `after round ${status.looked}: ε = ${ceil(claim.spent, 3)} spent`));
    item.append(price, element("p", claim.words, "words"));
    return item;
  });
  at("claims").replaceChildren(...made);
  const { round, rounds } = status;
  set("charged", round < rounds ? `for the whole run, of which ${round} of ${rounds} rounds are done` : "for the whole run, which is done");
}

function showSample(sample, round) {
  at("sample").hidden = !sample;
  if (!sample) return;
  set("drawn", round ? `drawn from the generator after round ${round}` : "");
  const row = (cells, name) => {
    const made = element("tr");
    made.append(...cells.map((cell) => element(name, cell)));
    return made;
  };
  at("sample-head").replaceChildren(row(sample.columns, "th"));
  at("sample-rows").replaceChildren(...sample.rows.map((cells) => row(cells, "td")));
}

function showLog(lines) {
  const log = at("log");
  const end = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  log.replaceChildren(...lines.map((line) => element("li", line)));
  if (end) log.scrollTop = log.scrollHeight;
}

function show({ status, sample, now }) {
  const [word, sentence] = PHASES[status.phase];
  document.title = `${status.study} · ${word} · Understudy`;
  set("study", status.study);
  set("phase", word);
  at("phase").className = `phase ${status.phase}`;
  set("sentence", sentence);
  showRounds(status, now);
  showSites(status.sites, now);
  showClaims(status);
  showSample(sample, status.looked);
  showLog(status.log);
  set("updated", `Last news from the server: ${clock(status.updated)}.`);
  return status.phase;
}

function warn(text) {
  at("banner").hidden = !text;
  set("banner", text);
}

let phase = "";

async function refresh() {
  let wait = 2000;
  try {
    const reply = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (reply.status === 403) {
      warn("This page is no longer allowed to look: open the address that the server printed.");
      return;
    }
    const told = await reply.json();
    if (!reply.ok) throw new Error(told.error);
    phase = show(told);
    if (phase === "done") wait = 15000;
    warn("");
  } catch (error) {
    const ended = phase === "finishing" || phase === "done";
    warn(ended
      ? "The server has ended. Whether the release is there, its own output says."
      : "The server does not answer. What is below is the last that it said.");
    wait = 5000;
  }
  setTimeout(refresh, document.hidden ? 4 * wait : wait);
}

refresh();
