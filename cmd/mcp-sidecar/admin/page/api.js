// How the page talks to the admin API.

export const tokenKey = 'mcp-sidecar-admin-token';

// Unauthorized: the token isn't accepted. Unreachable: there was no answer.
export class Unauthorized extends Error {}
export class Unreachable extends Error {}

export async function call(path, init = {}) {
  const headers = { Accept: 'application/json', ...init.headers };
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...init, headers, cache: 'no-store', redirect: 'error' }).catch((err) => {
    throw new Unreachable('the sidecar cannot be reached', { cause: err });
  });
  if (answer.status === 401) throw new Unauthorized();
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(problem.detail || problem.title || `status ${answer.status}`), { status: answer.status });
  }
  return answer;
}

// expected tells whether an error is one of the API, and no mistake of the page.
export const expected = (err) => err instanceof Unauthorized || err instanceof Unreachable || err.status > 0;

export const get = async (path) => (await call(path)).json();

// messages reads a stream of events. alive is called whenever something comes.
export async function* messages(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let id = 0;
  let data = '';
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
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
