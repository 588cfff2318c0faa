// The status page: it asks the admin API, follows its feed of events, and shows both.
//
// Names of tools, servers and conversations come from elsewhere. They only ever become text: see el and name.

const $ = (id) => document.getElementById(id);
const tokenKey = 'mcp-sidecar-admin-token';
const bounds = { entries: 200, tools: 200, context: 3, failing: 5, names: 6 };

const state = {
  status: null,
  skew: 0, // of the sidecar's clock, in milliseconds
  lastEvent: 0,
  changes: new Map(), // by server: what changed last, in detail
  entries: [], // of the timeline, newest first
  page: null, // of conversations
  cursors: [''],
  filter: { state: '', server: '', agentServer: '', id: '' },
  kind: '',
  mood: '',
};

// ---- making elements

// el makes an element. Attributes that are functions listen; children that are strings become text.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') e.addEventListener(key, value);
    else if (value !== undefined && value !== null && value !== false) e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
  return e;
}

// visible writes out what can't be seen or would change how its surroundings read.
function visible(text, most = 160) {
  const short = text.length > most ? `${text.slice(0, most)}…` : text;
  return short.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

const name = (text) => el('bdi', null, visible(text));
const code = (text) => el('bdi', { class: 'code' }, visible(text));
const pill = (word, mood, title) => el('span', { class: mood ? 'pill' : 'pill plain', 'data-mood': mood, title }, word);
const plural = (n, word, words = `${word}s`) => `${n.toLocaleString('en')} ${n === 1 ? word : words}`;

// show makes the content of an element anew if what it is made from has changed.
function show(element, from, make) {
  const print = JSON.stringify(from) ?? '';
  if (element.shown === print) return;
  element.shown = print;
  element.replaceChildren(...[make()].flat().filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
}

// keep makes one child for each item, and leaves those alone that stay, so that focus and what is folded out stay too.
function keep(parent, items, key, make, update) {
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

// ---- times

const now = () => Date.now() + state.skew;

function distance(t) {
  const seconds = Math.round((t - now()) / 1000);
  const n = Math.abs(seconds);
  const [value, unit] = n < 100 ? [n, 's'] : n < 5400 ? [Math.round(n / 60), 'min'] : n < 129600 ? [Math.round(n / 3600), 'h'] : [Math.round(n / 86400), 'd'];
  if (n < 2) return 'now';
  return seconds < 0 ? `${value} ${unit} ago` : `in ${value} ${unit}`;
}

function when(at) {
  const t = Date.parse(at);
  const time = el('time', { datetime: at, title: new Date(t).toLocaleString() }, distance(t));
  time.at = t;
  return time;
}

function tick() {
  for (const time of document.querySelectorAll('time')) {
    const text = distance(time.at);
    if (time.textContent !== text) time.textContent = text;
  }
}

// ---- the API

class Unauthorized extends Error {}

async function call(path, init = {}) {
  const headers = { Accept: 'application/json', ...init.headers };
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...init, headers, cache: 'no-store', redirect: 'error' });
  if (answer.status === 401) throw new Unauthorized();
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(problem.detail || problem.title || `status ${answer.status}`), { status: answer.status });
  }
  return answer;
}

const get = async (path) => (await call(path)).json();

// soon returns a function that has work done a little later, once for all calls until then, and never twice at a time.
function soon(work, wait) {
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
      if (err instanceof Unauthorized) askToken(true);
    } finally {
      running = false;
      if (again) ask();
      again = false;
    }
  };
  const ask = () => { timer ||= setTimeout(run, wait); };
  return ask;
}

async function loadStatus() {
  const status = await get('v1/status');
  if (state.status && state.status.startedAt !== status.startedAt) { // another process: its events begin anew
    state.entries = [];
    state.lastEvent = 0;
    state.changes.clear();
  }
  state.status = status;
  for (const server of status.servers) {
    const mark = server.lastChange && `${server.lastChange.at} ${server.lastChange.generation}`;
    if (!mark || state.changes.get(server.name)?.mark === mark) continue;
    const { lastChange } = await get(`v1/servers/${encodeURIComponent(server.name)}`);
    state.changes.set(server.name, { mark, ...lastChange });
  }
  showStatus();
}

