// Draws the map of a sweep from the numbers in the page: see map.rs.
"use strict";
{
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const form = document.getElementById("map-choice"), panels = document.getElementById("map-panels");
  const { axes, quantities, policies, streams, rows } = data;
  const names = axes[policies].values;
  const several = axes.map((axis, at) => at).filter(at => at !== policies && axes[at].values.length > 1);
  const colour = policy => `var(--s${policy % 12})`;
  const short = value => value === undefined ? "" : value.toFixed(value < 10 ? 3 : value < 1000 ? 1 : 0);
  const cut = (name, most) => name.length > most ? name.slice(0, most - 1) + "…" : name;
  let kept = null;

  // What is chosen: a value of an axis, or "" for the mean over all of them.
  const choice = (key, label, options) => {
    const select = document.createElement("select");
    select.name = key;
    for (const [value, text] of options) select.add(new Option(text, value));
    const all = document.createElement("label");
    all.append(label + " ", select);
    form.append(all);
    select.onchange = draw;
    return select;
  };
  const chosen = {};
  for (const at of several)
    chosen[at] = choice(axes[at].name, axes[at].name, [["", "mean of all"], ...axes[at].values.map((name, value) => [value, name])]);
  const listed = quantities.map((quantity, at) => [at, quantity.label]);
  const shown = choice("show", "show", listed), against = choice("against", "against", listed);
  against.value = 1;
  const orders = several.filter(at => at !== streams);
  const over = orders.length ? choice("over", "over", orders.map(at => [at, axes[at].name])) : null;
  if (over && data.over !== null) over.value = data.over;
  // The address keeps what was chosen, so that a view can be passed on.
  const restore = () => {
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      const select = form.elements[name];
      if (select && [...select.options].some(option => option.value === value)) select.value = value;
    }
  };
  restore();
  window.onhashchange = () => { restore(); draw(); };

  // The means of quantities over the rows that fit `fixed`, an object of axis: value, and have all of them. `sure`: of none of these
  // rows the kernel's part is unknown.
  const found = (of, fixed) => {
    const wanted = Object.entries(fixed), sums = of.map(() => 0);
    let number = 0, sure = true;
    for (const row of rows) {
      const values = of.map(quantity => row[axes.length + 1 + quantity]);
      if (values.some((value, at) => value === null || quantities[of[at]].ratio && value <= 0)) continue;
      if (wanted.some(([at, want]) => row[at] !== want)) continue;
      values.forEach((value, at) => { sums[at] += quantities[of[at]].ratio ? Math.log(value) : value; });
      number++;
      sure &&= row[axes.length] === 1;
    }
    const means = of.map((quantity, at) => number ? (quantities[quantity].ratio ? Math.exp(sums[at] / number) : sums[at] / number) : undefined);
    return { means, number, sure };
  };
  // The same of each policy. What one has run in part only is told so, and is not compared with what others have run.
  const of_policies = (of, fixed) => {
    const all = names.map((_, policy) => found(of, { ...fixed, [policies]: policy }));
    const most = Math.max(...all.map(one => one.number));
    for (const one of all) {
      one.whole = one.number === most;
      one.mark = (one.sure ? "" : " ?") + (one.whole || !one.number ? "" : ` (${one.number} of ${most})`);
    }
    return all;
  };
  const fixed = except => {
    const all = {};
    for (const at of several) if (at !== except && chosen[at].value !== "") all[at] = +chosen[at].value;
    return all;
  };

  const svg = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  // A group of a policy: lit when it is pointed at anywhere.
  const group = (policy, title) => {
    const node = svg("g", { class: "policy", "data-policy": policy, style: `color:${colour(policy)}` });
    node.append(svg("title", {}, title));
    node.onmouseenter = () => light(policy);
    node.onmouseleave = () => light(kept);
    node.onclick = () => { kept = kept === policy ? null : policy; light(kept); };
    return node;
  };
  const light = policy => {
    panels.classList.toggle("lit", policy !== null);
    for (const node of panels.querySelectorAll(".policy")) node.classList.toggle("on", +node.dataset.policy === policy);
  };
  const scale = (values, from, to, through) => {
    const all = values.filter(value => value !== undefined).concat(through);
    let least = Math.min(...all), most = Math.max(...all);
    if (least === most) [least, most] = [least - 1, most + 1];
    const margin = (most - least) * .05, [low, high] = [least - margin, most + margin];
    const step = 10 ** Math.floor(Math.log10((high - low) / 4)), width = [1, 2, 5, 10].map(by => by * step).find(by => (high - low) / by <= 7);
    const ticks = [];
    for (let tick = Math.ceil(low / width) * width; tick <= high; tick += width) ticks.push(+tick.toPrecision(10));
    return { at: value => from + (value - low) / (high - low) * (to - from), ticks };
  };
  const through = quantity => quantities[quantity].ratio ? [1] : [];
  const panel = (title, height) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    const root = svg("svg", { viewBox: `0 0 860 ${height}`, role: "img", "aria-label": title });
    caption.textContent = title;
    figure.append(caption, root);
    panels.append(figure);
    return root;
  };

  const nothing = (title, why) => {
    const root = panel(title, 60);
    root.append(svg("text", { x: 430, y: 36, "text-anchor": "middle" }, why));
  };
  const NONE = "No row has this value here: it is over 0, or its kind never came.";

  // A row for each policy: its mean as a bar, each stream as a dot.
  const bars = (quantity, base) => {
    const all = of_policies([quantity], base), means = all.map(one => one.means[0]);
    const told = policy => short(means[policy]) + all[policy].mark;
    const order = names.map((_, policy) => policy).filter(policy => means[policy] !== undefined);
    if (!order.length) return nothing(quantities[quantity].label, NONE);
    order.sort((a, b) => all[b].whole - all[a].whole || (means[b] - means[a]) * (quantities[quantity].more ? 1 : -1));
    const dots = chosen[streams] && chosen[streams].value === "" ? axes[streams].values.map((_, stream) => stream) : [];
    const of = order.map(policy => dots.map(stream => found([quantity], { ...base, [policies]: policy, [streams]: stream })));
    const x = scale(of.flat().map(one => one.means[0]).concat(order.map(policy => means[policy])), 270, 740, through(quantity));
    const root = panel(`${quantities[quantity].label}: each policy, ${dots.length ? "its mean and each program" : "its mean"}`, 24 * order.length + 40);
    for (const tick of x.ticks) {
      root.append(svg("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: 6, y2: 24 * order.length + 6 }));
      root.append(svg("text", { class: "number", x: x.at(tick), y: 24 * order.length + 24, "text-anchor": "middle" }, tick));
    }
    const zero = x.at(quantities[quantity].ratio ? 1 : 0);
    order.forEach((policy, line) => {
      const y = 24 * line + 18, to = x.at(means[policy]), node = group(policy, `${names[policy]}: ${told(policy)}`);
      node.append(svg("text", { x: 262, y: y + 4, "text-anchor": "end" }, cut(names[policy], 36)));
      node.append(svg("rect", { class: "mean", x: Math.min(zero, to), y: y - 7, width: Math.max(Math.abs(to - zero), 1), height: 14 }));
      dots.forEach((stream, place) => {
        const { means: [value], sure } = of[line][place];
        if (value === undefined) return;
        const dot = svg("circle", { class: "dot", cx: x.at(value), cy: y, r: 3 });
        dot.append(svg("title", {}, `${names[policy]}, ${axes[streams].values[stream]}: ${short(value)}${sure ? "" : " ?"}`));
        node.append(dot);
      });
      node.append(svg("text", { class: "value", x: 852, y: y + 4, "text-anchor": "end" }, told(policy)));
      root.append(node);
    });
    root.append(svg("line", { class: "baseline", x1: zero, x2: zero, y1: 6, y2: 24 * order.length + 6 }));
  };

  // A point for each policy, and the line of those that no other beats in both.
  const scatter = (x_of, y_of, base) => {
    const title = `${quantities[y_of].label} against ${quantities[x_of].label}`;
    if (x_of === y_of) return nothing(title, "Choose another quantity to show it against.");
    const found = of_policies([x_of, y_of], base), xs = found.map(one => one.means[0]), ys = found.map(one => one.means[1]);
    const all = names.map((_, policy) => policy).filter(policy => found[policy].number);
    if (!all.length) return nothing(title, NONE);
    const bottom = Math.max(400, 13 * all.length + 30);
    const x = scale(all.map(policy => xs[policy]), 70, 640, through(x_of)), y = scale(all.map(policy => ys[policy]), bottom, 20, through(y_of));
    const root = panel(title, bottom + 50);
    for (const tick of x.ticks) {
      root.append(svg("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: 20, y2: bottom }));
      root.append(svg("text", { class: "number", x: x.at(tick), y: bottom + 18, "text-anchor": "middle" }, tick));
    }
    for (const tick of y.ticks) {
      root.append(svg("line", { class: "grid", x1: 70, x2: 640, y1: y.at(tick), y2: y.at(tick) }));
      root.append(svg("text", { class: "number", x: 62, y: y.at(tick) + 4, "text-anchor": "end" }, tick));
    }
    root.append(svg("text", { class: "number", x: 355, y: bottom + 40, "text-anchor": "middle" }, quantities[x_of].label));
    const sign = quantity => quantities[quantity].more ? -1 : 1;
    const both = [[xs, x_of], [ys, y_of]];
    const worse = (a, b) => both.every(([values, of]) => sign(of) * values[b] <= sign(of) * values[a]) && both.some(([values]) => values[b] !== values[a]);
    const whole = all.filter(policy => found[policy].whole);
    const front = whole.filter(policy => !whole.some(other => worse(policy, other))).sort((a, b) => xs[a] - xs[b]);
    root.append(svg("polyline", { class: "front", points: front.map(policy => `${x.at(xs[policy])},${y.at(ys[policy])}`).join(" ") }));
    // Names move down until they do not stand on another, and then up into the figure.
    const order = [...all].sort((a, b) => y.at(ys[a]) - y.at(ys[b])), places = [];
    order.forEach((policy, line) => { places[line] = Math.max((line ? places[line - 1] : -Infinity) + 13, y.at(ys[policy]) + 4); });
    for (let line = order.length - 1; line >= 0; line--)
      places[line] = Math.min(places[line], line + 1 < order.length ? places[line + 1] - 13 : bottom + 4);
    order.forEach((policy, line) => {
      const best = front.includes(policy), at = [x.at(xs[policy]), y.at(ys[policy])];
      const node = group(policy, `${names[policy]}: ${short(ys[policy])} at ${short(xs[policy])}${found[policy].mark}${best ? ", on the front" : ""}`);
      node.append(svg("line", { class: "leader", x1: at[0], y1: at[1], x2: 646, y2: places[line] - 4 }));
      node.append(svg("circle", { class: "point", cx: at[0], cy: at[1], r: best ? 6 : 4.5 }));
      node.append(svg("text", { class: best ? "label strong" : "label", x: 650, y: places[line] }, cut(names[policy], 32) + found[policy].mark));
      root.append(node);
    });
  };

  // A line for each policy over the values of an axis, such as the age of memory.
  const lines = (quantity, axis) => {
    const { values } = axes[axis], base = fixed(axis);
    const of_value = values.map((_, value) => of_policies([quantity], { ...base, [axis]: value }));
    const of = names.map((_, policy) => of_value.map(all => all[policy].means[0]));
    const told = (policy, value) => short(of[policy][value]) + of_value[value][policy].mark;
    if (of.flat().every(value => value === undefined)) return nothing(`${quantities[quantity].label} over ${axes[axis].name}`, NONE);
    const y = scale(of.flat(), 300, 20, through(quantity)), at = value => 110 + value * 560 / Math.max(values.length - 1, 1);
    const root = panel(`${quantities[quantity].label} over ${axes[axis].name}`, 340);
    for (const tick of y.ticks) {
      root.append(svg("line", { class: "grid", x1: 70, x2: 700, y1: y.at(tick), y2: y.at(tick) }));
      root.append(svg("text", { class: "number", x: 62, y: y.at(tick) + 4, "text-anchor": "end" }, tick));
    }
    values.forEach((name, value) => root.append(svg("text", { x: at(value), y: 324, "text-anchor": "middle" }, name)));
    names.forEach((name, policy) => {
      const there = values.map((_, value) => value).filter(value => of[policy][value] !== undefined);
      if (!there.length) return;
      const node = group(policy, `${name}: ${there.map(value => `${values[value]} ${told(policy, value)}`).join(", ")}`);
      node.append(svg("polyline", { class: "track", points: there.map(value => `${at(value)},${y.at(of[policy][value])}`).join(" ") }));
      for (const value of there) node.append(svg("circle", { class: "point", cx: at(value), cy: y.at(of[policy][value]), r: 3.5 }));
      const end = there[there.length - 1];
      node.append(svg("text", { class: "hover", x: at(end) + 10, y: y.at(of[policy][end]) + 4 }, `${cut(name, 24)} ${told(policy, end)}`));
      root.append(node);
    });
  };

  function draw() {
    panels.replaceChildren();
    const show = +shown.value, base = fixed(null);
    bars(show, base);
    scatter(+against.value, show, base);
    if (over) lines(show, +over.value);
    light(kept);
    const view = [...form.elements].filter(select => select.value !== "").map(select => [select.name, select.value]);
    history.replaceState(null, "", "#" + new URLSearchParams(view));
  }
  draw();
}
