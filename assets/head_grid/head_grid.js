/*
 * The head grid: one button a head, one grid a member.
 *
 * The truth is on the server. What a person does here becomes an event {n, member, layer, head, keep, stroke}
 * with a sequence number; the whole list of events that the server has not yet acknowledged is sent each time,
 * and the server applies each number once. Until then the grid shows the server's masks with those events on top,
 * so that no click is lost or taken twice however fast it comes.
 *
 * data: {id, nonce, ack, layers, heads, members: [{name, keep: ["1101", ...]}], scores: [[0..1 or null]] or null,
 *        titles: [[text]] or null, pins: [[layer, head]] that stay kept in all members}
 * An event {n, member, layer, head, pin: true, stroke} pins a head in all members, or frees it.
 */
const pendingByGrid = new Map(); // survives the component's re-mounting on a page change
let nextNumber = Date.now() * 1000; // goes on rising after a browser reload
let nextStroke = 1;

// cividis at eleven stops: readable with every kind of colour blindness, in light and dark.
const SCALE = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [244, 224, 70], [254, 232, 56],
];

function colourOf(value) {
  const place = Math.min(1, Math.max(0, value)) * (SCALE.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, SCALE.length - 1);
  const rgb = SCALE[low].map((start, i) => Math.round(start + (SCALE[high][i] - start) * (place - low)));
  const luminance = (0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]) / 255;
  return { fill: `rgb(${rgb.join(",")})`, ink: luminance > 0.45 ? "#111" : "#fff" };
}

function pendingOf(data) {
  const known = pendingByGrid.get(data.id);
  if (known && known.nonce === data.nonce) return known;
  // Another session or study: events that were meant for the old one must not reach this one.
  const fresh = { nonce: data.nonce, events: [] };
  pendingByGrid.set(data.id, fresh);
  return fresh;
}

class HeadGrid {
  constructor(root) {
    this.root = root;
    this.box = document.createElement("div");
    this.box.className = "members";
    root.appendChild(this.box);
    this.shape = "";
    this.stroke = null;
    this.listen();
  }

  update(data, send) {
    this.data = data;
    this.send = send;
    this.pending = pendingOf(data);
    this.pending.events = this.pending.events.filter((event) => event.n > data.ack);
    const shape = JSON.stringify([data.layers, data.heads, data.members.map((member) => member.name)]);
    if (shape !== this.shape) this.build(shape);
    this.paint();
  }

  build(shape) {
    this.shape = shape;
    this.cells = [];
    const { layers, heads } = this.data;
    const widest = Math.max(...heads);
    this.box.replaceChildren();
    this.box.dataset.size = widest > 12 ? "small" : widest > 8 ? "medium" : "large";
    this.data.members.forEach((member, m) => {
      const panel = document.createElement("section");
      panel.setAttribute("role", "group");
      panel.setAttribute("aria-label", `${member.name}: heads to keep or cut`);
      const title = document.createElement("h4");
      const name = document.createElement("span");
      name.textContent = member.name;
      const count = document.createElement("span");
      count.className = "count";
      count.setAttribute("aria-live", "polite");
      title.append(name, count);
      const table = document.createElement("div");
      table.className = "cells";
      table.style.gridTemplateColumns = `auto repeat(${widest}, var(--cell)) auto`;
      table.append(label("", "corner"));
      for (let h = 0; h < widest; h += 1) table.append(line(h, "column", m, null, h));
      table.append(label("kept", "kept"));
      const rows = [];
      for (let l = 0; l < layers; l += 1) {
        table.append(line(`L${l}`, "row", m, l, null));
        const row = [];
        for (let h = 0; h < widest; h += 1) {
          if (h >= heads[l]) {
            table.append(label("", "none"));
            continue;
          }
          const cell = document.createElement("button");
          cell.type = "button";
          cell.className = "head";
          cell.dataset.place = `${m},${l},${h}`;
          cell.setAttribute("aria-label", `member ${m}, layer ${l}, head ${h}`);
          cell.tabIndex = l === 0 && h === 0 ? 0 : -1;
          table.append(cell);
          row.push(cell);
        }
        const left = label("", "kept");
        table.append(left);
        rows.push({ row, left });
      }
      panel.append(title, table);
      this.box.append(panel);
      this.cells.push({ rows, count });
    });
  }

