// What all of the page is made with: elements, times, and news for those who listen.
//
// Names of tools, servers and conversations come from elsewhere. They only ever become text: see el and name.

export const $ = (id) => document.getElementById(id);

// el makes an element. Attributes that are functions listen; children that are strings become text.
export function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') e.addEventListener(key, value);
    else if (value !== undefined && value !== null && value !== false) e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
  return e;
}

// visible writes out what can't be seen or would change how its surroundings read.
export function visible(text, most = 160) {
  const short = text.length > most ? `${text.slice(0, most)}…` : text;
  return short.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

export const name = (text) => el('bdi', null, visible(text));
export const code = (text) => el('bdi', { class: 'code' }, visible(text));
export const pill = (word, mood, title) => el('span', { class: mood ? 'pill' : 'pill plain', 'data-mood': mood, title }, word);
export const plural = (n, word, words = `${word}s`) => `${n.toLocaleString('en')} ${n === 1 ? word : words}`;

// show makes the content of an element anew if what it is made from has changed.
export function show(element, from, make) {
  const print = JSON.stringify(from) ?? '';
  if (element.shown === print) return;
  element.shown = print;
  element.replaceChildren(...[make()].flat().filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
}

// keep makes one child for each item, and leaves those alone that stay, so that focus and what is folded out stay too.
export function keep(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((child) => [child.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let child = old.get(k);
    if (!child) {
      child = make(item);
      child.key = k;
    }
    old.delete(k);
    update(child, item);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  for (const child of old.values()) child.remove();
}

// clock is the one of the sidecar, as far as this machine knows it.
export const clock = { skew: 0 };

function distance(t) {
  const seconds = Math.round((t - Date.now() - clock.skew) / 1000);
  const n = Math.abs(seconds);
  const [value, unit] = n < 100 ? [n, 's'] : n < 5400 ? [Math.round(n / 60), 'min'] : n < 129600 ? [Math.round(n / 3600), 'h'] : [Math.round(n / 86400), 'd'];
  if (n < 2) return 'now';
  return seconds < 0 ? `${value} ${unit} ago` : `in ${value} ${unit}`;
}

export function when(at) {
  const t = Date.parse(at);
  const time = el('time', { datetime: at, title: new Date(t).toLocaleString() }, distance(t));
  time.at = t;
  return time;
}

export function tick() {
  for (const time of document.querySelectorAll('time')) {
    const text = distance(time.at);
    if (time.textContent !== text) time.textContent = text;
  }
}

// soon returns a function that has work done a little later, once for all calls until then, and never twice at a time.
// What goes wrong is told to failed.
export function soon(work, wait, failed = () => {}) {
  let timer = 0;
  let running = false;
  let again = false;
  const run = async () => {
    timer = 0;
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      await work();
    } catch (err) {
      failed(err);
    } finally {
      running = false;
      if (again) ask();
      again = false;
    }
  };
  const ask = () => { timer ||= setTimeout(run, wait); };
  return ask;
}

// News are for screen readers: a few sentences, not every event.
let news = [];
const announceSoon = soon(() => {
  $('news').textContent = news.slice(-3).join('. ');
  news = [];
}, 800);

export function announce(text) {
  news.push(text);
  announceSoon();
}