async function loadConversations() {
  const { id, ...filter } = state.filter;
  let page;
  if (id) {
    const found = await get(`v1/conversations/${encodeURIComponent(id)}`).catch((err) => {
      if (err.status >= 400 && err.status < 500) return null;
      throw err;
    });
    page = { conversations: found ? [found] : [] };
  } else {
    const query = new URLSearchParams({ limit: '50' });
    for (const [key, value] of Object.entries({ ...filter, cursor: state.cursors.at(-1) })) if (value) query.set(key, value);
    page = await get(`v1/conversations?${query}`);
  }
  state.page = page;
  showConversations();
}

const statusSoon = soon(loadStatus, 120);
const conversationsSoon = soon(loadConversations, 400);
const timelineSoon = soon(showTimeline, 100);

// ---- the feed

async function* messages(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let id = 0;
  let data = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('id: ')) id = Number(line.slice(4));
      else if (line.startsWith('data: ')) data += line.slice(6);
      else if (line === '' && data) {
        yield { id, ...JSON.parse(data) };
        data = '';
      }
    }
  }
}

// follow shows the present and then what happens, until the token isn't accepted.
async function follow() {
  for (let failures = 0; ; failures++) {
    const stop = new AbortController();
    let watchdog = 0;
    const alive = () => { // the feed is never silent for longer than 15 seconds
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stop.abort(), 40_000);
    };
    try {
      await loadStatus();
      await loadConversations();
      $('token').hidden = true;
      $('page').hidden = false;
      alive();
      const feed = await call('v1/events', { headers: { 'Last-Event-ID': String(state.lastEvent) }, signal: stop.signal });
      const skew = Date.parse(feed.headers.get('Date')) - Date.now();
      state.skew = Math.abs(skew) > 2000 ? skew : 0;
      link('live', 'Live');
      failures = 0;
      timelineSoon();
      for await (const event of messages(feed.body, alive)) {
        state.lastEvent = event.id;
        note(event);
        timelineSoon();
        statusSoon();
        if (event.type === 'refresh' || event.type === 'generation') conversationsSoon();
      }
    } catch (err) {
      if (err instanceof Unauthorized) {
        askToken(sessionStorage.getItem(tokenKey) !== null);
        return;
      }
    } finally {
      clearTimeout(watchdog);
      stop.abort();
    }
    link('lost', 'Not connected, trying again');
    await new Promise((resolve) => { setTimeout(resolve, Math.min(1000 * 2 ** failures, 10_000)); });
  }
}

function link(word, text) {
  $('link').dataset.state = word;
  $('link-text').textContent = text;
}

function askToken(refused) {
  sessionStorage.removeItem(tokenKey);
  link('lost', 'Token needed');
  $('page').hidden = true;
  $('token').hidden = false;
  $('token-error').hidden = !refused;
  $('token-error').textContent = 'That token is not accepted. Is it the one in the file now?';
  $('token-value').focus();
}

// ---- what things are called

const stateOf = {
  settled: ['good', 'answers, and its tools are known'],
  ready: ['busy', 'answers; its tools have to stay the same for a moment'],
  away: ['bad', 'nothing answers; requests wait'],
  unknown: ['idle', 'not looked at yet'],
};
const conversationState = {
  current: ['good', 'Has the tools that its servers offer now.'],
  stale: ['busy', 'Still has older tools; a refresh is due.'],
  failed: ['bad', 'The last refresh failed; it is tried again.'],
  parked: ['idle', 'Its agent server is away or its sandbox paused; tried again at a sign of life.'],
  dormant: ['idle', 'Without activity for long: it will list its tools anew by itself, and is not woken for it.'],
  unsupported: ['idle', 'Its agent server has no refresh action; it is only told that the tools changed.'],
};
const swapCause = {
  restart: 'Nothing listened for a moment.',
  session_lost: 'It does not know the session of before.',
  identity: 'Its identity header changed.',
  pid_file: 'The pid file names another process.',
  server_info: 'Its connections ended, and it calls itself something else.',
};
const changeCause = { restart: 'with another process', list_changed: 'announced by the server', silent: 'without another process and without notice' };

// ---- verdict and servers

