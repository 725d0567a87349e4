"use strict";
// What the page does by itself: tables that sort and filter, a theme, plots drawn when they come into view.
// Without it everything but the plots is there.
(() => {
  const STEP = 200;
  const root = document.documentElement;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const collator = new Intl.Collator("en", { numeric: true });
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // A table's rows: those that stand in it, and behind them those that the page holds as text until somebody asks.
  class Rows {
    constructor(table) {
      this.table = table;
      this.body = table.tBodies[0];
      const next = table.closest(".scroll").nextElementSibling;
      this.rest = next?.tagName === "NOSCRIPT" ? next : null;
      this.most = STEP;
      this.match = () => true;
      this.after = () => {};
      this.order = null;
      this.headings();
      if (this.rest) this.addMore();
    }

    get rows() {
      if (!this.loaded) {
        const held = document.createElement("template");
        // This was escaped when the page was made, as everything else in it.
        held.innerHTML = this.rest?.textContent ?? "";
        this.loaded = [...this.body.rows, ...all("tbody tr", held.content)];
      }
      return this.loaded;
    }

    headings() {
      for (const cell of this.table.tHead.rows[0].cells) {
        const button = document.createElement("button");
        const arrow = document.createElement("span");
        arrow.setAttribute("aria-hidden", "true");
        button.type = "button";
        button.append(...cell.childNodes, arrow);
        if (cell.title) button.title = cell.title;
        cell.removeAttribute("title");
        cell.append(button);
        button.addEventListener("click", () => this.sort(cell));
      }
    }

    addMore() {
      this.more = document.createElement("button");
      this.more.type = "button";
      this.more.textContent = "Show more rows";
      this.more.addEventListener("click", () => { this.most += 5 * STEP; this.show(); });
      const line = document.createElement("p");
      line.className = "more";
      line.append(this.more);
      this.rest.after(line);
    }

    sort(heading) {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const cell of this.table.tHead.rows[0].cells) {
        cell.removeAttribute("aria-sort");
        cell.querySelector("span").textContent = "";
      }
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      heading.querySelector("span").textContent = down ? "▼" : "▲";
      const at = heading.cellIndex;
      const keyed = this.rows.map((row) => [key(row.cells[at]), row]);
      keyed.sort(([one], [other]) => compare(one, other, down ? -1 : 1));
      this.order = keyed.map(([, row]) => row);
      this.show();
    }

    show() {
      const found = (this.order ?? this.rows).filter(this.match);
      this.body.replaceChildren(...found.slice(0, this.most));
      if (this.more) this.more.hidden = found.length <= this.most;
      this.after(Math.min(found.length, this.most), found.length, this.rows.length);
    }
  }

  // By the number behind a cell where it has one, else by its text; what is empty has no place and comes last.
  function key(cell) {
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    return cell.textContent.trim();
  }

  function compare(one, other, sign) {
    if (one === "" || other === "") return (one === "") - (other === "");
    if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
    return sign * (typeof one === "number" ? one - other : collator.compare(one, other));
  }

  function filters(results) {
    const text = document.getElementById("filter");
    const verdict = document.getElementById("verdict");
    const status = document.getElementById("shown");
    const texts = new WeakMap();
    const textOf = (row) => {
      if (!texts.has(row)) texts.set(row, `${row.textContent} ${row.cells[0].title}`.toLowerCase());
      return texts.get(row);
    };
    results.after = (shown, found, of) => {
      status.textContent = found < of
        ? `${shown.toLocaleString("en")} shown, ${found.toLocaleString("en")} of ${of.toLocaleString("en")} match`
        : `${shown.toLocaleString("en")} of ${of.toLocaleString("en")} shown`;
      for (const chip of all(".chip")) {
        if (chip.dataset.verdict === verdict.value) chip.setAttribute("aria-current", "true");
        else chip.removeAttribute("aria-current");
      }
    };
    results.after(results.body.rows.length, Number(results.table.dataset.rows), Number(results.table.dataset.rows));
    const apply = () => {
      const wanted = text.value.trim().toLowerCase();
      results.most = STEP;
      results.match = (row) => (!verdict.value || row.dataset.verdict === verdict.value)
        && (!wanted || textOf(row).includes(wanted));
      results.show();
    };
    text.addEventListener("input", apply);
    verdict.addEventListener("change", apply);
    document.getElementById("clear").addEventListener("click", () => { text.value = verdict.value = ""; apply(); });
    for (const chip of all(".chip")) {
      chip.addEventListener("click", () => { verdict.value = chip.dataset.verdict; apply(); });
    }
  }

  // The page's own colours, as they are now, for what Plotly draws.
  function template() {
    const probe = document.body.appendChild(document.createElement("span"));
    const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
    const axis = { gridcolor: colour("line"), linecolor: colour("control"), tickcolor: colour("control"),
      zerolinecolor: colour("line"), title: { font: { size: 13 } } };
    const text = colour("text");
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", xaxis: axis, yaxis: axis,
      font: { color: text, family: getComputedStyle(document.body).fontFamily, size: 13 },
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("control"), font: { color: text } },
    };
    probe.remove();
    return { layout };
  }

  const CONFIG = { responsive: true, displayModeBar: false };
  const waiting = new Set(all(".canvas"));

  function draw(canvas) {
    if (!waiting.delete(canvas)) return;
    const figure = JSON.parse(document.getElementById(canvas.dataset.figure).textContent);
    Plotly.newPlot(canvas, figure.data, { ...figure.layout, template: template() }, CONFIG);
  }

  function recolour() {
    const now = template();
    for (const canvas of all(".canvas.js-plotly-plot")) Plotly.relayout(canvas, { template: now });
  }

  // One plot a task, so that the page answers in between; the first screen is done when nothing more waits in view.
  function drawInView() {
    const due = [];
    let busy = false;
    const next = () => {
      const canvas = due.shift();
      if (!canvas) { busy = false; performance.mark("plots drawn"); return; }
      draw(canvas);
      performance.mark("first plot");
      setTimeout(next);
    };
    // The first one is what most people scroll to, wherever it stands.
    const [first] = waiting;
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((each) => each.isIntersecting || each.target === first)) {
        watch.unobserve(entry.target);
        due.push(entry.target);
      }
      if (!busy) { busy = true; setTimeout(next); }
    }, { rootMargin: "400px" });
    if (!first) performance.mark("plots drawn");
    for (const canvas of waiting) watch.observe(canvas);
  }

  // The button says the theme that it switches to.
  function tellTheme() {
    const on = root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
    document.getElementById("theme").textContent = on ? "Light theme" : "Dark theme";
    if (window.Plotly) recolour();
  }

  function themes() {
    document.getElementById("theme").addEventListener("click", (event) => {
      root.dataset.theme = event.currentTarget.textContent === "Dark theme" ? "dark" : "light";
      tellTheme();
    });
    dark.addEventListener("change", tellTheme);
    tellTheme();
  }

  const tables = all("table").map((table) => new Rows(table));
  const results = tables.find((rows) => rows.table.id === "results-table");
  filters(results);
  performance.mark("table usable");
  themes();
  document.addEventListener("DOMContentLoaded", drawInView);
  // On paper, plots that nobody scrolled to stand as well.
  addEventListener("beforeprint", () => [...waiting].forEach(draw));
})();
