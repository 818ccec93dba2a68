// Workings: how the numbers in a word's row come about, written between them. A scene shows one only
// where it is true of the numbers: not with a softcap, a sink or whatever else comes in between.

const WORKINGS = { sum: "sum", asked: "sum", power: "power", powers: "power", average: "power" };

function openWorkings({ parts, scale, matrix, columns, called, isHidden }) {
  const number = written;
  const total = (terms) => terms.reduce((sum, term) => sum + term, 0);
  const times = (a, b) => a.map((each, n) => each * b[n]);
  const joined = (terms, write = number) => terms.map((term, n) =>
    (n ? (term < 0 ? " − " : " + ") + write(Math.abs(term)) : write(term))).join("");
  const power = (value) => (value < 1e4 ? number(value) : value.toExponential(1).replace("+", ""));

  // Terms that are not 0, and their sum; the first ones, where there is no room for all.
  function added(terms, room, write = number) {
    const [kept, sum] = [terms.filter((term) => Math.abs(term) >= 0.005), write(total(terms))];
    const tried = kept.map((_, n) => {
      const first = joined(kept.slice(0, kept.length - n), write);
      return `${first}${n ? " + …" : ""} = ${sum}`;
    });
    return (kept.length > 1 && tried.find((text) => text.length <= room)) || sum;
  }

  // Scores are sums of products; shares are powers of e, divided by their sum.
  function forward({ word, head, row, keys, agree, isMine }, isNarrow) {
    const scores = row("scores");
    const terms = keys.map((key) => times(row("q"), key));
    const powers = scores.map((score, j) => (isHidden(head, word, j) ? 0 : Math.exp(score)));
    const all = total(powers);
    return {
      sum: (j) => (isMine("scores", j) ? "set by you" : added(terms[j], isNarrow ? 9 : 36)),
      power: (j) => power(powers[j]),
      asked: () => "", powers: () => power(all), average: () => "",
      last: "sum",
      names: {
        sum: [`sum ×\u00a0${number(scale())}`],
        power: ["e", element("sup", "", "score"), ` ÷\u00a0${power(all)}`],
      },
      isTrue: {
        sum: agree("scores", terms.map((each) => scale() * total(each))),
        power: agree("weights", powers.map((each) => each / all)),
      },
    };
  }

  // A score's slope is its share times what its word helps more than the average; a number of q has
  // the slopes of all scores, each times that number of its key.
  function backward({ word, head, cell, row, keys, agree }, isNarrow) {
    const [shares, asked, slopes, byShare] = ["weights", "d_q", "d_scores", "d_weights"].map((part) => row(part));
    const byWord = times(shares, byShare);
    const mean = total(byWord);
    const sizes = asked.map(Math.abs);
    const c = cell?.part === "q" ? cell.j : sizes.indexOf(Math.max(...sizes));
    const pulls = (f) => keys.map((key, j) => key[f] * slopes[j]);
    const fitting = (text, short) => (!isNarrow && text.length <= 20 ? text : short);
    const tight = (text) => (isNarrow ? text.replace(/\b0\./g, ".") : text).replace(/ (?!=)/g, "\u00a0");
    return {
      sum: (j) => {
        const pull = number(pulls(c)[j]);
        return Number(pull) === 0 ? "0" : fitting(`${number(keys[j][c])} × ${fixed(slopes[j], 3)} = ${pull}`, pull);
      },
      asked: () => fitting(`${number(total(pulls(c)))} × ${number(scale())} = ${signed(asked[c])}`, signed(asked[c])),
      chain: (j) => {
        if (isHidden(head, word, j)) return "0";
        const more = joined([byShare[j], -mean]);
        const sign = slopes[j] >= 0.005 ? "+" : "";
        return tight(`${fixed(shares[j], 2)} × (${more}) = ${sign}${fixed(slopes[j], 2)}`);
      },
      power: () => "→", powers: () => "",
      average: () => tight(added(byWord, isNarrow ? 21 : 30, (value) => fixed(value, 3))),
      last: "average",
      names: { sum: [`slope of ${called(columns("q", head)[c])}`], power: [] },
      isTrue: {
        sum: agree("d_q", asked.map((_, f) => scale() * total(pulls(f)))),
        power: agree("d_scores", byWord.map((part, j) => part - shares[j] * mean)),
      },
    };
  }

  return function workings(at, isNarrow) {
    const { word, head } = at;
    const row = (part, i = word) => matrix(part, head)?.row(i) ?? [];
    const shares = row("weights");
    const keys = shares.map((_, j) => row("k", j));
    const isMine = (part, j) => parts[part]?.edits.has(matrix(part, head).place(word, j));
    const agree = (part, found) => {
      const given = row(part);
      return found.length > 0 && found.every((each, j) => isMine(part, j)
        || Math.abs(each - given[j]) <= 1e-6 * Math.max(1, Math.abs(each)));
    };
    const product = (j, c) => shares[j] * matrix("v", head).at(j, c);
    const isWhole = () => agree("heads", row("heads").map((_, c) => total(shares.map((_, j) => product(j, c)))));
    const made = (at.back ? backward : forward)({ ...at, row, keys, agree, isMine }, isNarrow);
    return { ...made, product, isWhole };
  };
}
