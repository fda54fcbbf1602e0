// What every page does: it keeps itself up to date, finds things, asks for what somebody wants done, and tells the time.

const EVENTS = "/api/v1/events/stream";
const LEAST = 700; // milliseconds between two looks, at least
const MOST = 4000; // and at most, however long a look takes
const LOST = 2000; // milliseconds until a server that has gone away is tried again
const WAITS = 1000; // milliseconds between two looks at what rows wait for
const UNSEEN = 10000; // milliseconds after which a page that is hidden does not listen any more

const pause = time => new Promise(done => setTimeout(done, time));

// ---- Colours

const theme = document.getElementById("theme");
const themes = ["", "light", "dark"];
function wear(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}
theme?.addEventListener("click", () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % themes.length];
  wear(next);
  notice(next ? `Colours: ${next}` : "Colours: as in the system", { gone: 1500 });
  localStorage.setItem("theme", next);
});

const here = document.querySelector("nav [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.clientWidth / 2; // on a phone not all fit

// ---- Times

function relative(time, now) {
  const away = Math.abs(now - time) / 1000;
  if (away < 1) return "now";
  let amount = away, unit = "d";
  for (const [step, name] of [[60, "s"], [60, "min"], [24, "h"], [Infinity, "d"]]) {
    unit = name;
    if (amount < step) break;
    amount /= step;
  }
  const text = `${Math.floor(amount)} ${unit}`;
  return time <= now ? `${text} ago` : `in ${text}`;
}

function lasting(count) {
  if (count < 60) return `${Math.max(0, Math.floor(count))} s`;
  const minutes = Math.floor(count / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(count % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Browsers' clocks may be wrong: what counts is the server's.
const ahead = Date.parse(document.body.dataset.now) - Date.now();

function tellTimes() {
  const now = Date.now() + ahead;
  const tell = (each, text) => { if (each.textContent !== text) each.textContent = text; };
  for (const each of document.querySelectorAll("time[datetime]")) tell(each, relative(Date.parse(each.dateTime), now));
  for (const each of document.querySelectorAll("[data-time]")) tell(each, relative(Date.parse(each.dataset.time), now));
  for (const each of document.querySelectorAll("[data-since]")) tell(each, lasting((now - Date.parse(each.dataset.since)) / 1000));
}
setInterval(() => document.hidden || tellTimes(), 1000);

// ---- Notices and questions

function notice(text, { how = "", kind = "", page = "", gone = kind === "bad" ? 15000 : 6000 } = {}) {
  const made = document.createElement("div");
  made.className = `notice ${kind}`;
  const words = document.createElement("p");
  words.textContent = text;
  if (page) {
    const link = document.createElement("a");
    link.href = page;
    link.textContent = "see it";
    words.append(" · ", link);
  }
  made.append(words);
  if (how) {
    const more = document.createElement("p");
    more.className = "how";
    more.textContent = how;
    made.append(more);
  }
  made.addEventListener("click", () => made.remove());
  document.getElementById("notices").append(made);
  if (gone) setTimeout(() => made.remove(), gone);
  return made;
}

function asked(question) {
  const box = document.getElementById("ask");
  box.querySelector("p").textContent = question;
  box.returnValue = "no";
  box.showModal();
  return new Promise(done => box.addEventListener("close", () => done(box.returnValue === "yes"), { once: true }));
}

// ---- Keeping up to date: what has the attribute data-live is looked at again whenever something has happened.

const live = document.getElementById("live");
let looking = false, again = false, next = 0;

function standing(state, word) {
  if (!live) return;
  live.dataset.state = state;
  live.querySelector(".word").textContent = word;
}

export const hooks = { look: null };

async function look() {
  if (document.hidden) { again = true; return; }
  if (looking) { again = true; return; }
  looking = true;
  await pause(Math.max(0, next - Date.now()));
  again = false;
  const began = Date.now();
  try {
    await (hooks.look ?? renew)();
    next = Date.now() + Math.min(MOST, Math.max(LEAST, 3 * (Date.now() - began))); // what is slow is asked for less often
  } catch {
    lost();
  } finally {
    looking = false;
    if (again) look();
  }
}

const shown = new WeakMap(); // what each part showed when it was put in

async function renew() {
  const parts = [...document.querySelectorAll("[data-live]")];
  if (!parts.length) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (answer.status >= 500) throw new Error(answer.statusText);
  if (answer.redirected || !answer.ok) { location.reload(); return; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const ids = root => [...root.querySelectorAll("[data-live]")].map(each => each.id).join(" ");
  if (ids(page) !== ids(document)) { // there is something to show that was not there, or the other way round
    if (page.querySelector("#stage")) location.reload();
    else swap(document.getElementById("main"), page.getElementById("main"));
    begin(document.getElementById("main"));
  } else for (const old of parts) {
    const next = page.getElementById(old.id);
    old.toggleAttribute("data-going", next.hasAttribute("data-going"));
    for (const each of next.querySelectorAll("time, [data-since]")) each.textContent = "";
    const html = next.innerHTML, focus = document.activeElement;
    if (shown.get(old) === html) continue;
    if (old.contains(focus) && /INPUT|SELECT/.test(focus.tagName)) continue;
    const chosen = getSelection();
    if (!chosen.isCollapsed && old.contains(chosen.anchorNode)) continue;
    swap(old, next);
    shown.set(old, html);
  }
  tellTimes();
}

// Puts new content in, and keeps what somebody has opened, scrolled, or has the focus on.
function swap(old, next) {
  const opened = new Set([...old.querySelectorAll("details[open][id]")].map(each => each.id));
  const moving = () => [...old.querySelectorAll(".scroll, .log, .small-graph")];
  const scrolled = moving().map(each => [each.scrollTop, each.scrollLeft, each.scrollTop + each.clientHeight >= each.scrollHeight - 4]);
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const place = focus && path(focus, old), aim = focus && purpose(focus);
  old.replaceChildren(...next.childNodes);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  moving().forEach((each, index) => {
    const [top, left, low] = scrolled[index] ?? [0, 0, false];
    each.scrollTop = low && each.matches(".log") ? each.scrollHeight : top;
    each.scrollLeft = left;
  });
  if (!place) return;
  const found = place.reduce((each, index) => each?.children[index], old);
  if (found && purpose(found) === aim) found.focus({ preventScroll: true });
}

const purpose = element => element.getAttribute("href") ?? element.closest("form")?.dataset.action ?? element.tagName;

function path(element, root) {
  const found = [];
  for (; element !== root; element = element.parentElement) found.unshift([...element.parentElement.children].indexOf(element));
  return found;
}

let source = null, waiting = 0;

function listen() {
  if (!live) return;
  source?.close();
  source = new EventSource(`${EVENTS}?since=${live.dataset.event}`);
  source.onopen = () => standing("live", "live");
  source.onerror = lost;
  for (const kind of live.dataset.kinds.split(",")) source.addEventListener(kind, event => {
    live.dataset.event = event.lastEventId;
    look();
  });
}

function lost() {
  standing("away", "no answer, trying again");
  source?.close();
  source = null;
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    if (document.hidden) return; // it is tried when somebody looks
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) location.reload();
      else if (answer.status < 500) { listen(); look(); }
      else lost();
    } catch { lost(); }
  }, LOST);
}

// A browser has few connections to a server, and many pages may be open: those that nobody sees let go of theirs.
let unseen = 0;
function attend() {
  clearTimeout(unseen);
  if (document.hidden) unseen = setTimeout(() => { source?.close(); source = null; }, UNSEEN);
  else if (!source) { listen(); look(); }
  else if (again) look();
}
document.addEventListener("visibilitychange", attend);
addEventListener("pagehide", () => { source?.close(); source = null; });
addEventListener("pageshow", event => event.persisted && attend());
if (!document.hidden) listen();
// How far runs have come is no event: while something goes on, it is asked for.
setInterval(() => { if (!document.hidden && document.querySelector("[data-going]")) look(); }, 1500);

// ---- What somebody wants done

async function told(answer) {
  const text = await answer.text();
  try { return text ? JSON.parse(text) : null; } catch { return { problem: `${answer.status} ${answer.statusText}` }; }
}

function refused(error) {
  const where = ["binding", "channel", "task", "column", "point", "run", "path"].filter(name => error?.[name] != null)
    .map(name => `${name} ${error[name]}`).join(", ");
  const how = [error?.hint, where && `[${where}]`].filter(Boolean).join(" ");
  notice(error?.problem ?? "Failed", { how, kind: "bad" });
}

// Says that something waits for a worker, behind so many others.
const waits = before => "waits for a worker" + (before ? `: ${before} ${before === 1 ? "run is" : "runs are"} before it` : "");

// Waits for what a worker does, and says how it ends.
async function operation(place, found, what) {
  const busy = notice(`${what}: begun`, { kind: "busy", gone: 0 }), words = busy.querySelector("p");
  try {
    while (found.state === "waiting" || found.state === "running") {
      words.textContent = `${what}: ${found.state === "waiting" ? waits(found.before) : "running"}`;
      await pause(500);
      const next = await fetch(place);
      found = await told(next);
      if (!next.ok) { refused(found); return null; }
    }
  } catch {
    notice(`${what}: the server went away; see the runs for what became of it`, { kind: "bad" });
    return null;
  } finally { busy.remove(); }
  if (found.state === "failed") { refused(found.error); return null; }
  return found;
}

// Says what becomes of a firing, until it has ended.
async function follow(firing) {
  let busy = null, said = "";
  const words = () => `${firing.binding}: ${firing.run ? `run ${firing.run} ` : ""}${firing.state}`;
  const page = () => firing.run ? `/runs/${firing.run}` : `/triggers/${firing.binding}`;
  try {
    while (!firing.ended) {
      if (said !== words()) {
        said = words();
        busy?.remove();
        busy = notice(said, { kind: "busy", page: page(), gone: 0 });
      }
      await pause(500);
      const answer = await fetch(`/api/v1/firings/${firing.number}`), found = await told(answer);
      if (!answer.ok) { refused(found); return; }
      firing = found;
    }
  } catch {
    notice(`${firing.binding}: the server went away; see the runs for what became of it`, { kind: "bad" });
    return;
  } finally { busy?.remove(); }
  notice(words(), { how: firing.reason ?? "", kind: firing.state === "failed" ? "bad" : "", page: page() });
}

// A page that shows what becomes of an operation itself, by the address that begins with `shows`, is not told by notices.
async function ask(url, options, what, shows) {
  let answer;
  try { answer = await fetch(url, options); } catch {
    notice("The server does not respond", { how: "Try again later", kind: "bad" });
    return null;
  }
  if (answer.status === 401) { location.reload(); return null; }
  const found = await told(answer);
  if (answer.status === 202 && found.operation && shows) {
    history.replaceState(null, "", shows + found.operation);
    look();
    return null;
  }
  if (answer.status === 202 && found.operation) return operation(answer.headers.get("location"), found, what);
  if (answer.status === 202) { [found].flat().forEach(follow); return null; }
  if (!answer.ok) { refused(found); return null; }
  return found ?? {};
}

document.addEventListener("submit", async event => {
  const form = event.target.closest("form[data-action]");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector("button");
  if (form.dataset.ask && !await asked(form.dataset.ask)) return;
  const url = new URL(form.dataset.action, location.href), options = { method: form.dataset.method.toUpperCase() };
  const file = form.querySelector("input[type=file]");
  for (const [name, value] of new FormData(form)) if (!(value instanceof File) && value !== "") url.searchParams.append(name, value);
  if (file) {
    if (!file.files.length) { file.focus(); return; }
    options.body = file.files[0];
    url.searchParams.set("name", file.files[0].name);
    if (!url.searchParams.get("format")) url.searchParams.set("format", formatOf(file.files[0].name));
    if (url.searchParams.get("format") === "csv") url.searchParams.append("option", "header=true");
  }
  const what = button.textContent.trim();
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  const done = await ask(url, options, what, form.dataset.shows);
  button.disabled = false;
  button.removeAttribute("aria-busy");
  if (!done) return;
  const number = done.result?.run ?? done.run ?? (typeof done.result === "number" ? done.result : null);
  if (form.dataset.done) notice(form.dataset.done);
  else if (number != null) notice(`${what}: run ${number}`, { page: `/runs/${number}` });
  else if ("result" in done || "run" in done) notice(`${what}: there was nothing to do`);
  else notice(`${what}: done`);
  if (file && file.files[0] === options.body) form.reset(); // unless the next one is there already
  if (form.dataset.go) { location.assign(form.dataset.go); return; }
  const again = document.getElementById(form.dataset.again ?? "");
  if (again) load(again, again.dataset.load);
  look();
});

function formatOf(name) {
  const ending = name.toLowerCase().split(".").pop();
  return { csv: "csv", parquet: "parquet" }[ending] ?? "json";
}

document.addEventListener("change", event => { if (event.target.matches("[data-submits]")) event.target.form.requestSubmit(); });

// ---- Parts that take a while, such as rows: they are fetched when the page is there, or when they are asked for.

const loads = new WeakMap();

async function load(place, url) {
  const mine = (loads.get(place) ?? 0) + 1;
  loads.set(place, mine);
  place.setAttribute("aria-busy", "true");
  const busy = place.dataset.busy ?? "Reading…";
  place.innerHTML = '<p class="soft"></p>';
  const words = place.querySelector("p");
  words.textContent = busy;
  const telling = setInterval(async () => {
    try {
      const { before } = await (await fetch(`${url.split("?")[0]}/waiting`)).json();
      words.textContent = before === null ? busy : `It ${waits(before)}`;
    } catch { /* the answer itself will say what is wrong */ }
  }, WAITS);
  let content;
  try {
    const answer = await fetch(url);
    if (answer.redirected && new URL(answer.url).pathname === "/sign-in") { location.reload(); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    content = [...(page.getElementById("main") ?? page.body).childNodes];
  } catch {
    content = [document.createTextNode("The server does not respond.")];
  } finally { clearInterval(telling); }
  if (loads.get(place) !== mine) return;
  place.replaceChildren(...content);
  place.removeAttribute("aria-busy");
  tellTimes();
}

function begin(root) {
  for (const place of root.querySelectorAll("[data-load]")) load(place, place.dataset.load);
}
begin(document);
document.addEventListener("submit", event => {
  const form = event.target.closest("form[data-into]");
  if (!form) return;
  event.preventDefault();
  load(document.getElementById(form.dataset.into), `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`);
});

// ---- Finding

const find = document.getElementById("find"), found = document.getElementById("found");
let typed = 0, chosen = -1, answered = "";

async function search() {
  const wanted = find.value.trim(), mine = ++typed;
  if (!wanted) { closed(); return; }
  let names;
  try { names = await (await fetch(`/search?q=${encodeURIComponent(wanted)}`)).json(); } catch { return; }
  if (mine !== typed) return;
  answered = wanted;
  chosen = names.length ? 0 : -1;
  found.replaceChildren(...names.map((each, index) => {
    const item = document.createElement("li"), link = document.createElement("a"), kind = document.createElement("small");
    item.role = "option";
    item.id = `found-${index}`;
    link.href = each.page;
    link.tabIndex = -1;
    link.textContent = each.name;
    kind.textContent = each.kind;
    link.append(kind);
    item.append(link);
    return item;
  }));
  if (!names.length) {
    const item = document.createElement("li"), words = document.createElement("p");
    words.textContent = "No matches";
    item.append(words);
    found.append(item);
  }
  found.hidden = false;
  find.setAttribute("aria-expanded", "true");
  choose(chosen);
}

function closed() {
  found.hidden = true;
  find.setAttribute("aria-expanded", "false");
  find.removeAttribute("aria-activedescendant");
}

function choose(index) {
  const items = [...found.children];
  if (!items.length) return;
  chosen = (index + items.length) % items.length;
  items.forEach((each, at) => each.setAttribute("aria-selected", at === chosen));
  find.setAttribute("aria-activedescendant", items[chosen].id);
}

if (find) {
  find.addEventListener("input", search);
  find.addEventListener("focus", () => find.value && search());
  find.addEventListener("blur", () => setTimeout(closed, 150));
  find.addEventListener("keydown", event => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Escape") { find.value = ""; closed(); find.blur(); }
    else if (event.key === "Enter") {
      const go = () => { const link = found.children[chosen]?.querySelector("a"); if (link) location.href = link.href; };
      if (answered === find.value.trim()) go();
      else search().then(go);
    } else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) {
      event.preventDefault();
      find.focus();
    }
  });
}
