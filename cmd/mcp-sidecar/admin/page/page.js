// The status page: it asks the admin API, follows its feed of events, and shows both.

import { call, expected, get, messages, tokenKey, Unauthorized } from './api.js';
import { showChange } from './changes.js';
import { $, announce, clock, code, el, keep, name, pill, plural, show, soon, tick, visible, when } from './dom.js';
import { forget, note, showTimeline } from './timeline.js';

const mostTools = 1000; // in the list of a server

const state = {
  status: null,
  lastEvent: 0,
  changes: new Map(), // by server: what changed last, in detail
  page: null, // of conversations
  cursors: [''],
  filter: { state: '', server: '', agentServer: '', id: '' },
  kind: '', // of entries of the timeline
  verdict: '',
};

// ---- loading

async function loadStatus() {
  const status = await get('v1/status');
  if (state.status && state.status.startedAt !== status.startedAt) { // another process: its events begin anew
    forget();
    state.lastEvent = 0;
    state.changes.clear();
  }
  if (state.page && JSON.stringify(state.status?.agentServers) !== JSON.stringify(status.agentServers)) conversationsSoon();
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

const refused = (err) => {
  if (err instanceof Unauthorized) askToken(true);
  else if (!expected(err)) console.error(err);
};
const statusSoon = soon(loadStatus, 120, refused);
const conversationsSoon = soon(loadConversations, 400, refused);
const timelineSoon = soon(() => showTimeline(state.kind, state.status.servers.length > 1), 100, refused);

let stop = new AbortController(); // what is followed now

// follow shows the present and then what happens, until the token isn't accepted.
async function follow() {
  for (let failures = 0; ; failures++) {
    stop = new AbortController();
    const { signal } = stop;
    let watchdog = 0;
    const alive = () => { // the feed is never silent for longer than 15 seconds
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stop.abort('silent'), 40_000);
    };
    try {
      await loadStatus();
      await loadConversations();
      $('token').hidden = true;
      $('page').hidden = false;
      alive();
      const feed = await call('v1/events', { headers: { 'Last-Event-ID': String(state.lastEvent) }, signal });
      const skew = Date.parse(feed.headers.get('Date')) - Date.now();
      clock.skew = Math.abs(skew) > 2000 ? skew : 0;
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
      if (err instanceof Unauthorized) askToken(sessionStorage.getItem(tokenKey) !== null);
      else if (!expected(err)) console.error(err);
    } finally {
      clearTimeout(watchdog);
    }
    if (signal.reason !== refusal) {
      link('lost', 'Not connected, trying again');
      await new Promise((resolve) => { setTimeout(resolve, Math.min(1000 * 2 ** failures, 10_000)); });
    }
    if (signal.reason === refusal) return;
  }
}

function link(word, text) {
  $('link').dataset.state = word;
  $('link-text').textContent = text;
}

const refusal = 'the token is not accepted';

function askToken(refused) {
  stop.abort(refusal);
  sessionStorage.removeItem(tokenKey);
  link('lost', 'Token needed');
  $('page').hidden = true;
  $('token').hidden = false;
  $('token-error').hidden = !refused;
  $('token-error').textContent = 'That token is not accepted. Is it the one in the file now?';
  $('token-value').focus();
}

// ---- what states mean

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
  if (counts.failed > 0) return ['bad', 'failing', `${plural(counts.failed, 'conversation')} cannot be refreshed`, [
    `They still offer older tools, and are tried again${counts.stale > 0 ? `; ${plural(counts.stale, 'more', 'more')} wait${counts.stale === 1 ? 's' : ''} for a refresh` : ''}. `, ...old]];
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
  show($('about'), [status.version, status.startedAt], () => [status.version === 'unknown' ? '' : `${status.version} · `, 'started ', when(status.startedAt)]);
  const [mood, kind, title, detail] = verdict(status, counts);
  $('verdict').dataset.mood = mood;
  show($('verdict-title'), title, () => title);
  show($('verdict-detail'), detail.map((d) => d.at ?? d), () => detail);
  document.title = mood === 'good' ? 'mcp-sidecar' : `${title} – mcp-sidecar`;
  if (state.verdict && state.verdict !== kind) announce(title);
  state.verdict = kind;

  $('config-error').hidden = !status.configError;
  show($('config-error'), status.configError, () => status.configError && `The configuration has mistakes; the last good one stays in force.\n${visibleLines(status.configError)}`);
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
    el('ul', { class: 'tools' }, s.tools.slice(0, mostTools).map((t) => el('li', null, code(t.name))),
      s.tools.length > mostTools && el('li', { class: 'quiet' }, `and ${s.tools.length - mostTools} more`))));
}

const fact = (term, value) => el('div', null, el('dt', null, term), el('dd', null, ...[value].flat()));
const shortHash = (hash) => (hash ?? '').replace('sha256:', '').slice(0, 8);

// ---- conversations

function showFilters(status, counts) {
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  $('filter').hidden = all === 0 && !Object.values(state.filter).some(Boolean);
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
  else lines.push(applied ? ['Applied ', when(applied)] : '–');
  return lines.flat();
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
setInterval(() => { // there are no events of sessions, waiting requests and registrations
  const { status } = state;
  if (!status || document.hidden || $('page').hidden || $('link').dataset.state !== 'live') return;
  if (status.servers.some((s) => s.state !== 'settled' || s.held > 0) || Date.now() % 3000 < 1000) statusSoon();
}, 1000);
document.addEventListener('visibilitychange', () => { if (!document.hidden && state.status) statusSoon(); });
follow();
