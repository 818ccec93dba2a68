// Frames follow the page's theme and are as high as they say; what is cut at the right shows it; and
// questions wait for the reader's prediction.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");
  const tell = (frame) => {
    frame.contentWindow?.postMessage({ mhaStepperTheme: root.dataset.theme }, "*");
  };
  const tellAll = () => document.querySelectorAll("iframe").forEach(tell);
  new MutationObserver(tellAll).observe(root, { attributeFilter: ["data-theme"] });
  addEventListener("message", ({ data, source }) => {
    if (!data?.mhaStepperHeight) return;
    tellAll();
    for (const frame of document.querySelectorAll("iframe.play")) {
      if (frame.contentWindow !== source) continue;
      const told = data.mhaStepperHeight;
      const isScene = frame.matches(".scene"); // it never shrinks: the text below would jump
      if (isScene && (told < frame.clientHeight || told > 900)) continue; // so high only where a page is printed
      frame.style.height = `${isScene ? told : Math.min(told + 2, 1100)}px`;
    }
  });

  function showWhatIsCut() {
    const showCut = ({ target }) => {
      if (!target.classList) return;
      target.classList.toggle("cut", target.scrollWidth - target.clientWidth - target.scrollLeft > 2);
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0; // the keyboard scrolls it
    };
    const observer = new ResizeObserver((entries) => entries.forEach(showCut));
    for (const one of document.querySelectorAll(".bd-article pre, div.math, .pst-scrollable-table-container")) {
      observer.observe(one);
      one.addEventListener("scroll", showCut, { passive: true });
    }
  }

  const make = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  function ask(frame, number) {
    const quote = frame.querySelector("blockquote");
    const { answer, within, unit = "" } = frame.dataset;
    const form = make("form", { className: "predict-form" });
    const said = make("p", { className: "predict-said", role: "status" });
    const reveal = (text) => {
      form.replaceChildren();
      said.append(...text);
      frame.classList.add("open");
      for (const one of frame.querySelectorAll(".predict-answer > details")) one.open = true;
      said.tabIndex = -1;
      said.focus({ preventScroll: true });
    };
    const list = quote.querySelector("ul, ol");
    if (list) {
      for (const line of list.children) {
        const option = make("button", { type: "button", className: "predict-option" });
        option.append(...line.cloneNode(true).childNodes);
        const text = line.textContent.trim();
        option.addEventListener("click", () => reveal([
          "You chose ", make("b", {}, text), ". ",
          ...(!answer ? ["Compare:"] : text === answer ? ["That is right."] : ["The answer is ", make("b", {}, answer), "."]),
        ]));
        form.append(option);
      }
      list.remove();
    } else {
      const name = `prediction-${number}`;
      const isNumber = Boolean(within);
      const field = make("input", { id: name, required: true, autocomplete: "off", type: "text" });
      if (isNumber) Object.assign(field, { inputMode: "decimal", pattern: "\\s*[\u2212\\-+]?[0-9]*[.,]?[0-9]+\\s*%?\\s*", title: "a number" });
      form.append(make("label", { htmlFor: name }, isNumber ? "Your number" : "Your guess, in a few words"), field,
        make("button", { className: "predict-go" }, "Compare"));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const guess = make("b", {}, field.value.trim());
        if (!isNumber) return reveal(["You wrote ", guess, ". Compare:"]);
        const value = parseFloat(field.value.replace("\u2212", "-").replace(",", "."));
        const isPercent = Math.abs(answer) < 1 && value > 1; // of a share: 33 for 0.33
        const off = Math.abs(value / (isPercent ? 100 : 1) - parseFloat(answer));
        const right = make("b", {}, isPercent ? `${Math.round(100 * answer)}%` : answer + unit);
        reveal(["You said ", guess, ". ", ...(off <= parseFloat(within) ? ["Yes: it is ", right, "."] : ["It is ", right, "."])]);
      });
    }
    const anyway = make("button", { type: "button", className: "predict-anyway" }, "Show anyway");
    anyway.addEventListener("click", () => reveal([]));
    form.append(anyway);
    quote.append(form, said);
  }
  // What a result of the search says: the sentence with the word, without formulas and code.
  function summarisePlainly() {
    if (typeof Search === "undefined") return;
    Search.makeSearchSummary = (page, keywords) => {
      const main = new DOMParser().parseFromString(page, "text/html").querySelector("[role=main]");
      const words = [...keywords].map((word) => word.toLowerCase());
      const has = (text) => words.some((word) => text.toLowerCase().includes(word));
      const texts = [...main?.querySelectorAll("section p") ?? []].filter((one) => !one.querySelector("math"))
        .map((one) => one.textContent.replace(/\s+/g, " ").trim()).filter((text) => text.length > 60);
      const best = texts.find(has) ?? texts[0];
      if (!best) return null;
      const sentences = best.split(/(?<=[.?!]) /);
      const text = sentences.slice(Math.max(sentences.findIndex(has), 0)).join(" ");
      const textContent = text.length > 220 ? `${text.slice(0, text.lastIndexOf(" ", 220))} \u2026` : text;
      return make("p", { className: "context", textContent });
    };
  }

  addEventListener("DOMContentLoaded", () => {
    summarisePlainly();
    showWhatIsCut();
    document.querySelectorAll(".predict").forEach(ask);
    for (const fold of document.querySelectorAll(".bd-links li > details > summary")) // the theme names none
      fold.ariaLabel = `Pages of ${fold.closest("li").querySelector("a").textContent}`;
  });
})();