  /* What the grid shows: the server's masks, then the events it has not seen yet. */
  shown() {
    const masks = this.data.members.map((member) => member.keep.map((row) => [...row].map((c) => c === "1")));
    this.pins = new Set((this.data.pins ?? []).map(([l, h]) => `${l},${h}`));
    for (const event of this.pending.events) {
      if (event.pin) {
        const name = `${event.layer},${event.head}`;
        if (!this.pins.delete(name)) this.pins.add(name);
        continue;
      }
      const row = masks[event.member]?.[event.layer];
      if (row && event.head < row.length) row[event.head] = event.keep;
    }
    for (const name of this.pins) {
      const [l, h] = name.split(",").map(Number);
      for (const mask of masks) if (mask[l] && h < mask[l].length) mask[l][h] = true;
    }
    return masks;
  }

  paint() {
    const masks = this.shown();
    this.masks = masks;
    masks.forEach((mask, m) => {
      let total = 0;
      let all = 0;
      mask.forEach((row, l) => {
        const kept = row.filter(Boolean).length;
        total += kept;
        all += row.length;
        const { row: cells, left } = this.cells[m].rows[l];
        left.textContent = kept === 0 ? "0 !" : String(kept);
        left.classList.toggle("empty", kept === 0);
        left.title = kept === 0 ? `layer ${l} has no head left: its attention adds its output bias only` : "";
        row.forEach((keep, h) => {
          const cell = cells[h];
          cell.setAttribute("aria-pressed", keep ? "true" : "false");
          const value = this.data.scores?.[l]?.[h];
          const colour = value === null || value === undefined ? null : colourOf(value);
          cell.style.setProperty("--fill", colour ? colour.fill : "var(--st-primary-color)");
          cell.style.setProperty("--ink", colour ? colour.ink : "#fff");
          const pinned = this.pins.has(`${l},${h}`);
          cell.classList.toggle("pinned", pinned);
          if (pinned) cell.setAttribute("aria-description", "pinned: kept in all members");
          else cell.removeAttribute("aria-description");
          const title = this.data.titles?.[l]?.[h] ?? `layer ${l}, head ${h}`;
          cell.title = pinned ? `${title}\npinned: kept in all members; Shift and a click, or P, frees it` : title;
        });
      });
      this.cells[m].count.textContent = `${total} of ${all} heads kept`;
    });
  }

  push(place, keep, stroke) {
    const [member, layer, head] = place;
    if (this.masks[member][layer][head] === keep) return;
    if (this.pins.has(`${layer},${head}`)) {
      this.hint(member, `layer ${layer}, head ${head} is pinned (P frees it)`);
      return;
    }
    nextNumber += 1;
    this.pending.events.push({ n: nextNumber, member, layer, head, keep, stroke });
  }

  flush() {
    this.paint();
    this.send({ nonce: this.pending.nonce, events: this.pending.events.slice() });
  }

  set(place, keep, stroke) {
    const before = this.pending.events.length;
    this.push(place, keep, stroke);
    if (this.pending.events.length > before) this.flush();
  }

  /* A whole row or column: cut where all of it is kept, else kept; one stroke, so one step to undo. */
  toggleLine(member, layer, head) {
    const places = [];
    this.masks[member].forEach((row, l) =>
      row.forEach((_, h) => {
        if ((layer === null || l === layer) && (head === null || h === head)) places.push([member, l, h]);
      })
    );
    const keep = !places.every(([m, l, h]) => this.masks[m][l][h]);
    nextStroke += 1;
    const stroke = `${nextNumber}-${nextStroke}`;
    places.forEach((place) => this.push(place, keep, stroke));
    this.flush();
  }

  /* Say for a moment, in the place of the count, why a click changed nothing. */
  hint(member, text) {
    const { count } = this.cells[member];
    count.textContent = text;
    clearTimeout(this.hinting);
    this.hinting = setTimeout(() => this.paint(), 2500);
  }

  /* Keep a head in all members, or free it again. */
  pin([member, layer, head]) {
    nextStroke += 1;
    nextNumber += 1;
    this.pending.events.push({ n: nextNumber, member, layer, head, pin: true, stroke: `${nextNumber}-${nextStroke}` });
    this.flush();
  }

  toggle(place) {
    nextStroke += 1;
    this.set(place, !this.masks[place[0]][place[1]][place[2]], `${nextNumber}-${nextStroke}`);
  }

