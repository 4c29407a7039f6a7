"use strict";

// Figures: their data lies beside them as JSON; ink and grid follow the page's colours.
(() => {
  const figures = [...document.querySelectorAll(".figure")].map((box) => {
    const content = JSON.parse(box.querySelector("script").textContent);
    return { box, ...content };
  });
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const themed = (layout) => {
    const [ink, grid, paper] = [colour("--ink"), colour("--grid"), colour("--paper")];
    const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, exponentformat: "none" };
    const dressed = {
      ...layout,
      autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: colour("--font"), size: 12, color: ink },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--quiet"), activecolor: ink },
      hoverlabel: { align: "left", bgcolor: paper, bordercolor: grid, font: { color: ink, size: 12 } },
    };
    const log = document.getElementById("log")?.checked;
    for (const name of Object.keys(layout)) {
      if (!/^[xy]axis/.test(name)) continue;
      dressed[name] = { ...axis, ...layout[name] };
      if (log && layout[name].title?.text.startsWith("busbw")) {
        Object.assign(dressed[name], { type: "log", dtick: 1, range: undefined, autorange: true });
      }
    }
    return dressed;
  };

  const draw = ({ box, data, layout }) =>
    Plotly.react(box, data, themed(layout), {
      responsive: true,
      displaylogo: false,
      // Named one by one, since plotly adds a button that uploads the figure.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      showSendToCloud: false,
      plotlyServerURL: "",
    });

  // One after the other, so that the page can be read and scrolled meanwhile.
  const waiting = [...figures];
  const next = () => {
    if (!waiting.length) return;
    draw(waiting.shift());
    setTimeout(next, 0);
  };
  next();

  const drawAll = () => {
    waiting.length = 0;
    figures.forEach(draw);
  };
  document.getElementById("log")?.addEventListener("change", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light"; // dark ink on white paper
    drawAll();
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.theme;
    drawAll();
  });
})();

// The table: a click on a head sorts, a second one turns it round; what has no value stays last.
(() => {
  const table = document.getElementById("rows");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];

  const keyOf = (cell, numeric) => {
    const text = cell.dataset.key ?? cell.textContent;
    if (!numeric) return text === "–" ? "" : text;
    const number = parseFloat(text);
    return Number.isNaN(number) ? null : number;
  };
  const missing = (key) => key === null || key === "";

  heads.forEach((head, column) => {
    head.firstElementChild.addEventListener("click", () => {
      const numeric = head.classList.contains("num");
      const rising = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const keys = new Map(rows.map((row) => [row, keyOf(row.cells[column], numeric)]));
      const compare = (a, b) => {
        if (missing(a) || missing(b)) return missing(a) - missing(b);
        const order = numeric ? a - b : a < b ? -1 : a > b ? 1 : 0;
        return rising ? order : -order;
      };
      body.append(...rows.sort((a, b) => compare(keys.get(a), keys.get(b))));
    });
  });

  const textOf = (row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
  const texts = new Map(rows.map((row) => [row, textOf(row)]));
  const shown = document.getElementById("shown");
  document.getElementById("filter").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => texts.get(row).includes(word));
      count += !row.hidden;
    }
    shown.textContent = words.length ? `${count} of ${rows.length} rows` : `${rows.length} rows`;
  });
  document.getElementById("unfold")?.addEventListener("change", (event) => {
    table.classList.toggle("unfolded", event.target.checked);
  });
})();
