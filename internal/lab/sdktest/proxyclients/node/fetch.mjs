// Calls a model with Node's own fetch, at $BASE_URL.
import { run, say } from './stories.mjs';

const { BASE_URL, TIMEOUT, PREFER } = process.env;

function send(body) {
  return fetch(BASE_URL + '/chat/completions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...(PREFER && { Prefer: PREFER }) },
    body: JSON.stringify(body),
    signal: TIMEOUT && AbortSignal.timeout(TIMEOUT * 1000),
  });
}

async function call() {
  try {
    const answer = await send({ model: 'm' });
    say({
      status: answer.status, answer: await answer.json(), retryAfter: answer.headers.get('Retry-After'),
      via: answer.headers.get('Via'), timing: answer.headers.get('Server-Timing'),
    });
  } catch (e) {
    say({ error: e.name, message: e.message });
  }
}

async function* stream() {
  const answer = await send({ model: 'm', stream: true });
  let rest = '';
  for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + part).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data: {')) yield JSON.parse(line.slice(6)).choices[0].delta.content;
    }
  }
}

await run({ call, stream });
