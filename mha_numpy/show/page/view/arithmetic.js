// A cell's story as arithmetic with its numbers, each of which points back at its cell.

const TERMS_SHOWN = 10;
const SIGNS = { "+": " + ", "*": "·" };
const TESTS = { "&": " and ", "<=": " ≤ ", ">=": " ≥ ", "==": " = " };
const CHOICES = ["where", "hidden"];
const LEVELS = { sum: 1, "+": 1, "-": 1, "*": 2, "/": 2, negative: 2, "**": 3 };

const isSameCell = (a, b) =>
  a.array !== undefined && a.array === b.array && String(a.index) === String(b.index);

// scale * q * k in each term: the scale is written once, before the brackets.
function commonFactor(terms) {
  const isScaled = ({ op, args }) => op === "*" && args[0].op === "*";
  if (terms.length < 2 || !terms.every(isScaled)) return null;
  const factors = terms.map(({ args: [scaled] }) => scaled.args[0]);
  if (!factors.every((each) => isSameCell(each, factors[0]))) return null;
  return [factors[0], total(terms.map(({ args: [scaled, b] }) => times(scaled.args[1], b)))];
}

function writeStory(told, point, outer = 0) {
  const { op, args, value } = told;
  if (!op || (op === "negative" && !args[0].op && args[0].array === undefined)) {
    const made = element("span", value === 0 ? "number zero" : "number", written(value));
    if (told.array !== undefined) point(made, told);
    return made;
  }
  const level = LEVELS[op] ?? 4;
  const write = (part, at = level) => writeStory(part, point, at);
  const join = (parts, sign) => parts.flatMap((part, i) => (i ? [sign, part] : [part]));
  const wrapped = (...parts) => element("span", value === 0 ? "zero" : "",
    ...(level < outer ? ["(", ...parts, ")"] : parts));
  const inBrackets = (name, sign) =>
    element("span", "", `${name}(`, ...join(args.map((part) => write(part, 0)), sign), ")");

  if (op === "sum") {
    const factored = commonFactor(args);
    if (factored) return wrapped(write(factored[0], 2), " · ", write(factored[1], 2));
    const long = args.length > TERMS_SHOWN + 1;
    const left = args.length - TERMS_SHOWN;
    const shown = long ? [...args.slice(0, TERMS_SHOWN - 3), null, ...args.slice(-3)] : args;
    return wrapped(...join(shown.map((part) => (part ? write(part)
      : element("span", "left-out", `… ${left} more terms …`))), " + "));
  }
  if (CHOICES.includes(op)) {
    const [value, isSeen] = [write(args[0], 1), op === "where"];
    if (args[1].array === undefined) return element("span", "", value, " where ", write(args[1]));
    const reason = element("span", "number");
    point(reason, args[1]);
    reason.textContent = isSeen ? "visible" : "hidden";
    return element("span", "", reason, `, so ${isSeen ? "the number stays:" : "it becomes"} `, value);
  }
  if (op === "exp") return element("span", "", "e", element("sup", "", write(args[0], 0)));
  if (op === "**") return wrapped(write(args[0], 4), element("sup", "", write(args[1], 0)));
  if (op === "negative") return wrapped("−", write(args[0], 3));
  if (op === "-") {
    const right = write(args[1], 2);
    const isNegative = args[1].value < 0 && !args[1].op;
    return wrapped(write(args[0]), " − ", ...(isNegative ? ["(", right, ")"] : [right]));
  }
  if (op in SIGNS) return wrapped(...join(args.map((part) => write(part)), SIGNS[op]));
  if (op === "/") return wrapped(write(args[0]), " / ", write(args[1], 3));
  return op in TESTS ? inBrackets("", TESTS[op]) : inBrackets(op, ", ");
}

// A quotient's two halves as numbers: the row of powers and their sum.
const halves = ({ op, args }) => (op === "/" && args[1].op
  ? ` = ${written(args[0].value)} / ${written(args[1].value)}` : "");
