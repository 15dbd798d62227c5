"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add("js");

  // Legends: a key switches its series off and on in every chart and table.
  const hidden = new Set();
  const apply = () => {
    for (const node of all("[data-s]")) {
      const off = hidden.has(node.dataset.s);
      if (node.matches("button")) node.setAttribute("aria-pressed", String(!off));
      else node.classList.toggle("off", off);
    }
  };
  for (const button of all("button.key")) {
    const series = button.dataset.s;
    button.addEventListener("click", () => {
      if (!hidden.delete(series)) hidden.add(series);
      light(null);
      apply();
    });
    for (const [name, on] of [["pointerenter", 1], ["pointerleave", 0], ["focus", 1], ["blur", 0]])
      button.addEventListener(name, () => light(on && !hidden.has(series) ? series : null));
  }
  for (const button of all("button[data-all]"))
    button.addEventListener("click", () => {
      hidden.clear();
      if (button.dataset.all === "off") for (const b of all("button.key")) hidden.add(b.dataset.s);
      apply();
    });
  for (const button of all("button.singles"))
    button.addEventListener("click", () => {
      const on = document.body.classList.toggle("show-seeds");
      for (const b of all("button.singles")) b.setAttribute("aria-pressed", String(on));
    });
  function light(series) {
    document.body.classList.toggle("lighting", series !== null);
    for (const node of all(".lit")) node.classList.remove("lit");
    if (series !== null) for (const node of all(`[data-s="${series}"]`)) node.classList.add("lit");
  }

  // Tables: a click on a heading sorts each group of rows by that column.
  for (const table of all("table.sortable")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) =>
      head.querySelector("button").addEventListener("click", () => {
        const text = head.classList.contains("left");
        const before = head.getAttribute("aria-sort");
        const up = before ? before === "descending" : text;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
        for (const body of table.tBodies) {
          const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
          rows.sort((a, b) => {
            const [x, y] = [value(a), value(b)];
            if (x === "" || y === "") return (x === "") - (y === "");
            return (up ? 1 : -1) * (text ? x.localeCompare(y) : x - y);
          });
          body.append(...rows);
        }
      }),
    );
  }

  // Curves: the values of the nearest evaluated round, by pointer or by the arrow keys.
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.hidden = true;
  const figure = (value) => value.toFixed(Math.abs(value) < 10 ? 3 : 1);
  const leave = (chart) => {
    tip.hidden = true;
    chart.classList.remove("crossed");
  };
  function show(chart, index) {
    const { rounds, series } = data[chart.dataset.chart];
    const { left, right, last } = chart.dataset;
    const round = rounds[index];
    const lines = Object.entries(series)
      .filter(([key, line]) => line.at[index] && !hidden.has(key))
      .sort(([, a], [, b]) => b.at[index][0] - a.at[index][0]);
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: `round ${round}` }));
    for (const [key, line] of lines) {
      const row = tip.appendChild(document.createElement("div"));
      row.className = key;
      const [mean, deviation] = line.at[index];
      const value = figure(mean) + (deviation === undefined ? "" : ` ± ${figure(deviation)}`);
      for (const content of ["", line.label, value]) row.appendChild(document.createElement("span")).textContent = content;
    }
    const x = +left + ((right - left) * round) / last;
    chart.querySelector(".cross").setAttribute("transform", `translate(${x})`);
    chart.classList.add("crossed");
    tip.hidden = false;
    const box = chart.getBoundingClientRect();
    const at = box.left + (x / chart.viewBox.baseVal.width) * box.width;
    const fits = at + 16 + tip.offsetWidth < document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, fits ? at + 14 : at - 14 - tip.offsetWidth) + scrollX}px`;
    tip.style.top = `${Math.max(box.top + 8, 8) + scrollY}px`;
  }
  for (const chart of all("svg.lines")) {
    const { rounds } = data[chart.dataset.chart];
    if (!rounds.length) continue;
    let index = rounds.length - 1;
    const { left, right, last } = chart.dataset;
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      const wanted = ((x - left) / (right - left)) * last;
      index = rounds.reduce((best, round, i) => (Math.abs(round - wanted) < Math.abs(rounds[best] - wanted) ? i : best), 0);
      show(chart, index);
    });
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") leave(chart);
      if (!step) return;
      event.preventDefault();
      index = Math.min(Math.max(index + step, 0), rounds.length - 1);
      show(chart, index);
    });
    for (const name of ["pointerleave", "blur"]) chart.addEventListener(name, () => leave(chart));
  }
})();
