"use strict";
/* Sorting, filtering and paging of the shapes, from the data the page carries (README.md has its format). Text only ever
   becomes text: the page's policy forbids the rest. Without this script the largest shapes are there as plain HTML. */
(() => {
  const PAGE = 100;
  const at = id => document.getElementById(id);
  const data = JSON.parse(at("data").textContent);
  const FIELDS = ["calls", "hits", "share", "before", "after", "floor", "ratio", "lo", "hi"];
  const text = cell => typeof cell === "string" ? cell : data.strings[cell];

  const rows = data.rows.map(([pattern, numbers, ...rest]) => {
    let next = 0;
    const row = { key: text(pattern).replace(/#/g, () => numbers[next++]) };
    FIELDS.forEach((name, i) => { row[name] = rest[i]; });
    row.verdict = text(rest[FIELDS.length]);
    row.measured = rest[FIELDS.length + 1];
    row.detail = rest[FIELDS.length + 2];
    return row;
  });

  /* ---- figures, as the C side writes them ---- */

  const ns = v => !(v > 0) ? "-" : v < 1e3 ? v.toFixed(0) + " ns"
    : v < 1e6 ? (v / 1e3).toFixed(v < 1e4 ? 2 : 1) + " us" : v < 1e9 ? (v / 1e6).toFixed(v < 1e8 ? 2 : 1) + " ms"
    : (v / 1e9).toFixed(2) + " s";
  const count = v => v.toLocaleString("en");
  const percent = v => v > 0 && v < 0.001 ? "< 0.1 %" : (100 * v).toFixed(1) + " %";
  const dims = key => (key.split("/").find(s => s.includes("=") && s.includes(",")) || key).replaceAll(",", ", ");
  const about = row => row.measured || !(row.before > 0) ? "" : "~";
  const SHOWN = {
    dims: row => dims(row.key),
    key: row => row.key,
    share: row => row.calls ? percent(row.share) : "-",
    calls: row => count(row.calls),
    hits: row => count(row.hits),
    before: row => about(row) + ns(row.before),
    after: row => about(row) + ns(row.after),
    floor: row => ns(row.floor),
    ratio: row => row.ratio > 0 ? row.ratio.toFixed(2) : "-",
    range: row => row.ratio > 0 ? `[${row.lo.toFixed(2)}, ${row.hi.toFixed(2)}]` : "",
    verdict: row => row.verdict,
  };

  /* ---- a row and what it opens into ---- */

  const copy = id => at(id).content.firstElementChild.cloneNode(true);
  const opened = new WeakMap();

  const element = row => {
    const body = copy("t-row");
    for (const name in SHOWN) body.querySelector(".f-" + name).textContent = SHOWN[name](row);
    body.querySelector(".f-verdict").className = "f-verdict v-" + row.verdict;
    const details = body.querySelector("details");
    details.querySelector(".detail").remove();
    opened.set(details, row);
    return body;
  };

  const fillDetail = row => {
    const detail = copy("t-detail");
    ["pairs", "went", "gates", "timings"].forEach((name, i) => {
      const table = detail.querySelector(".d-" + name);
      if (!row.detail[i].length) table.remove();
      for (const cells of row.detail[i]) {
        const line = table.tBodies[0].insertRow();
        for (const cell of cells) line.insertCell().textContent = text(cell);
      }
    });
    return detail;
  };

  /* ---- the table ---- */

  const table = at("table"), filter = at("filter"), verdict = at("verdict"), sort = at("sort");
  const heads = [...table.querySelectorAll("th[data-sort]")];
  const ASCENDING = new Set(["key", "verdict"]); /* the others begin with the largest */
  let by = "share", direction = -1, page = 0, view = rows;

  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => typeof a[by] === "string" ? collator.compare(a[by], b[by]) : a[by] - b[by];

  const show = () => {
    const pages = Math.max(1, Math.ceil(view.length / PAGE)), from = page * PAGE;
    const some = document.createDocumentFragment();
    for (const row of view.slice(from, from + PAGE)) some.append(element(row));
    for (const body of [...table.tBodies]) body.remove();
    table.append(some);
    const shown = view.length === rows.length ? count(rows.length) : `${count(view.length)} of ${count(rows.length)}`;
    at("status").textContent = shown + (rows.length === 1 ? " shape" : " shapes") + (view.length ? "" : "; nothing matches");
    at("pager").hidden = pages < 2;
    at("page").textContent = `${count(from + 1)} to ${count(Math.min(from + PAGE, view.length))}, page ${page + 1} of ${pages}`;
    at("previous").disabled = page === 0;
    at("next").disabled = page === pages - 1;
    for (const head of heads) {
      if (head.dataset.sort === by) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    sort.value = by;
  };

  const select = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    view = rows.filter(row => (!verdict.value || row.verdict === verdict.value) && words.every(w => row.key.includes(w)));
    if (by !== "share" || direction > 0) view.sort((a, b) => direction * compare(a, b)); /* they come sorted by share */
    page = 0;
    show();
  };

  const sortBy = (name, toggle) => {
    direction = toggle && by === name ? -direction : ASCENDING.has(name) ? 1 : -1;
    by = name;
    select();
  };

  const turn = step => {
    page += step;
    show();
    at("shapes").focus({ preventScroll: true });
    at("controls").scrollIntoView();
  };

  for (const head of heads) {
    const name = head.dataset.sort, button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(name, true));
    sort.append(new Option(head.textContent, name));
    head.replaceChildren(button);
  }
  filter.addEventListener("input", select);
  verdict.addEventListener("change", select);
  sort.addEventListener("change", () => sortBy(sort.value, false));
  at("previous").addEventListener("click", () => turn(-1));
  at("next").addEventListener("click", () => turn(1));
  at("controls").addEventListener("submit", event => event.preventDefault());
  table.addEventListener("toggle", event => {
    const row = opened.get(event.target);
    if (row && event.target.open && !event.target.querySelector(".detail")) event.target.append(fillDetail(row));
  }, true);
  at("controls").hidden = false;
  filter.value = "";
  verdict.value = "";
  show();
})();
