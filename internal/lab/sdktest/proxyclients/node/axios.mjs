// Calls a model with axios, at $BASE_URL.
import axios from 'axios';
import { run, say } from './stories.mjs';

const { BASE_URL, TIMEOUT, PREFER } = process.env;

const client = axios.create({
  baseURL: BASE_URL,
  ...(TIMEOUT && { timeout: TIMEOUT * 1000 }),
  ...(PREFER && { headers: { Prefer: PREFER } }),
});

async function call() {
  try {
    const answer = await client.post('/chat/completions', { model: 'm' });
    say({ status: answer.status, answer: answer.data, timing: answer.headers['server-timing'] });
  } catch (e) {
    say({
      error: e.code, message: e.message, status: e.response?.status, answer: e.response?.data,
      retryAfter: e.response?.headers['retry-after'], via: e.response?.headers.via,
    });
  }
}

async function* stream() {
  const answer = await client.post('/chat/completions', { model: 'm', stream: true }, { responseType: 'stream' });
  let rest = '';
  for await (const part of answer.data) {
    const lines = (rest + part).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data: {')) yield JSON.parse(line.slice(6)).choices[0].delta.content;
    }
  }
}

await run({ call, stream, defaults: { timeout: client.defaults.timeout / 1000, retries: 0 } });
