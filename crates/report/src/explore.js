// Draws the rows of each `section.explore` of a page, from the numbers in it: see explore.rs.
"use strict";
for (const section of document.querySelectorAll("section.explore")) {
  const data = JSON.parse(section.querySelector("script[type='application/json']").textContent);
  const form = section.querySelector("form"),
    panels = section.querySelector(".panels");
  const { dims, measures, rows } = data;
  const values = dims.length + 1,
    intervals = values + measures.length;
  const several = dims.map((dim, at) => at).filter(at => dims[at].values.length > 1);
  const numbered = several.filter(at => dims[at].numbers);

  // --- what can be chosen ---
  const control = (key, label, node) => {
    const all = document.createElement("label");
    node.name = key;
    all.append(label + " ", node);
    form.append(all);
    node.onchange = () => {
      keep();
      draw();
    };
    return node;
  };
  const choice = (key, label, options, chosen) => {
    const select = document.createElement("select");
    for (const [value, text] of options) select.add(new Option(text, value, value === chosen, value === chosen));
    return control(key, label, select);
  };
  const tick = (key, label) => {
    const box = document.createElement("input");
    box.type = "checkbox";
    return control(key, label, box);
  };
  const listed = measures.map((measure, at) => [at, measure.label]),
    named = several.map(at => [at, dims[at].name]);
  const views = [
    ["each", "each " + dims[data.colour].name],
    ["against", "one against another"],
  ];
  if (several.length > 1 || numbered.length) views.push(["over", "over an axis"]);
  if (several.length > 1) views.push(["heat", "two axes"]);
  const view = choice("view", "view", views);
  const show = choice("show", "show", listed, data.show);
  const against = choice("against", "against", listed, data.against);
  const over = choice("over", "over", named, data.over ?? numbered[0] ?? several.find(at => at !== data.colour));
  const colour = choice("by", "by", named, data.colour);
  const facet = choice("panels", "panels", [["", "one"], ...named]);
  const log_x = tick("logx", "log x"),
    log_y = tick("logy", "log y");
  const filters = new Map(
    several.map(at => [
      at,
      choice(
        "only-" + dims[at].name,
        dims[at].name,
        [["", "all"], ...dims[at].values.map((name, value) => [value, name])],
        data.only?.[0] === at ? data.only[1] : "",
      ),
    ]),
  );
  // The address keeps all choices once one was made, so that a view can be passed on. What it does
  // not name is as at first. Other fragments are places of the page.
  const restore = () => {
    const choices = [...new URLSearchParams(location.hash.slice(1))]
      .map(([name, value]) => [form.elements.namedItem(name), value])
      .filter(([node]) => node);
    if (choices.length) form.reset();
    for (const [node, value] of choices) {
      if (node.type === "checkbox") node.checked = value === "on";
      else if ([...node.options].some(option => option.value === value)) node.value = value;
    }
  };
  const keep = () => {
    const all = [...form.elements]
      .filter(node => node.name)
      .map(node => [node.name, node.type !== "checkbox" ? node.value : node.checked ? "on" : "off"]);
    history.replaceState(null, "", "#" + new URLSearchParams(all));
  };

  // --- means ---
  const short = value =>
    value === 0
      ? "0"
      : Math.abs(value) >= 1000 || Math.abs(value) < 0.001
        ? value.toPrecision(3)
        : String(+value.toPrecision(4));
  const written = (measure, value) => short(value) + (measures[measure].unit ?? "");
  const passes = row => [...filters].every(([at, select]) => select.value === "" || row[at] === +select.value);
  // Groups of the rows that pass, by the values of some dims: each with the means of some measures
  // over the rows that have all of them.
  // Ratios have geometric means. A group of one row has its interval.
  const means = (by, of) => {
    const groups = new Map();
    for (const row of rows) {
      if (!passes(row)) continue;
      const some = of.map(measure => row[values + measure]);
      if (some.some((value, at) => value === null || (measures[of[at]].ratio && value <= 0))) continue;
      const key = by.map(dim => row[dim]).join();
      let group = groups.get(key);
      if (!group) {
        group = { of: by.map(dim => row[dim]), sums: of.map(() => 0), count: 0, complete: true, row };
        groups.set(key, group);
      }
      some.forEach((value, at) => {
        group.sums[at] += measures[of[at]].ratio ? Math.log(value) : value;
      });
      group.count++;
      group.complete &&= row[dims.length] === 1;
    }
    for (const group of groups.values()) {
      group.means = group.sums.map((sum, at) =>
        measures[of[at]].ratio ? Math.exp(sum / group.count) : sum / group.count,
      );
      group.intervals = of.map(measure => (group.count === 1 ? group.row[intervals + measure] : null));
    }
    // Incomplete means are marked and excluded from the front.
    const most = d3.max(groups.values(), group => group.count);
    for (const group of groups.values()) group.part = group.count < most ? ` (${group.count} of ${most})` : "";
    return [...groups.values()];
  };
  const mark = group => (group.complete ? "" : " ?") + group.part;
  const names = (by, group) => by.map((dim, at) => `${dims[dim].name}: ${dims[dim].values[group.of[at]]}`);
  const says = (by, of, group) =>
    [
      ...names(by, group),
      ...of.map(
        (measure, at) =>
          `${measures[measure].label}: ${written(measure, group.means[at])}` +
          (group.intervals[at] ? ` (${group.intervals[at].map(end => written(measure, end)).join(" to ")})` : ""),
      ),
      ...(group.count > 1 ? [`mean of ${group.count} rows`] : []),
      ...(group.part ? [`${group.part.trim()}: the others ended early, or have no such value`] : []),
      ...(group.complete ? [] : ["?: the kernel's part is not known"]),
    ].join("\n");
  const ends = (group, at) => group.intervals[at] ?? [group.means[at], group.means[at]];

  // --- pictures ---
  const style = getComputedStyle(panels);
  const range = [...Array(12).keys()].map(at => `var(--s${at})`);
  const usual = extra => ({
    width: Math.max(280, Math.min(panels.clientWidth - 26, 1100)),
    marginBottom: 44,
    style: { background: "none", fontSize: "12.5px" },
    ...extra,
  });
  const scale = (measure, log, positive) => ({
    label: measures[measure].label,
    labelOffset: 40,
    grid: true,
    nice: true,
    ...(log && positive ? { type: "log" } : {}),
    // As many digits as neighbours differ by.
    tickFormat: value => (Math.abs(value) >= 1000 ? d3.format("~s")(value) : String(+value.toPrecision(6))),
  });
  const positive = (groups, at) => groups.every(group => ends(group, at)[0] > 0);
  const baseline = measure => (measures[measure].ratio ? [1] : []);
  const names_at_side = panel =>
    Math.min(usual().width / 3, 20 + 7 * d3.max(dims[panel].values, name => name.length));
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

  // For each value of a dim its mean as a bar, and a dot for each group that it is a mean of, by the
  // first other dim that is not chosen.
  const each = (by, panel) => {
    const measure = +show.value,
      all = panel === null ? [by] : [by, panel];
    const groups = means(all, [measure]);
    const inner = several.find(at => at !== by && at !== panel && filters.get(at).value === "");
    const dots = inner === undefined ? [] : means([by, inner, ...(panel === null ? [] : [panel])], [measure]);
    const name = group => dims[by].values[group.of[0]],
      { higher_is_better } = measures[measure];
    const order =
      higher_is_better === null
        ? dims[by].values.filter((_, value) => groups.some(group => group.of[0] === value))
        : d3.groupSort(groups, some => d3.mean(some, group => group.means[0]) * (higher_is_better ? -1 : 1), name);
    const left = Math.min(usual().width * 0.45, 20 + 7 * d3.max(order, name => name.length));
    const fx = panel === null ? {} : { fx: group => dims[panel].values[group.of[group.of.length - 1]] };
    const log = log_x.checked && positive(groups.concat(dots), 0),
      y = name;
    return Plot.plot(
      usual({
        marginLeft: left,
        height: 26 * order.length + 60,
        x: scale(measure, log, true),
        y: { domain: order, label: null, tickFormat: name => cut(name, Math.floor(left / 7)) },
        ...(panel === null ? {} : { fx: { label: null } }),
        color: { domain: dims[by].values, range },
        marks: [
          Plot.barX(groups, {
            x1: log ? d3.min(groups.concat(dots), group => ends(group, 0)[0]) : +measures[measure].ratio,
            x2: group => group.means[0],
            y,
            ...fx,
            fill: y,
            fillOpacity: group => (group.part ? 0.15 : 0.4),
            insetTop: 4,
            insetBottom: 4,
          }),
          Plot.text(groups.filter(mark), {
            x: group => group.means[0],
            y,
            ...fx,
            text: mark,
            textAnchor: "start",
            dx: 4,
          }),
          Plot.ruleX(baseline(measure), { stroke: "currentColor" }),
          Plot.dot(dots, { x: group => group.means[0], y, ...fx, r: 3, fill: y }),
          Plot.ruleY(
            groups.concat(dots).filter(group => group.intervals[0]),
            { x1: group => ends(group, 0)[0], x2: group => ends(group, 0)[1], y, ...fx },
          ),
          Plot.tip(
            groups
              .map(group => [all, group])
              .concat(dots.map(group => [[by, inner, ...(panel === null ? [] : [panel])], group])),
            Plot.pointer({
              x: ([, group]) => group.means[0],
              y: ([, group]) => y(group),
              ...(panel === null ? {} : { fx: ([, group]) => fx.fx(group) }),
              title: ([of, group]) => says(of, [measure], group),
            }),
          ),
        ],
      }),
    );
  };
  // A point for each value of a dim, and the line of those that no other beats in both, if one value
  // of both is better than another.
  const scatter = (by, panel) => {
    const of = [+against.value, +show.value],
      all = panel === null ? [by] : [by, panel],
      groups = means(all, of);
    const judged = of.every(measure => measures[measure].higher_is_better !== null),
      sign = at => (measures[of[at]].higher_is_better ? 1 : -1),
      y = group => group.means[1],
      x = group => group.means[0];
    const beats = (a, b) =>
      [0, 1].every(at => sign(at) * a.means[at] >= sign(at) * b.means[at]) &&
      [0, 1].some(at => a.means[at] !== b.means[at]);
    const peers = group => groups.filter(other => panel === null || other.of[1] === group.of[1]);
    const best = groups.filter(
      group => judged && !group.part && !peers(group).some(other => !other.part && beats(other, group)),
    );
    const fy = panel === null ? {} : { fy: group => dims[panel].values[group.of[1]] },
      name = group => dims[by].values[group.of[0]];
    return Plot.plot(
      usual({
        height: panel === null ? 460 : 220 * dims[panel].values.length,
        marginLeft: 60,
        marginRight: panel === null ? Math.min(110, usual().width / 4) : names_at_side(panel),
        x: scale(of[0], log_x.checked, positive(groups, 0)),
        y: scale(of[1], log_y.checked, positive(groups, 1)),
        ...(panel === null ? {} : { fy: { label: null } }),
        color: { domain: dims[by].values, range, legend: best.length < groups.length },
        marks: [
          Plot.ruleX(baseline(of[0]), { stroke: "currentColor", strokeOpacity: 0.5 }),
          Plot.ruleY(baseline(of[1]), { stroke: "currentColor", strokeOpacity: 0.5 }),
          Plot.line(best, {
            x,
            y,
            z: group => group.of[1],
            ...fy,
            sort: x,
            strokeDasharray: "5 4",
            strokeOpacity: 0.6,
          }),
          Plot.ruleX(
            groups.filter(group => group.intervals[1]),
            { x, y1: group => ends(group, 1)[0], y2: group => ends(group, 1)[1], ...fy, stroke: name },
          ),
          Plot.ruleY(
            groups.filter(group => group.intervals[0]),
            { y, x1: group => ends(group, 0)[0], x2: group => ends(group, 0)[1], ...fy, stroke: name },
          ),
          Plot.dot(groups, { x, y, ...fy, fill: name, r: group => (best.includes(group) ? 6 : 4) }),
          Plot.text(best, {
            x,
            y,
            ...fy,
            text: group => cut(name(group), 20) + mark(group),
            textAnchor: "start",
            dx: 9,
          }),
          Plot.tip(groups, Plot.pointer({ x, y, ...fy, title: group => says(all, of, group) })),
        ],
      }),
    );
  };
  // A line for each value of a dim, over another.
  const lines = (by, panel) => {
    const measure = +show.value,
      along = +over.value,
      all = panel === null ? [by, along] : [by, along, panel],
      groups = means(all, [measure]);
    const { numbers, values: texts } = dims[along],
      x = group => (numbers ? numbers[group.of[1]] : texts[group.of[1]]),
      y = group => group.means[0];
    const fy = panel === null ? {} : { fy: group => dims[panel].values[group.of[2]] },
      name = group => dims[by].values[group.of[0]];
    const wide = numbers && log_x.checked && d3.min(numbers) > 0;
    return Plot.plot(
      usual({
        height: panel === null ? 420 : 200 * dims[panel].values.length,
        marginLeft: 60,
        marginRight: panel === null ? 20 : names_at_side(panel),
        x: numbers
          ? {
              label: dims[along].name,
              labelOffset: 40,
              grid: true,
              ...(wide ? { type: "log" } : {}),
              ticks: numbers.length <= 12 ? numbers : undefined,
              tickFormat: value => texts[numbers.indexOf(value)] ?? short(value),
            }
          : {
              type: "point",
              domain: texts,
              label: dims[along].name,
              labelOffset: 40,
              tickFormat: text => cut(text, 16),
            },
        y: scale(measure, log_y.checked, positive(groups, 0)),
        ...(panel === null ? {} : { fy: { label: null } }),
        color: { domain: dims[by].values, range, legend: true },
        marks: [
          Plot.ruleY(baseline(measure), { stroke: "currentColor", strokeOpacity: 0.5 }),
          Plot.line(groups, { x, y, ...fy, stroke: name, z: group => group.of[0], sort: group => group.of[1] }),
          Plot.ruleX(
            groups.filter(group => group.intervals[0]),
            { x, y1: group => ends(group, 0)[0], y2: group => ends(group, 0)[1], ...fy, stroke: name },
          ),
          Plot.dot(groups, { x, y, ...fy, fill: name }),
          Plot.tip(groups, Plot.pointer({ x, y, ...fy, title: group => says(all, [measure], group) })),
        ],
      }),
    );
  };
  // A cell for each two values. Within 5 % of the middle a ratio hardly has a colour.
  const heat = (by, panel) => {
    const measure = +show.value,
      along = +over.value,
      all = panel === null ? [by, along] : [by, along, panel],
      groups = means(all, [measure]);
    const { ratio, higher_is_better } = measures[measure],
      of = group => (ratio ? Math.log(group.means[0]) : group.means[0]);
    const most = ratio
      ? Math.max(
          Math.log(1.05),
          d3.max(groups, group => Math.abs(of(group))),
        )
      : null;
    const fy = panel === null ? {} : { fy: group => dims[panel].values[group.of[2]] };
    const y = group => dims[by].values[group.of[0]],
      x = group => dims[along].values[group.of[1]];
    const scheme = higher_is_better === null ? "PuOr" : "RdBu";
    const shown = ratio
      ? { type: "linear", domain: [-most, most], scheme, reverse: higher_is_better === false }
      : { scheme: "Blues", type: "linear", domain: [Math.min(0, d3.min(groups, of)), d3.max(groups, of) || 1] };
    const left = Math.min(usual().width * 0.4, 20 + 7 * d3.max(dims[by].values, name => name.length));
    const largest = d3.max(groups, of),
      dark = group => (ratio ? Math.abs(of(group)) > 0.6 * most : of(group) > 0.6 * largest);
    return Plot.plot(
      usual({
        height: (panel === null ? 1 : dims[panel].values.length) * (28 * dims[by].values.length) + 90,
        marginLeft: left,
        marginRight: panel === null ? 20 : names_at_side(panel),
        padding: 0.04,
        x: {
          domain: dims[along].values,
          label: dims[along].name,
          labelOffset: 40,
          tickFormat: text => cut(text, 14),
        },
        y: { domain: dims[by].values, label: null, tickFormat: name => cut(name, Math.floor(left / 7)) },
        ...(panel === null ? {} : { fy: { label: null } }),
        color: shown,
        marks: [
          Plot.cell(groups, { x, y, ...fy, fill: of }),
          Plot.text(groups, {
            x,
            y,
            ...fy,
            text: group => short(+group.means[0].toPrecision(3)) + (group.complete ? "" : " ?"),
            fill: group => (dark(group) ? "white" : "black"),
            fontSize: 11,
          }),
          Plot.tip(groups, Plot.pointer({ x, y, ...fy, title: group => says(all, [measure], group) })),
        ],
      }),
    );
  };

  // --- what can be taken away ---
  const save = (name, kind, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: kind }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const svg = () => {
    const drawn = [...panels.querySelectorAll("svg")]
      .sort((a, b) => b.clientHeight - a.clientHeight)[0]
      .cloneNode(true);
    drawn.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    // Colours of the page are not there outside it.
    const text = new XMLSerializer().serializeToString(drawn);
    return text.replace(
      /var\((--[a-z0-9-]+)(?:,[^)]*)?\)/g,
      (whole, name) => style.getPropertyValue(name).trim() || whole,
    );
  };
  const quote = text => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const csv = () => {
    const head = [
      ...dims.map(dim => dim.name),
      ...measures.flatMap(measure => [measure.name, measure.name + "_low", measure.name + "_high"]),
    ];
    const line = row => [
      ...dims.map((dim, at) => dim.values[row[at]]),
      ...measures.flatMap((_, at) => [row[values + at] ?? "", ...(row[intervals + at] ?? ["", ""])]),
    ];
    return (
      [head, ...rows.filter(passes).map(line)]
        .map(cells => cells.map(cell => quote(String(cell))).join())
        .join("\n") + "\n"
    );
  };
  const button = (text, act) => {
    const node = document.createElement("button");
    node.type = "button";
    node.textContent = text;
    node.onclick = act;
    form.append(node);
    return node;
  };
  const saves = button("save as SVG", () => save("figure.svg", "image/svg+xml", svg()));
  button("save the rows as CSV", () => save("rows.csv", "text/csv", csv()));

  function draw() {
    const by = +colour.value,
      panel = facet.value === "" || +facet.value === by ? null : +facet.value;
    const seen = {
      against: view.value === "against",
      over: ["over", "heat"].includes(view.value),
      logx: view.value !== "heat",
      logy: ["against", "over"].includes(view.value),
    };
    for (const [name, shown] of Object.entries(seen)) form.elements[name].parentNode.hidden = !shown;
    const along = seen.over && (+over.value === by || +over.value === panel);
    const drawing = { each, against: scatter, over: lines, heat }[view.value];
    const none = document.createElement("p");
    none.textContent = along
      ? "Choose an axis that is neither that of colours nor that of panels."
      : "No row has this value here.";
    panels.replaceChildren(!along && means([by], [+show.value]).length ? drawing(by, panel) : none);
    saves.disabled = !panels.querySelector("svg");
  }
  restore();
  window.addEventListener("hashchange", () => {
    restore();
    draw();
  });
  window.addEventListener("resize", draw);
  draw();
}
