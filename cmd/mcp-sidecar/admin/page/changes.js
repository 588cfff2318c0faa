// What changed between two generations of a server: its tools, and the lines of their definitions.

import { code, el, pill, plural, visible, when } from './dom.js';

const most = 200; // tools that are shown
const context = 3; // lines around a difference

const changeCause = { restart: 'with another process', list_changed: 'announced by the server', silent: 'without another process and without notice' };
export const signs = { added: '+', removed: '−', changed: '~' };

export function showChange(change) {
  const tools = change.tools ?? [];
  const count = ['added', 'removed', 'changed'].map((kind) => [kind, change[kind]?.length ?? 0]).filter(([, n]) => n > 0).map(([kind, n]) => `${n} ${kind}`);
  return el('details', { open: true },
    el('summary', null, 'What changed last', el('span', { class: 'quiet' }, `${count.join(', ') || 'nothing that can be named'} · `, when(change.at)),
      ' ', change.breaking ? pill('breaking', 'bad', 'calls that were right before may fail now') : pill('additive', 'good', 'what worked before still works')),
    el('p', { class: 'quiet' }, `Generation ${change.generation}, ${changeCause[change.cause] ?? visible(change.cause ?? '')}.`),
    el('ul', { class: 'changes' }, tools.slice(0, most).map(showTool),
      tools.length > most && el('li', { class: 'quiet' }, `and ${tools.length - most} more tools: mcp-sidecar diff shows all`)));
}

function showTool(t) {
  const details = (t.details ?? []).map((line) => el('li', null, visible(line, 400)));
  if (t.kind === 'changed' && details.length === 0) details.push(el('li', null, 'What is different is not known: this sidecar never saw the earlier definition.'));
  return el('li', { class: t.kind },
    el('span', { class: 'sign', 'aria-hidden': 'true' }, signs[t.kind] ?? '~'),
    code(t.tool), el('span', { class: 'quiet' }, ` ${t.kind} `), t.breaking ? pill('breaking', 'bad') : '',
    details.length > 0 && el('ul', null, details),
    (t.before || t.after) && el('details', { toggle: unfold.bind(null, t) }, el('summary', null, t.before && t.after ? 'Compare definitions' : 'Definition')));
}

// unfold shows the definitions of a tool, when somebody wants to see them.
function unfold(t, event) {
  const box = event.currentTarget;
  if (!box.open || box.children.length > 1) return;
  const lines = diffLines((t.before ?? '').split('\n'), (t.after ?? '').split('\n'));
  box.append(el('div', { class: 'diff', role: 'region', tabindex: 0, 'aria-label': `Definition of ${visible(t.tool)}` }, lines.map(([kind, text]) => {
    const mark = { plus: '+ ', minus: '− ' }[kind] ?? '  ';
    return el('span', { class: kind }, mark, visible(text, 2000));
  })));
}

// diffLines compares two texts line by line: the longest common sequence stays, but for long stretches of it.
function diffLines(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const x = a.slice(start, a.length - end);
  const y = b.slice(start, b.length - end);
  const out = a.slice(0, start).map((line) => ['same', line]);
  if (x.length * y.length > 1e6) out.push(...x.map((line) => ['minus', line]), ...y.map((line) => ['plus', line]));
  else {
    const best = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
    for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) best[i][j] = x[i] === y[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    for (let i = 0, j = 0; i < x.length || j < y.length;) {
      if (i < x.length && j < y.length && x[i] === y[j]) out.push(['same', x[i++]], ...(j++, []));
      else if (j === y.length || (i < x.length && best[i + 1][j] >= best[i][j + 1])) out.push(['minus', x[i++]]);
      else out.push(['plus', y[j++]]);
    }
  }
  out.push(...a.slice(a.length - end).map((line) => ['same', line]));
  if (a.length === 1 && a[0] === '') out.splice(0, out.length, ...b.map((line) => ['plus', line]));
  if (b.length === 1 && b[0] === '') out.splice(0, out.length, ...a.map((line) => ['minus', line]));
  return fold(out);
}

function fold(lines) {
  const near = lines.map((_, i) => lines.slice(Math.max(0, i - context), i + context + 1).some(([kind]) => kind !== 'same'));
  const out = [];
  for (let i = 0; i < lines.length; i++) {
    if (near[i]) out.push(lines[i]);
    else {
      let n = i;
      while (n < lines.length && !near[n]) n++;
      out.push(['same', `⋯ ${plural(n - i, 'line')} as before`]);
      i = n - 1;
    }
  }
  return out;
}
