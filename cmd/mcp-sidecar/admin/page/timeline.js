// The timeline: what happened, newest first, made from the events of the feed.

import { signs } from './changes.js';
import { $, code, el, keep, plural, show, visible, when } from './dom.js';

const mostEntries = 200;
const mostFailing = 5; // conversations that are named in an entry
const mostNames = 6; // tools likewise

let entries = []; // newest first

const swapCause = {
  restart: 'Nothing listened for a moment.',
  session_lost: 'It does not know the session of before.',
  identity: 'Its identity header changed.',
  pid_file: 'The pid file names another process.',
  server_info: 'Its connections ended, and it calls itself something else.',
};

// forget begins anew, with the events of another process.
export function forget() {
  entries = [];
}

// note makes an entry of an event. Refreshes to one generation are one entry.
export function note(event) {
  if (event.type === 'refresh') {
    const open = entries.find((x) => x.type === 'refresh' && x.server === event.server && x.generation === event.generation);
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
  entries.unshift(entry);
  entries.length = Math.min(entries.length, mostEntries);
  return entry;
}

// showTimeline shows the entries of one kind: servers or refreshes, or all. several tells that there is more than one server.
export function showTimeline(kind, several) {
  const shown = entries.filter((e) => !kind || (kind === 'refreshes') === (e.type === 'refresh'));
  keep($('timeline'), shown, (e) => e.id, (e) => {
    const parts = { title: el('span'), body: el('div') };
    const item = el('li', null, el('div', { class: 'head' }, parts.title, el('span', { class: 'when' }, when(e.at))), parts.body);
    item.parts = parts;
    return item;
  }, (item, e) => {
    const { mood, title, body } = describe(e, several);
    item.dataset.mood = mood;
    show(item.parts.title, title, () => title);
    show(item.parts.body, e.type === 'refresh' ? [...e.conversations.values()] : '', body);
  });
  $('timeline').hidden = shown.length === 0;
  $('no-events').hidden = shown.length > 0;
  show($('no-events'), '', () => [el('p', null, el('strong', null, 'Nothing has happened yet.')),
    el('p', null, 'Swaps, changes of the tools and refreshes show up here as they happen. Only those since the start of the sidecar are kept.')]);
}

function describe(e, several) {
  const server = visible(e.server ?? '', 60);
  const line = (...children) => () => el('p', null, ...children);
  switch (e.type) {
    case 'swap': return { mood: 'busy', title: `${server}: another process`, body: line(swapCause[e.cause] ?? visible(e.cause ?? '')) };
    case 'state': {
      if (e.state === 'away') return { mood: 'bad', title: `${server} is away`, body: line('Nothing answers. Requests wait.') };
      return { mood: 'busy', title: `${server} answers`, body: line('Its tools have to stay the same for a moment.') };
    }
    case 'generation': return { mood: e.breaking ? 'bad' : 'good', title: `${server}: generation ${e.generation}`, body: () => changedNames(e) };
    case 'refresh': return describeRefreshes(e, several && server);
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
    const some = names.slice(0, mostNames).map((n, i) => [i > 0 ? ', ' : '', code(n)]);
    out.push(el('p', null, `${signs[kind]} ${names.length} ${kind}: `, some.flat(), names.length > mostNames ? ', …' : ''));
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
  const to = e.generation ? ` to generation ${e.generation}${server ? ` of ${server}` : ''}` : '';
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
      failing.length > 0 && el('ul', { class: 'problem' }, failing.slice(0, mostFailing).map(([id, c]) => el('li', null, code(id), `: ${visible(c.reason ?? '')}${c.attempt > 1 ? `, attempt ${c.attempt}` : ''}`)),
        failing.length > mostFailing && el('li', null, `and ${failing.length - mostFailing} more`)),
    ],
  };
}
