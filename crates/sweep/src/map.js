// Draws the map of a sweep from the numbers in the page: see map.rs.
"use strict";
{
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const form = document.getElementById("map-choice"), panels = document.getElementById("map-panels");
  const { axes, measures, policies, streams, rows } = data;
  const names = axes[policies].values;
  const several = axes.map((axis, at) => at).filter(at => at !== policies && axes[at].values.length > 1);
  const colour = policy => `var(--s${policy % 12})`;
  const short = value => value === undefined ? "" : value >= 1000 ? value.toPrecision(4) : value.toFixed(value < 10 ? 3 : 1);
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
  const listed = measures.map((measure, at) => [at, measure.label]);
  const shown = choice("show", "show", listed), against = choice("against", "against", listed);
  against.value = 1;
  const orders = several.filter(at => at !== streams);
  const over = orders.length ? choice("over", "over", orders.map(at => [at, axes[at].name])) : null;
  if (over && data.over !== null) over.value = data.over;
  // The address keeps what was chosen, so that a view can be passed on.
  for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
    if (form.elements[name] && [...form.elements[name].options].some(option => option.value === value)) form.elements[name].value = value;

  // The mean of a measure over the rows that fit `fixed`, an object of axis: value; undefined if there is none. `told` is its text,
  // with a ? if it is not sure and its number of rows.
  const found = (measure, fixed) => {
    const { ratio } = measures[measure], wanted = Object.entries(fixed);
    let sum = 0, number = 0, sure = true;
    for (const row of rows) {
      const value = row[axes.length + 1 + measure];
      if (value === null || ratio && value <= 0 || wanted.some(([at, want]) => row[at] !== want)) continue;
      sum += ratio ? Math.log(value) : value;
      number++;
      sure &&= row[axes.length] === 1;
    }
    const value = number ? (ratio ? Math.exp(sum / number) : sum / number) : undefined;
    return { value, number, told: number ? short(value) + (sure ? "" : " ?") : "" };
  };
  const mean = (measure, fixed) => found(measure, fixed).value;
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
  const through = measure => measures[measure].ratio ? [1] : [];
  const panel = (title, height) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    const root = svg("svg", { viewBox: `0 0 860 ${height}`, role: "img", "aria-label": title });
    caption.textContent = title;
    figure.append(caption, root);
    panels.append(figure);
    return root;
  };

  // A row for each policy: its mean as a bar, each stream as a dot.
  const bars = (measure, base) => {
    const all = names.map((_, policy) => found(measure, { ...base, [policies]: policy }));
    const means = all.map(of => of.value), most = Math.max(...all.map(of => of.number));
    const told = policy => all[policy].told + (all[policy].number < most ? ` (${all[policy].number} of ${most})` : "");
    const order = names.map((_, policy) => policy).filter(policy => means[policy] !== undefined);
    order.sort((a, b) => (means[b] - means[a]) * (measures[measure].more ? 1 : -1));
    const dots = chosen[streams] && chosen[streams].value === "" ? axes[streams].values.map((_, stream) => stream) : [];
    const of = order.map(policy => dots.map(stream => mean(measure, { ...base, [policies]: policy, [streams]: stream })));
    const x = scale(of.flat().concat(order.map(policy => means[policy])), 270, 740, through(measure));
    const root = panel(`${measures[measure].label}: each policy, ${dots.length ? "its mean and each program" : "its mean"}`, 24 * order.length + 40);
    for (const tick of x.ticks) {
      root.append(svg("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: 6, y2: 24 * order.length + 6 }));
      root.append(svg("text", { class: "number", x: x.at(tick), y: 24 * order.length + 24, "text-anchor": "middle" }, tick));
    }
    const zero = x.at(measures[measure].ratio ? 1 : 0);
    order.forEach((policy, line) => {
      const y = 24 * line + 18, to = x.at(means[policy]), node = group(policy, `${names[policy]}: ${told(policy)}`);
      node.append(svg("text", { x: 262, y: y + 4, "text-anchor": "end" }, names[policy]));
      node.append(svg("rect", { class: "mean", x: Math.min(zero, to), y: y - 7, width: Math.max(Math.abs(to - zero), 1), height: 14 }));
      dots.forEach((stream, place) => {
        if (of[line][place] === undefined) return;
        const dot = svg("circle", { class: "dot", cx: x.at(of[line][place]), cy: y, r: 3 });
        dot.append(svg("title", {}, `${names[policy]}, ${axes[streams].values[stream]}: ${short(of[line][place])}`));
        node.append(dot);
      });
      node.append(svg("text", { class: "value", x: 852, y: y + 4, "text-anchor": "end" }, told(policy)));
      root.append(node);
    });
    root.append(svg("line", { class: "baseline", x1: zero, x2: zero, y1: 6, y2: 24 * order.length + 6 }));
  };

  // A point for each policy, and the line of those that no other beats in both.
  const scatter = (x_of, y_of, xs, ys) => {
    const all = names.map((_, policy) => policy).filter(policy => xs[policy] !== undefined && ys[policy] !== undefined);
    const x = scale(all.map(policy => xs[policy]), 70, 700, through(x_of)), y = scale(all.map(policy => ys[policy]), 400, 20, through(y_of));
    const root = panel(`${measures[y_of].label} against ${measures[x_of].label}`, 450);
    for (const tick of x.ticks) {
      root.append(svg("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: 20, y2: 400 }));
      root.append(svg("text", { class: "number", x: x.at(tick), y: 418, "text-anchor": "middle" }, tick));
    }
    for (const tick of y.ticks) {
      root.append(svg("line", { class: "grid", x1: 70, x2: 700, y1: y.at(tick), y2: y.at(tick) }));
      root.append(svg("text", { class: "number", x: 62, y: y.at(tick) + 4, "text-anchor": "end" }, tick));
    }
    root.append(svg("text", { class: "number", x: 385, y: 440, "text-anchor": "middle" }, measures[x_of].label));
    const sign = measure => measures[measure].more ? -1 : 1;
    const worse = (a, b) => [[xs, x_of], [ys, y_of]].every(([values, of]) => sign(of) * values[b] <= sign(of) * values[a])
      && [[xs, x_of], [ys, y_of]].some(([values, of]) => values[b] !== values[a]);
    const front = all.filter(policy => !all.some(other => worse(policy, other))).sort((a, b) => xs[a] - xs[b]);
    root.append(svg("polyline", { class: "front", points: front.map(policy => `${x.at(xs[policy])},${y.at(ys[policy])}`).join(" ") }));
    // Names move down until they do not stand on another.
    let last = -Infinity;
    for (const policy of [...all].sort((a, b) => y.at(ys[a]) - y.at(ys[b]))) {
      const node = group(policy, `${names[policy]}: ${short(ys[policy])} at ${short(xs[policy])}${front.includes(policy) ? ", on the front" : ""}`);
      const at = [x.at(xs[policy]), y.at(ys[policy])], label = last = Math.max(last + 13, at[1] + 4);
      node.append(svg("line", { class: "leader", x1: at[0], y1: at[1], x2: 706, y2: label - 4 }));
      node.append(svg("circle", { class: "point", cx: at[0], cy: at[1], r: front.includes(policy) ? 6 : 4.5 }));
      node.append(svg("text", { class: front.includes(policy) ? "label strong" : "label", x: 710, y: label }, names[policy]));
      root.append(node);
    }
  };

  // A line for each policy over the values of an axis, such as the age of memory.
  const lines = (measure, axis) => {
    const { values } = axes[axis], base = fixed(axis);
    const of = names.map((_, policy) => values.map((_, value) => mean(measure, { ...base, [policies]: policy, [axis]: value })));
    const y = scale(of.flat(), 300, 20, through(measure)), at = value => 110 + value * 560 / Math.max(values.length - 1, 1);
    const root = panel(`${measures[measure].label} over ${axes[axis].name}`, 340);
    for (const tick of y.ticks) {
      root.append(svg("line", { class: "grid", x1: 70, x2: 700, y1: y.at(tick), y2: y.at(tick) }));
      root.append(svg("text", { class: "number", x: 62, y: y.at(tick) + 4, "text-anchor": "end" }, tick));
    }
    values.forEach((name, value) => root.append(svg("text", { x: at(value), y: 324, "text-anchor": "middle" }, name)));
    names.forEach((name, policy) => {
      const there = values.map((_, value) => value).filter(value => of[policy][value] !== undefined);
      if (!there.length) return;
      const node = group(policy, `${name}: ${there.map(value => `${values[value]} ${short(of[policy][value])}`).join(", ")}`);
      node.append(svg("polyline", { class: "track", points: there.map(value => `${at(value)},${y.at(of[policy][value])}`).join(" ") }));
      for (const value of there) node.append(svg("circle", { class: "point", cx: at(value), cy: y.at(of[policy][value]), r: 3.5 }));
      const end = there[there.length - 1];
      node.append(svg("text", { class: "hover", x: at(end) + 10, y: y.at(of[policy][end]) + 4 }, `${name} ${short(of[policy][end])}`));
      root.append(node);
    });
  };

  function draw() {
    panels.replaceChildren();
    const [show, beside] = [+shown.value, +against.value], base = fixed(null);
    const means = measure => names.map((_, policy) => mean(measure, { ...base, [policies]: policy }));
    bars(show, base);
    if (show !== beside) scatter(beside, show, means(beside), means(show));
    if (over) lines(show, +over.value);
    light(kept);
    const view = [...form.elements].filter(select => select.value !== "").map(select => [select.name, select.value]);
    history.replaceState(null, "", "#" + new URLSearchParams(view));
  }
  draw();
}
