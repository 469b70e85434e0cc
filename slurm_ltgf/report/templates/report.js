/* Sorts tables by a column: each heading of a sortable table becomes a button. */
(() => {
  "use strict";
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const key = (row, column) => row.children[column].dataset.v;
  const compare = (a, b, isNumber) => {
    const lacks = (a === undefined) - (b === undefined);
    return lacks || a === undefined ? { last: lacks } : { by: isNumber ? a - b : words.compare(a, b) };
  };
  const sort = (table, heading, column) => {
    const isNumber = heading.dataset.kind === "number";
    const was = heading.getAttribute("aria-sort");
    const down = was ? was === "ascending" : isNumber;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => ({ row, place, value: key(row, column) }));
    rows.sort((a, b) => {
      const found = compare(a.value, b.value, isNumber);
      return found.last || (down ? -found.by : found.by) || a.place - b.place;
    });
    body.append(...rows.map((one) => one.row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading, column));
      heading.append(button);
    });
  }
  const open = [];
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details.print:not([open])")) {
      one.open = true;
      open.push(one);
    }
  });
  addEventListener("afterprint", () => {
    while (open.length) open.pop().open = false;
  });
})();