function verdict({ quiescing, servers, agentServers, oldestStale }, counts) {
  const list = (some) => some.slice(0, 3).map((s) => visible(s.name, 40)).join(', ') + (some.length > 3 ? ` and ${some.length - 3} more` : '');
  const away = servers.filter((s) => s.state === 'away');
  const settling = servers.filter((s) => s.state === 'ready' || s.state === 'unknown');
  const held = servers.reduce((sum, s) => sum + s.held, 0);
  const waiting = held > 0 ? `${plural(held, 'request')} wait for it.` : 'Requests wait until it is back.';
  const old = oldestStale ? ['The oldest since ', when(oldestStale), '.'] : [];
  if (quiescing) return ['busy', 'quiescing', 'Quiescing', ['Traffic goes on, detection is frozen, new clients should go elsewhere.']];
  if (away.length > 0) return ['bad', 'away', `${list(away)} ${away.length === 1 ? 'is' : 'are'} away`, [waiting]];
  if (settling.length > 0) return ['busy', 'settling', `${list(settling)}: tools are settling`, ['Calls go through; tool lists wait until the new list stays the same.']];
  if (counts.failed > 0) return ['bad', 'failing', `${plural(counts.failed, 'conversation')} cannot be refreshed`, ['They still offer older tools, and are tried again. ', ...old]];
  if (counts.stale > 0) return ['busy', 'refreshing', `Refreshing ${plural(counts.stale, 'conversation')}`, ['They still offer older tools. ', ...old]];
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  if (all === 0) return ['good', 'good', servers.length === 1 ? 'The server is settled' : 'All servers are settled', ['No conversation is registered yet.']];
  const rest = all - counts.current;
  return ['good', 'good', 'Everything is current', [
    `${plural(counts.current, 'conversation')} at ${plural(agentServers.length, 'agent server')} ${counts.current === 1 ? 'has' : 'have'} the present tools`,
    rest > 0 ? `; ${plural(rest, 'other')} can't be told or needn't be.` : '.',
  ]];
}

function countStates(status) {
  const counts = Object.fromEntries(Object.keys(conversationState).map((s) => [s, 0]));
  for (const agent of status.agentServers) for (const [s, n] of Object.entries(agent.conversations)) counts[s] = (counts[s] ?? 0) + n;
  return counts;
}

function showStatus() {
  const { status } = state;
  const counts = countStates(status);
  show($('about'), [status.version, status.startedAt], () => [`${status.version} · started `, when(status.startedAt)]);
  const [mood, kind, title, detail] = verdict(status, counts);
  $('verdict').dataset.mood = mood;
  show($('verdict-title'), title, () => title);
  show($('verdict-detail'), detail.map((d) => d.at ?? d), () => detail);
  document.title = mood === 'good' ? 'mcp-sidecar' : `${title} – mcp-sidecar`;
  if (state.mood && state.mood !== kind) announce(title);
  state.mood = kind;

  $('config-error').hidden = !status.configError;
  show($('config-error'), status.configError, () => `The configuration has mistakes; the last good one stays in force.\n${visibleLines(status.configError)}`);
  keep($('servers'), status.servers, (s) => s.name, makeServer, updateServer);
  showFilters(status, counts);
}

const visibleLines = (text) => text.split('\n').map((line) => visible(line, 500)).join('\n');

function makeServer(server) {
  const part = (tag, attributes) => el(tag, attributes);
  const card = el('article', { class: 'server panel' });
  card.parts = {
    title: part('h3'), state: part('span'), where: part('p', { class: 'where quiet' }), problem: part('p', { class: 'problem', role: 'alert' }),
    facts: part('dl', { class: 'facts' }), change: part('div'), tools: part('div'),
  };
  const { title, state: pillBox, where, problem, facts, change, tools } = card.parts;
  const button = el('button', { type: 'button', click: () => lookNow(button, server.name, problem) }, 'Look now', el('span', { class: 'unseen' }, ` at ${visible(server.name)}`));
  card.append(el('div', { class: 'row' }, title, pillBox, button), where, problem, facts, change, tools);
  return card;
}

async function lookNow(button, server, problem) {
  button.disabled = true;
  problem.textContent = '';
  try {
    const found = await (await call(`v1/servers/${encodeURIComponent(server)}/check`, { method: 'POST' })).json();
    announce(`${visible(server)} was looked at: ${found.state}`);
    statusSoon();
  } catch (err) {
    problem.textContent = `Looking failed: ${visible(err.message, 300)}`;
  } finally {
    button.disabled = false;
    button.focus();
  }
}

