// The picture of the workflow: moving about in it, picking out what matters, and keeping it up to date.

import { hooks } from "./page.js";

const stage = document.getElementById("stage");
const graph = stage?.querySelector(".graph");
const FAR = 0.42; // below this scale names cannot be read
const NEAREST = 2.5;

if (graph) {
  const whole = { width: +graph.dataset.width + 40, height: +graph.dataset.height + 40 };
  const view = { x: -20, y: -20, scale: 1 };
  const headings = graph.querySelector(".frame.flow") ? 20 : 0; // pixels that the names of workflows take, however far

  function draw() {
    const { width, height } = stage.getBoundingClientRect();
    graph.setAttribute("viewBox", `${view.x} ${view.y} ${width / view.scale} ${height / view.scale}`);
    graph.classList.toggle("far", view.scale < FAR);
    for (const text of graph.querySelectorAll(".frame.flow text")) text.style.fontSize = `${Math.max(13, 15 / view.scale)}px`;
  }

  function all() {
    const box = stage.getBoundingClientRect(), { width } = box, height = box.height - headings;
    view.scale = Math.min(1.15, width / whole.width, height / whole.height);
    const nearer = width < 700 ? 2.5 : 1.3;
    if (view.scale < FAR && view.scale * nearer > FAR) view.scale = Math.min(0.7, FAR * 1.6);  // rather read a part than see all
    view.x = -20 - Math.max(0, (width / view.scale - whole.width) / 2);
    view.y = -20 - headings / view.scale - Math.max(0, (height / view.scale - whole.height) / 2);
    draw();
  }

  function zoom(factor, x, y) {
    const box = stage.getBoundingClientRect();
    const least = Math.min(0.02, box.width / whole.width / 2);
    const scale = Math.max(least, Math.min(NEAREST, view.scale * factor));
    const at = { x: x ?? box.width / 2, y: y ?? box.height / 2 };
    view.x += at.x / view.scale - at.x / scale;
    view.y += at.y / view.scale - at.y / scale;
    view.scale = scale;
    draw();
  }

  function move(x, y) {
    view.x -= x / view.scale;
    view.y -= y / view.scale;
    draw();
  }

  function show(node) {
    const box = stage.getBoundingClientRect(), at = node.getBoundingClientRect();
    if (view.scale < FAR) zoom(0.9 / view.scale, at.x - box.x + at.width / 2, at.y - box.y + at.height / 2);
    const now = node.getBoundingClientRect();
    if (now.left < box.left || now.right > box.right || now.top < box.top || now.bottom > box.bottom)
      move(box.x + box.width / 2 - now.x - now.width / 2, box.y + box.height / 2 - now.y - now.height / 2);
  }

  function near(node) {
    location.href = `/?focus=${encodeURIComponent(node.id.slice(2))}`;
  }

  all();
  new ResizeObserver(draw).observe(stage);
  stage.addEventListener("wheel", event => {
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    if (event.shiftKey) move(-event.deltaY - event.deltaX, 0);
    else zoom(Math.exp(-event.deltaY / 400), event.clientX - box.x, event.clientY - box.y);
  }, { passive: false });

  const fingers = new Map();
  let moved = 0;
  stage.addEventListener("pointerdown", event => {
    if (event.target.closest(".legend, .zoom")) return;
    fingers.set(event.pointerId, event);
    moved = 0;
  });
  addEventListener("pointermove", event => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const others = [...fingers.values()].filter(each => each.pointerId !== event.pointerId);
    const x = event.clientX - before.clientX, y = event.clientY - before.clientY;
    moved += Math.abs(x) + Math.abs(y);
    if (others.length) {
      const other = others[0], box = stage.getBoundingClientRect();
      const far = each => Math.hypot(each.clientX - other.clientX, each.clientY - other.clientY);
      zoom(far(event) / Math.max(1, far(before)), (event.clientX + other.clientX) / 2 - box.x, (event.clientY + other.clientY) / 2 - box.y);
    } else if (moved > 4) {
      stage.classList.add("dragged");
      move(x, y);
    }
    fingers.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, event => {
    fingers.delete(event.pointerId);
    stage.classList.remove("dragged");
  });
  graph.addEventListener("click", event => { if (event.detail && moved > 4) event.preventDefault(); }, true); // keys have no detail
  graph.addEventListener("dragstart", event => event.preventDefault());
  stage.querySelector(".zoom").addEventListener("click", event => {
    const what = event.target.dataset.zoom;
    if (what === "in") zoom(1.4);
    else if (what === "out") zoom(1 / 1.4);
    else if (what === "all") all();
  });
  stage.addEventListener("keydown", event => {
    const step = 80, keys = {
      ArrowLeft: () => move(step, 0), ArrowRight: () => move(-step, 0), ArrowUp: () => move(0, step), ArrowDown: () => move(0, -step),
      "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), "0": all,
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  graph.addEventListener("click", event => {
    const node = event.target.closest(".node");
    if (node && event.shiftKey) { event.preventDefault(); near(node); }
  });
  graph.addEventListener("keydown", event => {
    const node = event.target.closest(".node");
    if (node && event.key === "n" && !event.ctrlKey && !event.metaKey) near(node);
  });
  graph.addEventListener("focusin", event => {
    stage.scrollTo(0, 0);
    const node = event.target.closest(".node");
    if (node?.matches(":focus-visible")) show(node);
  });

  document.getElementById("known").addEventListener("click", () => {
    document.documentElement.dataset.knows = "";
    localStorage.setItem("knows", "yes");
  });

  // ---- Picking out

  const filter = document.getElementById("filter");
  const chips = [...document.querySelectorAll(".chip")];
  const nodes = [...graph.querySelectorAll(".node")], links = [...graph.querySelectorAll(".link")];
  const lines = [...graph.querySelectorAll(".writes, .own")];
  const nameOf = node => node.id.slice(2);

  function pick() {
    const states = chips.filter(each => each.ariaPressed === "true").map(each => `is-${each.dataset.state}`);
    const wanted = filter.value.trim().toLowerCase();
    const any = states.length || wanted;
    const shown = new Set();
    for (const node of nodes) {
      const fits = (!wanted || nameOf(node).toLowerCase().includes(wanted))
        && (!states.length || states.some(each => node.matches(`.task.${each}, .channel.is-quarantined.${each}`)));
      if (fits) shown.add(node.id);
      node.classList.toggle("dim", Boolean(any && !fits));
    }
    for (const link of links)
      link.classList.toggle("dim", Boolean(any && !(shown.has(`t-${link.dataset.to}`) && (states.length || shown.has(`c-${link.dataset.from}`)))));
    for (const line of lines) line.classList.toggle("dim", Boolean(any));
    return nodes.filter(node => shown.has(node.id));
  }

  for (const chip of chips) chip.addEventListener("click", () => {
    chip.ariaPressed = chip.ariaPressed === "true" ? "false" : "true";
    pick();
  });
  filter.addEventListener("input", pick);
  filter.form.addEventListener("submit", event => {
    if (document.activeElement !== filter) return;
    event.preventDefault();
    const first = pick()[0];
    if (filter.value && first) show(first);
  });
  filter.addEventListener("keydown", event => {
    if (event.key === "Escape") { filter.value = ""; pick(); }
  });

  // ---- Keeping up to date

  let shape = null;

  function place(node, state) {
    for (const name of [...node.classList]) if (name.startsWith("is-")) node.classList.remove(name);
    node.classList.add(`is-${state}`);
  }

  function write(element, text) {
    if (element && element.textContent !== text) element.textContent = text;
  }

  hooks.look = async () => {
    const answer = await fetch("/workflow/state");
    if (answer.status >= 500) throw new Error(answer.statusText);
    if (answer.redirected || !answer.ok) { location.reload(); return; }
    const found = await answer.json();
    shape ??= stage.dataset.shape;
    if (shape !== found.shape) { location.reload(); return; }
    stage.toggleAttribute("data-going", found.going);
    for (const node of nodes) {
      const name = nameOf(node);
      if (node.classList.contains("task")) {
        const now = found.tasks[name];
        if (!now) continue;
        const [state, text] = now;
        if (!node.classList.contains(`is-${state}`)) {
          place(node, state);
          node.querySelector("use").setAttribute("href", `#m-${state}`);
        }
        write(node.querySelector(".more"), text);
        write(node.querySelector("title"), `${name}: ${text}`);
      } else {
        const now = found.channels[name];
        if (!now) continue;
        const [state, holds, time, title] = now;
        if (state === "fresh") document.getElementById("start")?.remove();
        if (!node.classList.contains(`is-${state}`)) place(node, state);
        write(node.querySelector(".holds"), holds);
        write(node.querySelector("title"), title);
        if (time) {
          node.querySelector(".when").dataset.time = time;
          write(node.querySelector(".dash"), " · ");
        }
      }
    }
    for (const link of links) {
      const count = found.behind[link.dataset.to]?.[link.dataset.from] ?? 0;
      link.classList.toggle("behind", count > 0);
      write(link.querySelector(".lag"), count ? ` +${count}` : "");
    }
    for (const chip of chips) {
      const files = chip.dataset.state === "quarantined";
      const count = files ? found.quarantined : nodes.filter(node => node.matches(`.task.is-${chip.dataset.state}`)).length;
      write(chip.querySelector("b"), String(count));
      chip.disabled = !count && chip.ariaPressed !== "true";
      if (!files) continue;
      write(chip.querySelector(".words"), `file${count === 1 ? "" : "s"} quarantined`);
      chip.hidden = chip.disabled;
    }
    if (chips.some(each => each.ariaPressed === "true")) pick();
  };
}
