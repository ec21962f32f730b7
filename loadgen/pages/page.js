"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);

const made = {};
function rowsOf(name) {
  if (!made[name]) {
    const columns = page.data[name], keys = Object.keys(columns);
    made[name] = (columns[keys[0]] || []).map((_, i) => Object.fromEntries(keys.map(key => [key, columns[key][i]])));
  }
  return made[name];
}

async function draw(picture) {
  const figure = document.getElementById("picture-" + picture.name), chart = figure.querySelector(".chart");
  const spec = {...picture.spec, config: page.config, width: "container",
    autosize: {type: "fit-x", contains: "padding"},
    datasets: Object.fromEntries(picture.data.map(name => [name, rowsOf(name)]))};
  const place = chart.appendChild(document.createElement("div")); // it is given another role
  const drawn = await vegaEmbed(place, spec, {actions: false, renderer: "svg", ast: true});
  const hidden = new Set();
  for (const button of figure.querySelectorAll("button[aria-pressed]"))
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      shown ? hidden.add(button.value) : hidden.delete(button.value);
      drawn.view.signal("hidden", [...hidden]).runAsync();
    });
  figure.querySelector(".save").addEventListener("click", () => save(picture.name, chart.querySelector("svg")));
  figure.dataset.drawn = "yes";
}

// A saved picture stands alone: its colours are those of the page as it is seen.
function save(name, svg) {
  const colours = getComputedStyle(document.documentElement), copy = svg.cloneNode(true);
  copy.setAttribute("style", `background: ${colours.getPropertyValue("--paper")}`);
  const text = new XMLSerializer().serializeToString(copy)
    .replace(/var\((--[a-z0-9]+)\)/g, (_, ink) => colours.getPropertyValue(ink).trim());
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "image/svg+xml"}));
  link.download = name + ".svg";
  link.click();
  URL.revokeObjectURL(link.href);
}

(async () => {
  for (const picture of page.pictures) {
    await draw(picture);
    await new Promise(next => setTimeout(next));
  }
  document.documentElement.dataset.drawn = "yes";
})();

let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach(each => { each.open = true; });
});
addEventListener("afterprint", () => opened.forEach(each => { each.open = false; }));