function updateServer(card, s) {
  const { title, state: pillBox, where, facts, change, tools } = card.parts;
  const [mood, meaning] = stateOf[s.state] ?? ['idle', ''];
  show(title, s.name, () => name(s.name));
  show(pillBox, s.state, () => pill(s.state, mood, meaning));
  show(where, [s.path, s.upstream, s.transport, s.serverInfo], () => [
    code(s.path), ' → ', s.upstream ? code(s.upstream) : 'a command', ` · ${s.transport}`,
    s.serverInfo?.name ? [' · ', name(`${s.serverInfo.name} ${s.serverInfo.version}`)] : '',
  ].flat());
  show(facts, [s.generation, s.hash, s.settledAt, s.tools.length, s.swaps, s.lastSwap, s.sessions, s.streams, s.held], () => [
    fact('Generation', s.generation > 0 ? [el('strong', null, String(s.generation)), ' ', el('span', { class: 'code quiet', title: s.hash }, shortHash(s.hash))] : 'none known yet'),
    fact('Tools', [el('strong', null, String(s.tools.length)), s.settledAt ? el('span', { class: 'quiet' }, ' since ', when(s.settledAt)) : '']),
    fact('Last swap', s.lastSwap ? [when(s.lastSwap.at), el('span', { class: 'quiet' }, ` · ${s.lastSwap.cause}, ${s.swaps} in all`)] : 'none since the start'),
    fact('Sessions', [el('strong', null, String(s.sessions)), el('span', { class: 'quiet' }, ` with ${plural(s.streams, 'stream')}`)]),
    fact('Waiting requests', el('strong', null, String(s.held))),
  ]);
  const last = state.changes.get(s.name);
  show(change, last?.mark, () => last && showChange(last));
  show(tools, s.hash, () => s.tools.length > 0 && el('details', null, el('summary', null, 'All tools', el('span', { class: 'quiet' }, String(s.tools.length))),
    el('ul', { class: 'tools' }, s.tools.slice(0, 5 * bounds.tools).map((t) => el('li', null, code(t.name))),
      s.tools.length > 5 * bounds.tools && el('li', { class: 'quiet' }, `and ${s.tools.length - 5 * bounds.tools} more`))));
}

const fact = (term, value) => el('div', null, el('dt', null, term), el('dd', null, ...[value].flat()));
const shortHash = (hash) => (hash ?? '').replace('sha256:', '').slice(0, 8);

// ---- what changed

const signs = { added: '+', removed: '−', changed: '~' };