  listen() {
    const placeOf = (element) => {
      const cell = element?.closest?.("button.head");
      return cell && this.box.contains(cell) ? cell.dataset.place.split(",").map(Number) : null;
    };
    const at = (event) => {
      const from = this.box.getRootNode();
      return placeOf((from.elementFromPoint ? from : document).elementFromPoint(event.clientX, event.clientY));
    };
    let byPointer = false;

    this.box.addEventListener("pointerdown", (event) => {
      const place = placeOf(event.target);
      if (!place || event.button !== 0) return;
      byPointer = true;
      if (event.shiftKey) {
        event.preventDefault(); // no text is selected on the way
        this.pin(place);
        return;
      }
      nextStroke += 1;
      const keep = !this.masks[place[0]][place[1]][place[2]];
      this.stroke = { keep, id: `${nextNumber}-${nextStroke}` };
      this.set(place, keep, this.stroke.id);
      // A finger captures its pointer to the first cell: let it go, so that a drag reaches the others.
      event.target.releasePointerCapture?.(event.pointerId);
    });
    this.box.addEventListener("pointermove", (event) => {
      if (event.buttons === 0) this.stroke = null; // let go outside the grid
      if (!this.stroke) return;
      const place = at(event);
      if (place) this.set(place, this.stroke.keep, this.stroke.id);
    });
    const end = () => {
      this.stroke = null;
    };
    this.box.addEventListener("pointercancel", end);
    this.box.addEventListener("pointerup", end);

    this.box.addEventListener("click", (event) => {
      const whole = event.target.closest?.("button.line");
      if (whole) {
        const [m, l, h] = whole.dataset.line.split(",").map((text) => (text === "" ? null : Number(text)));
        this.toggleLine(m, l, h);
        return;
      }
      // Keyboard, screen reader and script clicks come without a pointerdown of ours.
      const place = placeOf(event.target);
      if (!place) return;
      if (byPointer && event.detail > 0) {
        byPointer = false;
        return;
      }
      byPointer = false;
      this.toggle(place);
    });

    this.box.addEventListener("keydown", (event) => {
      const place = placeOf(event.target);
      if (!place || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "p" || event.key === "P") {
        event.preventDefault();
        this.pin(place);
        return;
      }
      const [m, l, h] = place;
      const { layers, heads } = this.data;
      const steps = {
        ArrowLeft: [l, h - 1], ArrowRight: [l, h + 1], ArrowUp: [l - 1, h], ArrowDown: [l + 1, h],
        Home: [l, 0], End: [l, heads[l] - 1], PageUp: [0, h], PageDown: [layers - 1, h],
      };
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const layer = Math.min(layers - 1, Math.max(0, step[0]));
      const head = Math.min(heads[layer] - 1, Math.max(0, step[1]));
      this.focus(m, layer, head);
    });
    this.box.addEventListener("focusin", (event) => {
      const place = placeOf(event.target);
      if (place) this.rove(...place);
    });
  }

  /* One stop of the Tab key a member; the arrows move inside it. */
  rove(m, l, h) {
    this.cells[m].rows.forEach(({ row }) => row.forEach((cell) => (cell.tabIndex = -1)));
    this.cells[m].rows[l].row[h].tabIndex = 0;
  }

  focus(m, l, h) {
    this.rove(m, l, h);
    this.cells[m].rows[l].row[h].focus();
  }
}

/* The number of a row or column, which is also the button for all of it. */
function line(text, kind, member, layer, head) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = `line ${kind}`;
  element.dataset.line = [member, layer ?? "", head ?? ""].join(",");
  element.textContent = text;
  const what = layer === null ? `head ${head} of every layer` : `all heads of layer ${layer}`;
  element.setAttribute("aria-label", `member ${member}, ${what}`);
  element.title = `Keep or cut ${what}`;
  element.tabIndex = -1; // the arrows lead through the heads; these are for the pointer and for screen readers
  return element;
}

function label(text, kind) {
  const element = document.createElement("span");
  element.className = kind;
  element.textContent = text;
  return element;
}

const grids = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  let grid = grids.get(parentElement);
  if (!grid) {
    grid = new HeadGrid(parentElement);
    grids.set(parentElement, grid);
  }
  grid.update(data, (value) => setStateValue("events", value));
}
