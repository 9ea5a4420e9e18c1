// Tables that sort on a click on a column.

const ROWS_SHOWN = 300;

// `columns`: {name, value(row), show(row), number}. `show` returns a text or an element.
function makeTable(columns, rows, onRow) {
  const table = element("table", "data");
  const head = element("tr");
  const body = element("tbody");
  let order = {column: -1, down: false};
  let shown = ROWS_SHOWN;
  const fill = () => {
    const sorted = rows.slice();
    if (order.column >= 0) {
      const value = columns[order.column].value;
      const sign = order.down ? -1 : 1;
      sorted.sort((a, b) => (value(a) < value(b) ? -sign : value(a) > value(b) ? sign : 0));
    }
    body.replaceChildren(...sorted.slice(0, shown).map((row) => rowOf(columns, row, onRow)));
    if (sorted.length > shown) {
      const more = element("button", "link", `${formatCount(sorted.length - shown)} more`);
      more.onclick = () => { shown = Infinity; fill(); };
      const cell = element("td", "", more);
      cell.colSpan = columns.length;
      body.append(element("tr", "", cell));
    }
  };
  columns.forEach((column, index) => {
    const button = element("button", "", column.name);
    button.type = "button";
    const cell = element("th", column.number ? "number" : "", button);
    cell.scope = "col";
    button.onclick = () => {
      order = {column: index, down: order.column === index ? !order.down : Boolean(column.number)};
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      fill();
    };
    head.append(cell);
  });
  fill();
  table.append(element("thead", "", head), body);
  return element("div", "scroll", table);
}

function rowOf(columns, row, onRow) {
  const made = element("tr");
  for (const column of columns) made.append(element("td", (column.number ? "number " : "") + (column.className || ""), column.show(row)));
  if (onRow) {
    made.tabIndex = 0;
    made.classList.add("active");
    made.onclick = () => onRow(row);
    made.onkeydown = (event) => { if (event.key === "Enter") onRow(row); };
  }
  return made;
}

const column = (name, value, show) => ({name, value, show: show ? (row) => show(value(row)) : value});
const numeric = (name, value, show = formatCount) => ({...column(name, value, show), number: true});
const orEmpty = (format) => (value) => value === 0 ? "" : format(value);

// A text with a bar under it.
function bar(part, whole, color, words) {
  const fill = element("i");
  fill.style.width = `${whole > 0 ? Math.min(100 * part / whole, 100) : 0}%`;
  fill.style.background = `var(--${color})`;
  return element("span", "bar", words, element("span", "track", fill));
}