function showChange(change) {
  const tools = change.tools ?? [];
  const count = ['added', 'removed', 'changed'].map((kind) => [kind, change[kind]?.length ?? 0]).filter(([, n]) => n > 0).map(([kind, n]) => `${n} ${kind}`);
  return el('details', { open: true },
    el('summary', null, 'What changed last', el('span', { class: 'quiet' }, `${count.join(', ') || 'nothing that can be named'} · `, when(change.at)),
      ' ', change.breaking ? pill('breaking', 'bad', 'calls that were right before may fail now') : pill('additive', 'good', 'what worked before still works')),
    el('p', { class: 'quiet' }, `Generation ${change.generation}, ${changeCause[change.cause] ?? visible(change.cause ?? '')}.`),
    el('ul', { class: 'changes' }, tools.slice(0, bounds.tools).map(showTool),
      tools.length > bounds.tools && el('li', { class: 'quiet' }, `and ${tools.length - bounds.tools} more tools: mcp-sidecar diff shows all`)));
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
  const near = lines.map((_, i) => lines.slice(Math.max(0, i - bounds.context), i + bounds.context + 1).some(([kind]) => kind !== 'same'));
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

// ---- conversations

function showFilters(status, counts) {
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  const choices = [['', 'All', all], ...Object.keys(conversationState).map((s) => [s, s, counts[s]])];
  keep($('states'), choices, ([s]) => `chip ${s}`, ([s, word]) => chip('state', s, word, state.filter.state, (value) => setFilter({ state: value })), (box, [s, , n]) => {
    const number = box.querySelector('b');
    if (number.textContent !== String(n)) number.textContent = n;
    box.hidden = n === 0 && s !== '' && s !== 'current' && s !== state.filter.state;
  });
  options('server', status.servers.map((s) => s.name));
  options('agent', status.agentServers.map((a) => a.name));
}

function chip(group, value, word, chosen, pick) {
  const input = el('input', { type: 'radio', name: group, value, checked: value === chosen, change: () => pick(value) });
  return el('label', { class: 'chip', title: conversationState[value]?.[1] }, input, el('span', null, word, el('b')));
}

// options fills one of the selects. With a single choice there is nothing to choose.
function options(which, names) {
  $(`${which}-choice`).hidden = names.length < 2;
  const select = $(`${which}-filter`);
  const chosen = select.value;
  show(select, names, () => [el('option', { value: '' }, 'all'), ...names.map((n) => el('option', { value: n }, visible(n, 60)))]);
  if (names.includes(chosen)) select.value = chosen;
}

function setFilter(change) {
  Object.assign(state.filter, change);
  state.cursors = [''];
  conversationsSoon();
}

function showConversations() {
  const { conversations, next } = state.page;
  const several = state.status.servers.length > 1;
  keep($('conversations'), conversations, (c) => c.id, makeRow, (row, c) => updateRow(row, c, several));
  document.querySelector('table').hidden = conversations.length === 0;
  $('no-conversations').hidden = conversations.length > 0;
  if (conversations.length === 0) show($('no-conversations'), [state.filter, state.status.agentServers.length, state.status.servers[0]?.path], emptyConversations);
  const pages = state.cursors.length;
  $('paging').hidden = pages === 1 && !next;
  $('previous').disabled = pages === 1;
  $('next').disabled = !next;
  $('page-number').textContent = `Page ${pages}`;
}

function emptyConversations() {
  const { filter, status } = state;
  if (Object.values(filter).some(Boolean)) {
    const clear = () => {
      for (const field of ['server-filter', 'agent-filter', 'id-filter']) $(field).value = '';
      document.querySelector('#states input').checked = true;
      document.querySelector('#states input').focus();
      setFilter({ state: '', server: '', agentServer: '', id: '' });
    };
    return [el('p', null, el('strong', null, 'No conversation is like that.'), ' ', conversationState[filter.state]?.[1] ?? ''), el('button', { type: 'button', click: clear }, 'Show all')];
  }
  if (status.agentServers.length === 0) {
    return [el('p', null, el('strong', null, 'No agent server is configured, so nothing can be refreshed.')), el('p', null, 'Start the sidecar with ', el('code', null, '--agent-server URL'), '.')];
  }
  return [el('p', null, el('strong', null, 'No conversation is registered.')),
    el('p', null, 'They register by their traffic to ', el('code', null, `/c/CONVERSATION${visible(status.servers[0]?.path ?? '/mcp')}`), ', by discovery, or with ', el('code', null, 'mcp-sidecar conversations add ID'), '.')];
}

function makeRow(c) {
  const cells = { id: el('th', { scope: 'row' }), state: el('td'), generation: el('td', { class: 'generation' }), active: el('td'), refresh: el('td') };
  const button = el('button', { type: 'button', click: () => refresh(button, c.id) }, 'Refresh', el('span', { class: 'unseen' }, ` ${visible(c.id)}`));
  const row = el('tr', null, ...Object.values(cells), el('td', null, button));
  row.parts = cells;
  return row;
}

async function refresh(button, id) {
  button.disabled = true;
  try {
    await call(`v1/conversations/${encodeURIComponent(id)}/refresh`, { method: 'POST' });
    announce(`A refresh of ${visible(id)} was asked for`);
  } catch (err) {
    announce(`Refreshing failed: ${visible(err.message, 300)}`);
  } finally {
    button.disabled = false;
    button.focus();
    conversationsSoon();
  }
}

function updateRow(row, c, several) {
  const { id, state: stateCell, generation, active, refresh: refreshCell } = row.parts;
  const [mood, meaning] = conversationState[c.state] ?? ['idle', ''];
  show(id, [c.agentServer, c.agentUrl, c.source], () => [code(c.id), el('small', null, name(c.agentServer), c.agentUrl ? [' · ', name(c.agentUrl)] : '', ` · by ${c.source}`)]);
  show(stateCell, c.state, () => pill(c.state, mood, meaning));
  show(generation, c.servers, () => c.servers.map((s) => el('div', null,
    several ? el('small', null, name(s.name)) : '',
    s.current || s.applied === s.desired ? String(s.applied || '–') : `${s.applied || '?'} → ${s.desired}`,
    s.how && el('small', { title: howKnown[s.how] }, s.how))));
  show(active, c.lastActive, () => (c.lastActive ? when(c.lastActive) : '–'));
  show(refreshCell, [c.lastError, c.attempts, c.nextAttempt, c.forced, c.state, c.servers], () => lastRefresh(c));
}

const howKnown = {
  observed: 'it listed its tools after they had settled', acknowledged: 'its agent server said so',
  created: 'it was created after the tools had settled', lost: 'its session was lost in a swap',
};

function lastRefresh(c) {
  const lines = [];
  const applied = c.servers.map((s) => s.appliedAt).filter(Boolean).sort().at(-1);
  if (c.lastError && c.state !== 'current') {
    lines.push(el('span', { class: 'problem' }, `${visible(c.lastError.reason)}, ${plural(c.attempts, 'attempt')}`));
    if (c.lastError.message) lines.push(el('small', { class: 'problem' }, visible(c.lastError.message, 240)));
    lines.push(el('small', null, c.nextAttempt ? ['Again ', when(c.nextAttempt)] : 'Not again until something changes'));
  } else if (c.state === 'stale' || c.forced) lines.push(c.nextAttempt ? ['Due ', when(c.nextAttempt)] : 'Due');
  else lines.push(applied ? ['Done ', when(applied)] : '–');
  return lines.flat();
}

// ---- timeline

// note makes an entry of an event. Refreshes to one generation are one entry.
function note(event) {
  if (event.type === 'refresh') {
    const open = state.entries.find((x) => x.type === 'refresh' && x.server === event.server && x.generation === event.generation);
    const entry = open && Date.parse(event.at) - Date.parse(open.until) < 600_000 ? open : add({ ...event, conversations: new Map() });
    const before = entry.conversations.get(event.conversation);
    const running = event.result === 'started';
    entry.conversations.set(event.conversation, { ...(running ? before : event), running });
    entry.until = event.at;
    return;
  }
  if (event.type === 'state' && event.state === 'settled') return; // the generation tells more, or nothing changed
  add(event);
}

function add(entry) {
  state.entries.unshift(entry);
  state.entries.length = Math.min(state.entries.length, bounds.entries);
  return entry;
}

function showTimeline() {
  const shown = state.entries.filter((e) => !state.kind || (state.kind === 'refreshes') === (e.type === 'refresh'));
  keep($('timeline'), shown, (e) => e.id, (e) => {
    const parts = { title: el('span'), body: el('div') };
    const item = el('li', null, el('div', { class: 'head' }, parts.title, el('span', { class: 'when' }, when(e.at))), parts.body);
    item.parts = parts;
    return item;
  }, (item, e) => {
    const { mood, title, body } = describe(e);
    item.dataset.mood = mood;
    show(item.parts.title, title, () => title);
    show(item.parts.body, e.type === 'refresh' ? [...e.conversations.values()] : '', body);
  });
  $('timeline').hidden = shown.length === 0;
  $('no-events').hidden = shown.length > 0;
  if (shown.length === 0 && state.status) {
    show($('no-events'), [state.kind, state.status.startedAt], () => [el('p', null, el('strong', null, 'Nothing has happened yet.')),
      el('p', null, 'Swaps, changes of the tools and refreshes show up here as they happen. Only those since the start of the sidecar are kept.')]);
  }
}

function describe(e) {
  const server = visible(e.server ?? '', 60);
  const line = (...children) => () => el('p', null, ...children);
  switch (e.type) {
    case 'swap': return { mood: 'busy', title: `${server}: another process`, body: line(swapCause[e.cause] ?? visible(e.cause ?? '')) };
    case 'state': {
      const [mood, meaning] = stateOf[e.state] ?? ['idle', ''];
      return { mood, title: e.state === 'away' ? `${server} is away` : `${server} answers`, body: line(`${meaning[0]?.toUpperCase() ?? ''}${meaning.slice(1)}.`) };
    }
    case 'generation': return { mood: e.breaking ? 'bad' : 'good', title: `${server}: generation ${e.generation}`, body: () => changedNames(e) };
    case 'refresh': return describeRefreshes(e, server);
    case 'reload': return e.result === 'ok' ? { mood: 'good', title: 'Configuration reloaded', body: () => '' } : { mood: 'bad', title: 'Configuration rejected', body: line('The last good one stays in force.') };
    case 'quiesce': return { mood: 'busy', title: 'Quiescing', body: line('Detection is frozen, traffic goes on.') };
    default: return { mood: 'idle', title: visible(e.type), body: () => '' };
  }
}

function changedNames(e) {
  const out = [];
  for (const kind of ['added', 'removed', 'changed']) {
    const names = e[kind] ?? [];
    if (names.length === 0) continue;
    const some = names.slice(0, bounds.names).map((n, i) => [i > 0 ? ', ' : '', code(n)]);
    out.push(el('p', null, `${signs[kind]} ${names.length} ${kind}: `, some.flat(), names.length > bounds.names ? ', …' : ''));
  }
  if (out.length === 0) out.push(el('p', null, e.tools === undefined ? 'The list is empty.' : `${plural(e.tools, 'tool')}.`));
  else if (e.breaking) out.push(el('p', { class: 'problem' }, 'Breaking: calls that were right before may fail now.'));
  if (e.cause === 'silent') out.push(el('p', null, 'Changed without another process and without notice.'));
  return out;
}

function describeRefreshes(e, server) {
  const all = [...e.conversations.entries()];
  const having = (result) => all.filter(([, c]) => c.result === result);
  const done = having('success').length;
  const failing = having('failed');
  const running = all.filter(([, c]) => c.running).length;
  const to = e.generation ? ` to generation ${e.generation}${state.status?.servers.length > 1 ? ` of ${server}` : ''}` : '';
  const words = [
    done > 0 && `${done} done`, failing.length > 0 && `${failing.length} failing`, running > 0 && `${running} under way`,
    having('superseded').length > 0 && `${having('superseded').length} overtaken by a newer change`, having('gone').length > 0 && `${having('gone').length} gone`,
  ].filter(Boolean);
  return {
    mood: failing.length > 0 ? 'bad' : running > 0 ? 'busy' : 'good',
    title: `${running > 0 ? 'Refreshing' : failing.length > 0 && done === 0 ? 'Not refreshed' : 'Refreshed'} ${plural(all.length, 'conversation')}${to}`,
    body: () => [
      all.length > 1 && el('progress', { max: all.length, value: done, 'aria-label': 'Conversations that have the new tools' }),
      el('p', null, words.join(' · ')),
      failing.length > 0 && el('ul', { class: 'problem' }, failing.slice(0, bounds.failing).map(([id, c]) => el('li', null, code(id), `: ${visible(c.reason ?? '')}${c.attempt > 1 ? `, attempt ${c.attempt}` : ''}`)),
        failing.length > bounds.failing && el('li', null, `and ${failing.length - bounds.failing} more`)),
    ],
  };
}

// ---- news for screen readers: a few sentences, not every event

let news = [];
const announceSoon = soon(() => {
  $('news').textContent = news.slice(-3).join('. ');
  news = [];
}, 800);

function announce(text) {
  news.push(text);
  announceSoon();
}

// ---- start

$('token').addEventListener('submit', (event) => {
  event.preventDefault();
  const token = $('token-value').value.trim();
  $('token-value').value = '';
  if (!/^[\x21-\x7e]+$/.test(token)) { // nothing else can be in a header
    askToken(true);
    return;
  }
  sessionStorage.setItem(tokenKey, token);
  link('waiting', 'Connecting');
  follow();
});
$('filter').addEventListener('submit', (event) => event.preventDefault());
$('server-filter').addEventListener('change', (event) => setFilter({ server: event.target.value }));
$('agent-filter').addEventListener('change', (event) => setFilter({ agentServer: event.target.value }));
$('id-filter').addEventListener('input', (event) => setFilter({ id: event.target.value.trim() }));
$('previous').addEventListener('click', () => {
  state.cursors.pop();
  conversationsSoon();
});
$('next').addEventListener('click', () => {
  state.cursors.push(state.page.next);
  conversationsSoon();
});
for (const [value, word] of [['', 'Everything'], ['servers', 'Servers'], ['refreshes', 'Refreshes']]) {
  $('kinds').append(chip('kind', value, word, '', (kind) => {
    state.kind = kind;
    timelineSoon();
  }));
}
setInterval(tick, 1000);
setInterval(() => { // sessions and waiting requests have no events
  const { status } = state;
  if (!status || document.hidden || $('page').hidden || $('link').dataset.state !== 'live') return;
  if (status.servers.some((s) => s.state !== 'settled' || s.held > 0) || Date.now() % 10_000 < 1000) statusSoon();
}, 1000);
document.addEventListener('visibilitychange', () => { if (!document.hidden && state.status) statusSoon(); });
follow();
